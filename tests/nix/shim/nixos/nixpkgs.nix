{ config, lib, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.nixpkgs;
in
{
  options.nixpkgs = {
    system = mkOption {
      type = types.str;
      default = "x86_64-linux";
    };
    hostPlatform = mkOption {
      type = types.either types.str types.attrs;
      default = cfg.system;
    };
    config = mkOption {
      type = types.attrs;
      default = { };
    };
    overlays = mkOption {
      type = types.listOf (
        types.mkOptionType {
          name = "nixpkgs-overlay";
          description = "nixpkgs overlay";
          check = lib.isFunction;
          merge = lib.mergeOneOption;
        }
      );
      default = [ ];
    };
    pkgs = mkOption {
      type = types.pkgs;
      default = import ../. {
        inherit (cfg) config overlays;
        system =
          if builtins.isString cfg.hostPlatform then cfg.hostPlatform else cfg.hostPlatform.system;
      };
    };
  };
  config._module.args.pkgs = cfg.pkgs;
}
