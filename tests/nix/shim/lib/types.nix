# Option types: what a value must be (`check`), how several definitions become one (`merge`), how
# two declarations become one (`typeMerge`).
lib:
let
  inherit (lib)
    concatMap
    getValues
    mergeEqualOption
    mergeOneOption
    showOption
    ;
  inherit (lib.options) showDefs;

  container = import ./containers.nix lib;

  mkOptionType =
    {
      name,
      description ? name,
      descriptionClass ? null,
      check ? (_: true),
      merge ? lib.options.mergeDefaultOption or defaultMerge,
      emptyValue ? { },
      getSubOptions ? (_: { }),
      getSubModules ? null,
      substSubModules ? (_: null),
      nestedTypes ? { },
      deprecationMessage ? null,
      functor ? defaultFunctor name,
      typeMerge ? defaultTypeMerge functor,
    }:
    {
      _type = "option-type";
      inherit
        name
        description
        descriptionClass
        check
        merge
        emptyValue
        getSubOptions
        getSubModules
        substSubModules
        nestedTypes
        deprecationMessage
        functor
        typeMerge
        ;
    };

  defaultFunctor = name: {
    inherit name;
    type = types.${name} or null;
    wrapped = null;
    payload = null;
    binOp = _: _: null;
  };

  # Equal names; what they are made of is merged, too.
  defaultTypeMerge =
    f: f':
    let
      payload = f.binOp f.payload f'.payload;
    in
    if f.name != f'.name then
      null
    else if f.payload == null && f'.payload == null then
      f.type
    else if payload == null then
      null
    else
      f.type payload;

  # What an option without a type, or with `unspecified`, does.
  defaultMerge =
    loc: defs:
    let
      values = getValues defs;
      all = pred: builtins.all pred values;
    in
    if lib.length values == 1 then
      builtins.head values
    else if all lib.isFunction then
      x: defaultMerge loc (map (def: def // { value = def.value x; }) defs)
    else if all builtins.isList then
      lib.concatLists values
    else if all builtins.isAttrs then
      builtins.foldl' lib.mergeAttrs { } values
    else if all builtins.isBool then
      builtins.foldl' lib.or false values
    else if all builtins.isString then
      lib.concatStrings values
    else if all builtins.isInt && all (x: x == builtins.head values) then
      builtins.head values
    else
      throw "Cannot merge definitions of `${showOption loc}'. Definition values:${showDefs defs}";

  phrase = classes: types.optionDescriptionPhrase (class: builtins.elem class classes);

  scalar =
    name: description: check:
    mkOptionType {
      inherit name description check;
      descriptionClass = "noun";
      merge = mergeEqualOption;
    };

  separated =
    name: description: separator:
    mkOptionType {
      inherit name description;
      descriptionClass = "noun";
      check = builtins.isString;
      merge = _: defs: lib.concatStringsSep separator (getValues defs);
      functor = defaultFunctor name // {
        payload = { sep = separator; };
        type = payload: types.separatedString payload.sep;
        binOp = a: b: if a.sep == b.sep then a else null;
      };
    };

  types = {
    inherit mkOptionType defaultFunctor defaultTypeMerge;
    isType = type: value: value._type or "" == type;
    isOptionType = types.isType "option-type";
    setType = type: value: value // { _type = type; };

    raw = mkOptionType {
      name = "raw";
      description = "raw value";
      descriptionClass = "noun";
      merge = mergeOneOption;
    };
    unspecified = mkOptionType {
      name = "unspecified";
      description = "unspecified value";
      descriptionClass = "noun";
    };
    optionType = mkOptionType {
      name = "optionType";
      description = "optionType";
      descriptionClass = "noun";
      check = types.isOptionType;
      merge =
        loc: defs:
        if lib.length defs == 1 then
          (builtins.head defs).value
        else
          builtins.foldl' (
            a: b:
            let
              both = a.typeMerge b.value.functor;
            in
            if both == null then throw "Cannot merge definitions of `${showOption loc}'." else both
          ) (builtins.head defs).value (builtins.tail defs);
    };
    anything = container.anything;

    bool = scalar "bool" "boolean" builtins.isBool;
    int = scalar "int" "signed integer" builtins.isInt;
    float = scalar "float" "floating point number" builtins.isFloat;
    number = types.either types.int types.float;
    str = scalar "str" "string" builtins.isString;
    nonEmptyStr = scalar "nonEmptyStr" "non-empty string" (
      x: builtins.isString x && builtins.match "[ \t\n]*" x == null
    );
    singleLineStr =
      let
        inner = types.addCheck types.str (x: builtins.match "[^\n\r]*\n?" x != null);
      in
      inner
      // {
        name = "singleLineStr";
        description = "(optionally newline-terminated) single-line string";
        descriptionClass = "noun";
        merge = loc: defs: lib.removeSuffix "\n" (mergeEqualOption loc defs);
        functor = defaultFunctor "singleLineStr";
        typeMerge = defaultTypeMerge (defaultFunctor "singleLineStr");
      };
    passwdEntry =
      inner:
      types.addCheck inner (x: builtins.match "[^:\n]*" "${x}" != null)
      // {
        name = "passwdEntry ${inner.name}";
        description = "${phrase [ "noun" "conjunction" ] inner}, not containing newlines or colons";
        descriptionClass = "nonRestrictiveClause";
      };
    strMatching =
      pattern:
      mkOptionType {
        name = "strMatching ${lib.strings.escapeNixString pattern}";
        description = "string matching the pattern ${pattern}";
        descriptionClass = "noun";
        check = x: builtins.isString x && builtins.match pattern x != null;
        merge = mergeEqualOption;
        functor = defaultFunctor "strMatching" // {
          payload = { inherit pattern; };
          type = payload: types.strMatching payload.pattern;
          binOp = a: b: if a == b then a else null;
        };
      };
    separatedString = separated "separatedString" "string";
    lines = separated "separatedString" "strings concatenated with \"\\n\"" "\n";
    commas = separated "separatedString" "strings concatenated with \",\"" ",";
    envVar = separated "separatedString" "strings concatenated with \":\"" ":";

    attrs = mkOptionType {
      name = "attrs";
      description = "attribute set";
      check = builtins.isAttrs;
      merge = _: builtins.foldl' (all: def: all // def.value) { };
      emptyValue.value = { };
    };
    path = scalar "path" "absolute path" (
      x: lib.strings.isStringLike x && builtins.substring 0 1 (toString x) == "/"
    );
    pathInStore = scalar "pathInStore" "path in the Nix store" (
      x:
      lib.strings.isStringLike x
      && builtins.match "${lib.escapeRegex builtins.storeDir}/[^.].*" (toString x) != null
    );
    package = mkOptionType {
      name = "package";
      descriptionClass = "noun";
      check = x: lib.isDerivation x || lib.strings.isStorePath x;
      merge =
        loc: defs:
        let
          value = mergeOneOption loc defs;
        in
        if builtins.isPath value || (builtins.isString value && !builtins.hasContext value) then
          lib.toDerivation value
        else
          value;
    };
    pkgs = mkOptionType {
      name = "pkgs";
      description = "Nixpkgs package set";
      descriptionClass = "noun";
      check = x: x._type or "" == "pkgs";
      merge = mergeOneOption;
    };

    ints =
      let
        between =
          lowest: highest:
          let
            bounds = "${toString lowest} and ${toString highest}";
          in
          assert lib.assertMsg (lowest <= highest) (
            "ints.between: lowest must be smaller than highest"
          );
          named "intBetween" "integer between ${bounds} (both inclusive)" (
            x: x >= lowest && x <= highest
          );
        named =
          name: description: check:
          types.addCheck types.int check
          // {
            inherit name description;
            functor = defaultFunctor name;
            typeMerge = _: null;
          };
        meaning = type: type // { descriptionClass = "nonRestrictiveClause"; };
        sized =
          name: bits: highest:
          named name (
            "${toString bits} bit unsigned integer; between 0 and ${toString highest}"
            + " (both inclusive)"
          ) (x: x >= 0 && x <= highest);
      in
      {
        inherit between;
        unsigned = meaning (named "unsignedInt" "unsigned integer, meaning >=0" (x: x >= 0));
        positive = meaning (named "positiveInt" "positive integer, meaning >0" (x: x > 0));
        u8 = sized "unsignedInt8" 8 255;
        u16 = sized "unsignedInt16" 16 65535;
        u32 = sized "unsignedInt32" 32 4294967295;
      };
    port = types.ints.u16;

    enum =
      values:
      let
        show =
          v: if builtins.isString v then "\"${v}\"" else lib.generators.mkValueStringDefault { } v;
      in
      mkOptionType {
        name = "enum";
        description =
          if values == [ ] then
            "impossible (empty enum)"
          else if lib.length values == 1 then
            "value ${show (builtins.head values)} (singular enum)"
          else
            "one of ${lib.concatMapStringsSep ", " show values}";
        descriptionClass = if lib.length values < 2 then "noun" else "conjunction";
        check = x: builtins.elem x values;
        merge = mergeEqualOption;
        functor = defaultFunctor "enum" // {
          payload = { inherit values; };
          type = payload: types.enum payload.values;
          binOp = a: b: { values = lib.unique (a.values ++ b.values); };
        };
      };

    addCheck = type: check: type // { check = x: type.check x && check x; };

    inherit (container)
      attrsOf
      lazyAttrsOf
      attrsWith
      listOf
      nonEmptyListOf
      nullOr
      either
      oneOf
      coercedTo
      functionTo
      uniq
      unique
      submodule
      submoduleWith
      deferredModule
      ;
    # Several words are put in parentheses where they would be misread.
    optionDescriptionPhrase =
      allowed: type:
      if allowed type.descriptionClass then type.description else "(${type.description})";
  };
in
types
