lib: rec {
  makeOverridable =
    f: args:
    let
      result = f args;
      override = new: makeOverridable f (args // lib.toFunction new args);
    in
    if builtins.isAttrs result then result // { inherit override; } else result;

  callPackageWith =
    auto: fn: args:
    let
      f = if lib.isFunction fn then fn else import fn;
      wanted = lib.functionArgs f;
      given = builtins.intersectAttrs wanted auto // args;
      missing = builtins.filter (name: !wanted.${name} && !given ? ${name}) (
        builtins.attrNames wanted
      );
    in
    if missing != [ ] then
      throw (
        "lib.customisation.callPackageWith: Function called without required argument "
        + "\"${builtins.head missing}\""
      )
    else
      makeOverridable f given;
}
