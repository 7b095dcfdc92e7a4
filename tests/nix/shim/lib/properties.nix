# mkIf, mkMerge, priorities and order: what wraps a definition, and how it is taken off again.
lib:
let
  inherit (lib) concatMap;
  priority = def: if isA "override" def.value then def.value.priority else defaultOverridePriority;
  isA = type: value: value._type or "" == type;
  defaultOverridePriority = 100;
  defaultOrderPriority = 1000;
in
rec {
  inherit defaultOverridePriority defaultOrderPriority;

  mkIf = condition: content: {
    _type = "if";
    inherit condition content;
  };
  mkAssert =
    assertion: message: content:
    mkIf (if assertion then true else throw "\nFailed assertion: ${message}") content;
  mkMerge = contents: {
    _type = "merge";
    inherit contents;
  };
  mkOverride = priority: content: {
    _type = "override";
    inherit priority content;
  };
  mkOptionDefault = mkOverride 1500;
  mkDefault = mkOverride 1000;
  mkImageMediaOverride = mkOverride 60;
  mkForce = mkOverride 50;
  mkVMOverride = mkOverride 10;
  mkOrder = priority: content: {
    _type = "order";
    inherit priority content;
  };
  mkBefore = mkOrder 500;
  mkAfter = mkOrder 1500;
  mkDefinition = def: def // { _type = "definition"; };

  # Through a set, so that every attribute carries what the set was wrapped in; conditions stay
  # unevaluated, since an option may depend on another one of the same set.
  pushDown =
    config:
    if isA "merge" config then
      concatMap pushDown config.contents
    else if isA "if" config then
      map (builtins.mapAttrs (_: mkIf config.condition)) (pushDown config.content)
    else if isA "override" config then
      map (builtins.mapAttrs (_: mkOverride config.priority)) (pushDown config.content)
    else
      [ config ];

  # The values that are really defined.
  discharge =
    value:
    if isA "merge" value then
      concatMap discharge value.contents
    else if isA "if" value then
      if builtins.isBool value.condition then
        if value.condition then discharge value.content else [ ]
      else
        throw "‘mkIf’ called with a non-Boolean condition"
    else
      [ value ];

  filterOverrides = defs: (filterOverrides' defs).values;
  filterOverrides' =
    defs:
    let
      highestPrio = builtins.foldl' (best: def: lib.min best (priority def)) 9999 defs;
      strip = def: if isA "override" def.value then def // { value = def.value.content; } else def;
    in
    {
      values = map strip (builtins.filter (def: priority def == highestPrio) defs);
      inherit highestPrio;
    };

  sortProperties =
    defs:
    let
      order = def: if isA "order" def.value then def.value.priority else defaultOrderPriority;
      strip = def: if isA "order" def.value then def // { value = def.value.content; } else def;
    in
    if builtins.any (def: isA "order" def.value) defs then
      map strip (builtins.sort (a: b: order a < order b) defs)
    else
      defs;
}
