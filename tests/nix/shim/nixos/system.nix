# What hosts say about themselves, assertions, and the whole as one derivation.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  option = type: default: mkOption { inherit type default; };
  flag = option types.bool;
  failed = map (a: a.message) (builtins.filter (a: !a.assertion) config.assertions);
  checked =
    if failed == [ ] then
      lib.foldr lib.warn lib.id config.warnings
    else
      throw (
        "\nFailed assertions:\n" + lib.concatMapStringsSep "\n" (message: "- ${message}") failed
      );
in
{
  options = {
    assertions = mkOption {
      type = types.listOf types.unspecified;
      internal = true;
      default = [ ];
    };
    warnings = mkOption {
      internal = true;
      type = types.listOf types.str;
      default = [ ];
    };
    meta.maintainers = option (types.listOf types.unspecified) [ ];

    system = {
      stateVersion = option types.str lib.trivial.release;
      build = option (types.submoduleWith {
        modules = [ { freeformType = types.lazyAttrsOf (types.uniq types.unspecified); } ];
      }) { };
      nixos.release = option types.str lib.trivial.release;
    };

    environment = {
      systemPackages = option (types.listOf types.package) [ ];
      variables = option (types.attrsOf (types.either types.str (types.listOf types.str))) { };
    };

    boot = {
      kernel.sysctl = mkOption {
        default = { };
        type = types.submodule {
          freeformType = types.attrsOf (
            types.nullOr (
              types.oneOf [
                types.bool
                types.str
                types.int
              ]
            )
          );
        };
      };
      kernelModules = option (types.listOf types.str) [ ];
      loader.grub = {
        enable = flag true;
        device = option types.str "";
        devices = option (types.listOf types.str) [ ];
      };
      loader.systemd-boot.enable = flag false;
      isContainer = flag false;
      tmp.cleanOnBoot = flag false;
    };

    documentation = {
      enable = flag true;
      nixos.enable = flag true;
      man.enable = flag true;
      doc.enable = flag true;
      info.enable = flag true;
    };

    fileSystems = mkOption {
      default = { };
      type = types.attrsOf (
        types.submodule {
          options = {
            device = option (types.nullOr types.str) null;
            fsType = option types.str "auto";
            options = mkOption {
              type = types.listOf types.str;
              default = [ "defaults" ];
            };
            neededForBoot = flag false;
          };
        }
      );
    };

    networking = {
      hostName = option (
        types.strMatching "^$|^[[:alnum:]]([[:alnum:]_-]{0,61}[[:alnum:]])?$"
      ) "nixos";
      domain = option (types.nullOr types.str) null;
      useDHCP = flag true;
      hosts = option (types.attrsOf (types.listOf types.str)) { };
    };

    time.timeZone = option (types.nullOr (types.strMatching "[^ ]*")) null;
    i18n.defaultLocale = option types.str "en_US.UTF-8";
    services.openssh.enable = flag false;
  };

  config.system.build.toplevel = checked (
    pkgs.runCommand "nixos-system-${config.networking.hostName}-${config.system.nixos.release}" {
      units = map (name: config.systemd.units.${name}.unit) (
        builtins.attrNames config.systemd.units
      );
      etc = map (file: file.source) (builtins.attrValues config.environment.etc);
      path = config.environment.systemPackages;
    } "mkdir $out\n"
  );
}
