# A unit's options -> its text. Keys are sorted; a list is a key repeated.
{ lib, environment }:
let
  value =
    x:
    if x == true then
      "true"
    else if x == false then
      "false"
    else
      toString x;
  section =
    keys:
    lib.concatStrings (
      lib.concatLists (
        lib.mapAttrsToList (
          name: values: map (one: "${name}=${value one}\n") (lib.toList values)
        ) keys
      )
    );
  variables = set: lib.concatStrings (
    lib.mapAttrsToList (
      name: content:
      lib.optionalString (content != null) "Environment=${builtins.toJSON "${name}=${content}"}\n"
    ) set
  );
  install =
    unit:
    lib.optionalString (
      unit.wantedBy != [ ]
    ) "\n[Install]\nWantedBy=${lib.concatStringsSep " " unit.wantedBy}\n";
  common =
    unit: rest: {
      inherit (unit)
        name
        aliases
        wantedBy
        requiredBy
        upheldBy
        enable
        overrideStrategy
        ;
      text = "[Unit]\n${section unit.unitConfig}\n${rest}${install unit}";
    };
  listens = key: addresses: lib.concatMapStringsSep "\n" (address: "${key}=${address}") addresses;
in
{
  services =
    unit:
    common unit (
      "[Service]\n"
      + variables (environment // unit.environment)
      + (
        if unit.reloadIfChanged then
          "X-ReloadIfChanged=true\n"
        else
          lib.optionalString (!unit.restartIfChanged) "X-RestartIfChanged=false\n"
      )
      + lib.optionalString (!unit.stopIfChanged) "X-StopIfChanged=false\n"
      + section unit.serviceConfig
    );
  sockets =
    unit:
    common unit (
      "[Socket]\n${section unit.socketConfig}\n"
      + "${listens "ListenStream" unit.listenStreams}\n"
      + "${listens "ListenDatagram" unit.listenDatagrams}\n"
    );
  timers = unit: common unit "[Timer]\n${section unit.timerConfig}\n";
  paths = unit: common unit "[Path]\n${section unit.pathConfig}\n";
  slices = unit: common unit "[Slice]\n${section unit.sliceConfig}\n";
  targets = unit: common unit "" // { text = "[Unit]\n${section unit.unitConfig}\n"; };
}
