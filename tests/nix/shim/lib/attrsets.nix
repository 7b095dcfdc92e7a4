lib: rec {
  inherit (builtins)
    attrNames
    attrValues
    catAttrs
    getAttr
    hasAttr
    intersectAttrs
    isAttrs
    listToAttrs
    mapAttrs
    removeAttrs
    zipAttrsWith
    ;

  nameValuePair = name: value: { inherit name value; };
  optionalAttrs = condition: set: if condition then set else { };

  attrByPath =
    path: fallback: set:
    if path == [ ] then
      set
    else if set ? ${builtins.head path} then
      attrByPath (builtins.tail path) fallback set.${builtins.head path}
    else
      fallback;
  hasAttrByPath =
    path: set:
    path == [ ]
    || (
      set ? ${builtins.head path}
      && hasAttrByPath (builtins.tail path) set.${builtins.head path}
    );
  getAttrFromPath =
    path: attrByPath path (throw "cannot find attribute '${lib.concatStringsSep "." path}'");
  setAttrByPath = path: value: lib.foldr (name: inner: { ${name} = inner; }) value path;

  attrVals = names: set: map (name: set.${name}) names;
  getAttrs = names: set: lib.genAttrs names (name: set.${name});
  genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
  genAttrs' = xs: f: listToAttrs (map f xs);
  attrsToList = mapAttrsToList nameValuePair;

  mapAttrs' = f: set: listToAttrs (mapAttrsToList f set);
  mapAttrsToList = f: set: map (name: f name set.${name}) (attrNames set);
  concatMapAttrs = f: set: lib.mergeAttrsList (mapAttrsToList f set);
  mergeAttrsList = builtins.foldl' (a: b: a // b) { };
  filterAttrs =
    pred: set: removeAttrs set (builtins.filter (name: !pred name set.${name}) (attrNames set));
  foldlAttrs =
    f: init: set:
    builtins.foldl' (acc: name: f acc name set.${name}) init (attrNames set);
  foldAttrs = op: nul: zipAttrsWith (_: lib.foldr op nul);
  zipAttrs = zipAttrsWith (_: values: values);

  mapAttrsRecursive = mapAttrsRecursiveCond (_: true);
  mapAttrsRecursiveCond =
    cond: f: set:
    let
      recurse =
        path:
        mapAttrs (
          name: value:
          (if isAttrs value && cond value then recurse else f) (path ++ [ name ]) value
        );
    in
    recurse [ ] set;

  collect =
    pred: set:
    if pred set then
      [ set ]
    else if isAttrs set then
      builtins.concatMap (collect pred) (attrValues set)
    else
      [ ];

  # The right side wins; sets on both sides are merged.
  recursiveUpdate =
    a: b:
    a
    // mapAttrs (
      name: value:
      if isAttrs value && isAttrs (a.${name} or null) then
        recursiveUpdate a.${name} value
      else
        value
    ) b;

  cartesianProduct =
    sets:
    builtins.foldl' (
      products: name:
      builtins.concatMap (set: map (value: set // { ${name} = value; }) sets.${name}) products
    ) [ { } ] (attrNames sets);

  isDerivation = value: value.type or null == "derivation";
  toDerivation =
    path:
    let
      path' = builtins.storePath path;
    in
    {
      type = "derivation";
      name = lib.strings.sanitizeDerivationName (builtins.baseNameOf path');
      outPath = path';
      outputs = [ "out" ];
      outputName = "out";
    };
  getOutput =
    output: pkg: if pkg.outputSpecified or false then pkg else pkg.${output} or pkg.out or pkg;
  getBin = getOutput "bin";
  getLib = getOutput "lib";
  getDev = getOutput "dev";
  getMan = getOutput "man";
  recurseIntoAttrs = set: set // { recurseForDerivations = true; };
}
