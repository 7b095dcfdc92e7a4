# Units: options as NixOS has them, and the text that NixOS makes of them.
{ config, lib, pkgs, ... }:
let
  inherit (lib) mkOption types;
  cfg = config.systemd;
  kinds = import ./unit-kinds.nix { inherit lib pkgs; inherit (cfg) package; };
  text = import ./unit-text.nix { inherit lib; environment = cfg.globalEnvironment; };

  kind =
    name:
    mkOption {
      default = { };
      type = types.attrsOf (types.submodule kinds.${name});
    };
  all = [
    "paths"
    "services"
    "slices"
    "sockets"
    "targets"
    "timers"
  ];
  units = lib.concatMap (
    name:
    map (unit: lib.nameValuePair unit.name (text.${name} unit)) (builtins.attrValues cfg.${name})
  ) all;

  plain =
    { name, config, ... }:
    {
      options = kinds.shared // {
        text = mkOption {
          type = types.nullOr types.str;
          default = null;
        };
        unit = mkOption { internal = true; };
      };
      config = {
        name = lib.mkDefault name;
        unit = lib.mkDefault (
          pkgs.runCommand "unit-${lib.replaceStrings [ "@" ":" "\\" ] [ "-" "-" "-" ] name}" {
            text = if config.text == null then "" else config.text;
            passAsFile = [ "text" ];
          } "mkdir -p $out\nmv \"$textPath\" \"$out/${name}\"\n"
        );
      };
    };

  services = builtins.attrValues cfg.services;
  online =
    unit:
    builtins.elem "network-online.target" unit.after
    && !builtins.elem "network-online.target" (unit.wants ++ unit.requires ++ unit.bindsTo);
in
{
  options.systemd = lib.genAttrs all kind // {
    package = lib.mkPackageOption pkgs "systemd" { };
    packages = mkOption {
      type = types.listOf types.package;
      default = [ ];
    };
    globalEnvironment = mkOption {
      type = types.attrsOf (
        types.nullOr (
          types.oneOf [
            types.str
            types.path
            types.package
          ]
        )
      );
      default = { };
    };
    units = mkOption {
      default = { };
      type = types.attrsOf (types.submodule plain);
    };
  };

  config = {
    systemd.globalEnvironment = {
      LOCALE_ARCHIVE = "${pkgs.glibcLocales}/lib/locale/locale-archive";
      TZDIR = "${pkgs.tzdata}/share/zoneinfo";
    };
    systemd.units = builtins.listToAttrs units;
    systemd.timers = lib.mapAttrs (_: service: {
      wantedBy = [ "timers.target" ];
      timerConfig.OnCalendar = service.startAt;
    }) (lib.filterAttrs (_: service: service.enable && service.startAt != [ ]) cfg.services);
    environment.systemPackages = [ cfg.package ];
    warnings =
      lib.concatMap (
        s:
        lib.optional (
          s.serviceConfig.Type or "" == "oneshot"
          && builtins.elem (s.serviceConfig.Restart or "no") [
            "always"
            "on-success"
          ]
        ) (
          "Service '${s.name}' with 'Type=oneshot' cannot have"
          + " 'Restart=always' or 'Restart=on-success'"
        )
        ++ lib.optional (s.serviceConfig ? StartLimitInterval) (
          "Service '${s.name}' uses the attribute 'StartLimitInterval' in the Service section,"
          + " which is deprecated."
        )
      ) services
      ++ map (
        s: "${s.name} is ordered after 'network-online.target' but doesn't depend on it"
      ) (builtins.filter online services);
  };
}
