# The parts of nixpkgs' `lib` that the modules use, written from their documentation. What the
# real library has by another name, or not at all, is not here either.
let
  parts = {
    trivial = import ./trivial.nix lib;
    lists = import ./lists.nix lib;
    attrsets = import ./attrsets.nix lib;
    strings = import ./strings.nix lib;
    generators = import ./generators.nix lib;
    options = import ./options.nix lib;
    modules = import ./modules.nix lib;
    types = import ./types.nix lib;
    meta = import ./meta.nix lib;
    customisation = import ./customisation.nix lib;
    asserts = import ./asserts.nix lib;
  };

  own = parts // {
    licenses = {
      asl20 = {
        spdxId = "Apache-2.0";
        fullName = "Apache License 2.0";
        free = true;
      };
    };
    maintainers = { };
    platforms.linux = [
      "x86_64-linux"
      "aarch64-linux"
    ];
  };

  # What the real library also offers at its top level.
  lib =
    own
    // parts.trivial
    // parts.lists
    // parts.attrsets
    // parts.strings
    // parts.options
    // removeAttrs parts.modules [ "mergeModules" ]
    // parts.meta
    // removeAttrs parts.customisation [ "override" ]
    // parts.asserts;
in
lib
