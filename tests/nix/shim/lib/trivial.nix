lib: rec {
  inherit (builtins)
    add
    bitAnd
    bitOr
    bitXor
    lessThan
    seq
    deepSeq
    sub
    ;

  id = x: x;
  const = x: _: x;
  flip =
    f: a: b:
    f b a;
  pipe = builtins.foldl' (value: f: f value);
  concat = x: y: x ++ y;
  or = x: y: x || y;
  and = x: y: x && y;
  mergeAttrs = x: y: x // y;
  min = x: y: if x < y then x else y;
  max = x: y: if x > y then x else y;
  mod = base: int: base - int * (base / int);
  compare =
    a: b:
    if a < b then
      -1
    else if a > b then
      1
    else
      0;
  mapNullable = f: value: if value == null then null else f value;
  defaultTo = fallback: value: if value == null then fallback else value;

  release = "26.05";
  version = "${release}pre-shim";

  boolToString = value: if value then "true" else "false";
  importJSON = path: builtins.fromJSON (builtins.readFile path);
  importTOML = path: builtins.fromTOML (builtins.readFile path);

  # A function may also be a set with `__functor`, whose arguments `__functionArgs` names.
  functionArgs =
    f:
    if f ? __functor then
      f.__functionArgs or (functionArgs (f.__functor f))
    else
      builtins.functionArgs f;
  isFunction = f: builtins.isFunction f || (f ? __functor && isFunction (f.__functor f));
  setFunctionArgs = f: args: {
    __functor = _: f;
    __functionArgs = args;
  };
  toFunction = v: if isFunction v then v else _: v;

  warn = message: value: builtins.trace "evaluation warning: ${message}" value;
  warnIf = condition: message: if condition then warn message else id;
  warnIfNot = condition: warnIf (!condition);
  throwIf = condition: message: if condition then throw message else id;
  throwIfNot = condition: throwIf (!condition);
}
