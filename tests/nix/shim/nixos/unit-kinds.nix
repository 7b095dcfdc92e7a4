# The options of each kind of unit: `shared`, and a list of modules for every kind.
{ lib, pkgs, package }:
let
  inherit (lib)
    mkIf
    mkOption
    optionalAttrs
    types
    ;
  option = type: default: mkOption { inherit type default; };

  unitName = types.strMatching (
    "[a-zA-Z0-9@%:_.\\-]+[.](service|socket|device|mount|automount|swap|target|path|timer"
    + "|scope|slice)"
  );
  names = option (types.listOf unitName) [ ];

  # One value, or lists that are joined.
  setting = types.mkOptionType {
    name = "systemd option";
    merge =
      loc: defs:
      let
        kept = lib.filterOverrides defs;
      in
      if builtins.any (def: builtins.isList def.value) kept then
        lib.concatMap (def: lib.toList def.value) kept
      else
        lib.mergeEqualOption loc kept;
  };
  settings = option (types.attrsOf setting) { };

  shared = {
    enable = option types.bool true;
    name = mkOption { type = types.str; };
    overrideStrategy = option (types.enum [
      "asDropinIfExists"
      "asDropin"
    ]) "asDropinIfExists";
    requiredBy = names;
    upheldBy = names;
    wantedBy = names;
    aliases = names;
  };

  relations = {
    requires = "Requires";
    wants = "Wants";
    upholds = "Upholds";
    after = "After";
    before = "Before";
    bindsTo = "BindsTo";
    partOf = "PartOf";
    conflicts = "Conflicts";
    requisite = "Requisite";
    onFailure = "OnFailure";
    onSuccess = "OnSuccess";
  };

  common =
    {
      name,
      config,
      options,
      ...
    }:
    let
      listed =
        which: key: optionalAttrs (config.${which} != [ ]) { ${key} = toString config.${which}; };
      triggers =
        which: key:
        optionalAttrs (config.${which} != [ ]) {
          ${key} = "${
            pkgs.writeText "${key}-${name}" (toString (map copied (lib.flatten config.${which})))
          }";
        };
      copied = x: if builtins.isPath x then "${x}" else x;
      limit =
        which: key: optionalAttrs options.${which}.isDefined { ${key} = toString config.${which}; };
    in
    {
      options =
        shared
        // builtins.mapAttrs (_: _: names) relations
        // {
          description = option types.singleLineStr "";
          documentation = option (types.listOf types.str) [ ];
          unitConfig = settings;
          startLimitBurst = mkOption { type = types.int; };
          startLimitIntervalSec = mkOption { type = types.int; };
          restartTriggers = option (types.listOf types.unspecified) [ ];
          reloadTriggers = option (types.listOf setting) [ ];
        };
      config.unitConfig =
        lib.concatMapAttrs listed relations
        // listed "documentation" "Documentation"
        // optionalAttrs (config.description != "") { Description = config.description; }
        // triggers "restartTriggers" "X-Restart-Triggers"
        // triggers "reloadTriggers" "X-Reload-Triggers"
        // limit "startLimitIntervalSec" "StartLimitIntervalSec"
        // limit "startLimitBurst" "StartLimitBurst";
    };

  named = suffix: { name, ... }: { config.name = "${name}.${suffix}"; };

  oneOf =
    key: allowed: set:
    let
      given = set.${key} or null;
      wrapped = builtins.elem (given._type or "") [
        "override"
        "if"
      ];
      value = if wrapped then given.content else given;
    in
    !set ? ${key} || builtins.elem value allowed;
  known =
    set:
    oneOf "Type" [
      "exec"
      "simple"
      "forking"
      "oneshot"
      "dbus"
      "notify"
      "notify-reload"
      "idle"
    ] set
    && oneOf "Restart" [
      "no"
      "on-success"
      "on-failure"
      "on-abnormal"
      "on-abort"
      "always"
    ] set;

  # A text that systemd runs: a script in the store.
  scripts = {
    preStart = {
      suffix = "pre-start";
      key = "ExecStartPre";
    };
    postStart = {
      suffix = "post-start";
      key = "ExecStartPost";
    };
    reload = {
      suffix = "reload";
      key = "ExecReload";
    };
    preStop = {
      suffix = "pre-stop";
      key = "ExecStop";
    };
    postStop = {
      suffix = "post-stop";
      key = "ExecStopPost";
    };
  };
  listKeys = [
    "preStart"
    "postStart"
  ];
  script =
    name: text:
    let
      file = lib.replaceStrings [ "\\" "@" ] [ "-" "_" ] name;
    in
    "${
      (pkgs.writeShellScriptBin file "set -e\n${text}\n").overrideAttrs (_: {
        name = "unit-script-${file}";
      })
    }/bin/${file}";

  service =
    { name, config, ... }:
    {
      options = {
        environment = option (types.attrsOf (
          types.nullOr (
            types.oneOf [
              types.str
              types.path
              types.package
            ]
          )
        )) { };
        path = option (types.listOf (
          types.oneOf [
            types.package
            types.str
          ]
        )) [ ];
        serviceConfig = option (types.addCheck (types.attrsOf setting) known) { };
        script = option types.lines "";
        scriptArgs = option types.str "";
        restartIfChanged = option types.bool true;
        reloadIfChanged = option types.bool false;
        stopIfChanged = option types.bool true;
        startAt = mkOption {
          type = types.either types.str (types.listOf types.str);
          default = [ ];
          apply = lib.toList;
        };
      }
      // builtins.mapAttrs (_: _: option types.lines "") scripts;
      config = {
        path = lib.mkAfter [
          pkgs.coreutils
          pkgs.findutils
          pkgs.gnugrep
          pkgs.gnused
          package
        ];
        environment.PATH = mkIf (config.path != [ ]) "${lib.makeBinPath config.path}:${
          lib.makeSearchPathOutput "bin" "sbin" config.path
        }";
        serviceConfig = lib.mkMerge (
          lib.mapAttrsToList (
            which: how:
            let
              run = script "${name}-${how.suffix}" config.${which};
            in
            mkIf (config.${which} != "") {
              ${how.key} = if builtins.elem which listKeys then [ run ] else run;
            }
          ) scripts
          ++ [
            (mkIf (config.script != "") {
              ExecStart = "${script "${name}-start" config.script} ${config.scriptArgs}";
            })
          ]
        );
      };
    };

  own = options: { inherit options; };
in
{
  inherit shared;
  services = [
    common
    service
    (named "service")
  ];
  sockets = [
    common
    (named "socket")
    (own {
      listenStreams = option (types.listOf types.str) [ ];
      listenDatagrams = option (types.listOf types.str) [ ];
      socketConfig = settings;
    })
  ];
  timers = [
    common
    (named "timer")
    (own { timerConfig = settings; })
  ];
  paths = [
    common
    (named "path")
    (own { pathConfig = settings; })
  ];
  slices = [
    common
    (named "slice")
    (own { sliceConfig = settings; })
  ];
  targets = [
    common
    (named "target")
  ];
}
