# Options for the settings of a program. What is null is left out of the settings: its default is
# that of the program, in one place.
{ lib }:
let
  inherit (lib) mkOption types;
in
rec {
  setting =
    type: example: description:
    mkOption {
      type = types.nullOr type;
      default = null;
      inherit example description;
    };
  count = setting types.ints.positive;
  time = setting types.number;
}
