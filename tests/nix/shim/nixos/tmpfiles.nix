{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  word =
    default:
    mkOption {
      type = types.str;
      inherit default;
    };
  entry =
    { name, ... }:
    {
      options = {
        type = word name;
        mode = word "-";
        user = word "-";
        group = word "-";
        age = word "-";
        argument = word "";
      };
    };
  cfg = config.systemd.tmpfiles;
  line =
    path: e:
    "'${e.type}' '${path}' '${e.mode}' '${e.user}' '${e.group}' '${e.age}' ${e.argument}\n";
  file = lib.concatMapAttrsStringSep "" (
    path: lib.concatMapAttrsStringSep "" (_: line path)
  );
in
{
  options.systemd.tmpfiles = {
    rules = mkOption {
      type = types.listOf types.str;
      default = [ ];
    };
    settings = mkOption {
      default = { };
      type = types.attrsOf (types.attrsOf (types.attrsOf (types.submodule entry)));
    };
    packages = mkOption {
      type = types.listOf types.package;
      default = [ ];
    };
  };
  config.systemd.tmpfiles.packages = [
    (pkgs.writeTextFile {
      name = "nixos-tmpfiles.d";
      destination = "/lib/tmpfiles.d/00-nixos.conf";
      text = "${lib.concatStringsSep "\n" cfg.rules}\n";
    })
  ]
  ++ lib.mapAttrsToList (
    name: paths: pkgs.writeTextDir "lib/tmpfiles.d/${name}.conf" (file paths)
  ) cfg.settings;
}
