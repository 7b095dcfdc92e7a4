{ lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  file =
    {
      name,
      config,
      options,
      ...
    }:
    {
      options = {
        enable = mkOption {
          type = types.bool;
          default = true;
        };
        target = mkOption { type = types.str; };
        text = mkOption {
          type = types.nullOr types.lines;
          default = null;
        };
        source = mkOption { type = types.path; };
        mode = mkOption {
          type = types.str;
          default = "symlink";
        };
        uid = mkOption {
          type = types.int;
          default = 0;
        };
        gid = mkOption {
          type = types.int;
          default = 0;
        };
        user = mkOption {
          type = types.str;
          default = "+${toString config.uid}";
        };
        group = mkOption {
          type = types.str;
          default = "+${toString config.gid}";
        };
      };
      config = {
        target = lib.mkDefault name;
        source = lib.mkIf (config.text != null) (
          lib.mkOverride options.text.highestPrio (
            pkgs.writeText "etc-${lib.replaceStrings [ "/" ] [ "-" ] name}" config.text
          )
        );
      };
    };
in
{
  options.environment.etc = mkOption {
    default = { };
    type = types.attrsOf (types.submodule file);
  };
}
