# Types that are made of other types.
lib:
let
  inherit (lib)
    concatMap
    filterAttrs
    mergeDefinitions
    mergeOneOption
    showOption
    types
    ;
  inherit (lib.options) showDefs;
  inherit (types) defaultFunctor mkOptionType;
  inherit (lib.modules) evalModules pushDownProperties;

  phrase = classes: types.optionDescriptionPhrase (class: builtins.elem class classes);

  # Two declarations with an element type each: the elements' types are merged.
  elements = name: make: extra: elem: {
    functor = defaultFunctor name // {
      payload = extra // { inherit elem; };
      type = payload: make payload;
      binOp =
        a: b:
        let
          both = a.elem.typeMerge b.elem.functor;
        in
        if removeAttrs a [ "elem" ] != removeAttrs b [ "elem" ] || both == null then
          null
        else
          a // { elem = both; };
    };
    getSubModules = elem.getSubModules;
    nestedTypes.elemType = elem;
  };

  pushed = concatMap (
    def: map (value: def // { inherit value; }) (pushDownProperties def.value)
  );

  byName =
    merge: loc: defs:
    builtins.zipAttrsWith (name: merge (loc ++ [ name ])) (
      map (
        def:
        builtins.mapAttrs (_: value: {
          inherit (def) file;
          inherit value;
        }) def.value
      ) (pushed defs)
    );
in
rec {
  attrsOf = elemType: attrsWith { inherit elemType; };
  lazyAttrsOf =
    elemType:
    attrsWith {
      inherit elemType;
      lazy = true;
    };

  # Names of undefined values (`x = mkIf false …`) are dropped, unless it is lazy.
  attrsWith =
    {
      elemType,
      lazy ? false,
      placeholder ? "name",
    }:
    mkOptionType (
      {
        name = if lazy then "lazyAttrsOf" else "attrsOf";
        description =
          lib.optionalString lazy "lazy "
          + "attribute set of ${phrase [ "noun" "composite" ] elemType}";
        descriptionClass = "composite";
        check = builtins.isAttrs;
        merge =
          loc: defs:
          if lazy then
            byName (
              at: ds:
              let
                merged = mergeDefinitions at elemType ds;
              in
              merged.optionalValue.value or elemType.emptyValue.value or merged.mergedValue
            ) loc defs
          else
            builtins.mapAttrs (_: m: m.value) (
              filterAttrs (_: m: m ? value) (
                byName (at: ds: (mergeDefinitions at elemType ds).optionalValue) loc defs
              )
            );
        emptyValue.value = { };
        getSubOptions = prefix: elemType.getSubOptions (prefix ++ [ "<${placeholder}>" ]);
        substSubModules =
          m:
          attrsWith {
            elemType = elemType.substSubModules m;
            inherit lazy placeholder;
          };
      }
      // elements "attrsOf" (
        payload:
        attrsWith {
          elemType = payload.elem;
          inherit (payload) lazy placeholder;
        }
      ) { inherit lazy placeholder; } elemType
    );

  listOf =
    elemType:
    mkOptionType (
      {
        name = "listOf";
        description = "list of ${phrase [ "noun" "composite" ] elemType}";
        descriptionClass = "composite";
        check = builtins.isList;
        merge =
          loc: defs:
          map (m: m.value) (
            builtins.filter (m: m ? value) (
              lib.concatLists (
                lib.imap1 (
                  n: def:
                  lib.imap1 (
                    m: value:
                    let
                      at = loc ++ [ "[definition ${toString n}-entry ${toString m}]" ];
                    in
                    (mergeDefinitions at elemType [
                      {
                        inherit (def) file;
                        inherit value;
                      }
                    ]).optionalValue
                  ) def.value
                ) defs
              )
            )
          );
        emptyValue.value = [ ];
        getSubOptions = prefix: elemType.getSubOptions (prefix ++ [ "*" ]);
        substSubModules = m: listOf (elemType.substSubModules m);
      }
      // elements "listOf" (payload: listOf payload.elem) { } elemType
    );
  nonEmptyListOf =
    elemType:
    let
      list = types.addCheck (listOf elemType) (l: l != [ ]);
    in
    list
    // {
      description = "non-empty ${phrase [ "noun" ] list}";
      emptyValue = { };
      substSubModules = m: nonEmptyListOf (elemType.substSubModules m);
    };

  nullOr =
    elemType:
    mkOptionType (
      {
        name = "nullOr";
        description = "null or ${phrase [ "noun" "conjunction" ] elemType}";
        descriptionClass = "conjunction";
        check = x: x == null || elemType.check x;
        merge =
          loc: defs:
          let
            nulls = lib.count (def: def.value == null) defs;
          in
          if nulls == lib.length defs then
            null
          else if nulls != 0 then
            throw (
              "The option `${showOption loc}` is defined both null and not null, in "
              + "${lib.showFiles (lib.getFiles defs)}."
            )
          else
            elemType.merge loc defs;
        emptyValue.value = null;
        getSubOptions = elemType.getSubOptions;
        substSubModules = m: nullOr (elemType.substSubModules m);
      }
      // elements "nullOr" (payload: nullOr payload.elem) { } elemType
    );

  either =
    a: b:
    mkOptionType {
      name = "either";
      description = "${
        if a.descriptionClass == "nonRestrictiveClause" then
          "${a.description},"
        else
          phrase [ "noun" "conjunction" ] a
      } or ${phrase [ "noun" "conjunction" "composite" ] b}";
      descriptionClass = "conjunction";
      check = x: a.check x || b.check x;
      merge =
        loc: defs:
        let
          values = lib.getValues defs;
        in
        if builtins.all a.check values then
          a.merge loc defs
        else if builtins.all b.check values then
          b.merge loc defs
        else
          lib.mergeOneOption loc defs;
      nestedTypes = {
        left = a;
        right = b;
      };
      functor = defaultFunctor "either" // {
        payload = { inherit a b; };
        type = payload: either payload.a payload.b;
        binOp =
          x: y:
          let
            left = x.a.typeMerge y.a.functor;
            right = x.b.typeMerge y.b.functor;
          in
          if left == null || right == null then
            null
          else
            {
              a = left;
              b = right;
            };
      };
    };
  oneOf = ts: builtins.foldl' either (builtins.head ts) (builtins.tail ts);

  coercedTo =
    from: f: to:
    mkOptionType {
      name = "coercedTo";
      description = "${phrase [ "noun" ] to} or ${phrase [ "noun" ] from} convertible to it";
      check = x: (from.check x && to.check (f x)) || to.check x;
      merge =
        loc: defs:
        to.merge loc (
          map (
            def: def // { value = if from.check def.value then f def.value else def.value; }
          ) defs
        );
      inherit (to) emptyValue getSubOptions getSubModules;
      substSubModules = m: coercedTo from f (to.substSubModules m);
      typeMerge = _: null;
      nestedTypes = {
        coercedType = from;
        finalType = to;
      };
    };

  functionTo =
    elemType:
    mkOptionType (
      {
        name = "functionTo";
        description = "function that evaluates to a(n) ${phrase [ "noun" "composite" ] elemType}";
        descriptionClass = "composite";
        check = lib.isFunction;
        merge = loc: defs: args: (mergeDefinitions (loc ++ [ "<function body>" ]) elemType (
          map (def: def // { value = def.value args; }) defs
        )).mergedValue;
        getSubOptions = prefix: elemType.getSubOptions (prefix ++ [ "<function body>" ]);
      }
      // elements "functionTo" (payload: functionTo payload.elem) { } elemType
    );

  uniq = unique { message = ""; };
  unique =
    { message }:
    type:
    mkOptionType (
      {
        name = "unique";
        inherit (type)
          description
          descriptionClass
          check
          getSubOptions
          ;
        merge = lib.options.mergeUniqueOption {
          inherit message;
          inherit (type) merge;
        };
        substSubModules = m: uniq (type.substSubModules m);
      }
      // elements "unique" (payload: unique { inherit message; } payload.elem) { } type
    );

  submodule =
    modules:
    submoduleWith {
      shorthandOnlyDefinesConfig = true;
      modules = lib.toList modules;
    };

  submoduleWith =
    {
      modules,
      specialArgs ? { },
      shorthandOnlyDefinesConfig ? false,
      description ? null,
      class ? null,
    }@attrs:
    let
      asModule =
        def:
        if builtins.isAttrs def.value && !def.value ? outPath && shorthandOnlyDefinesConfig then
          {
            _file = def.file;
            config = def.value;
          }
        else
          {
            _file = def.file;
            imports = [ def.value ];
          };
      evaluated =
        prefix: name: defs:
        evalModules {
          inherit prefix specialArgs class;
          modules = [
            { _module.args.name = lib.mkOptionDefault name; }
          ]
          ++ modules
          ++ map asModule defs;
        };
      freeform = (evaluated [ ] "‹name›" [ ])._module.freeformType;
    in
    mkOptionType {
      name = "submodule";
      description =
        if description != null then
          description
        else if freeform != null then
          "open submodule of ${phrase [ "noun" "composite" ] freeform}"
        else
          "submodule";
      descriptionClass = null;
      check = x: builtins.isAttrs x || lib.isFunction x || types.path.check x;
      merge = loc: defs: (evaluated loc (lib.last loc) defs).config;
      emptyValue.value = { };
      getSubOptions =
        prefix:
        let
          inner = evaluated prefix "‹name›" [ ];
        in
        removeAttrs inner.options [ "_module" ]
        // lib.optionalAttrs (freeform != null) {
          _freeformOptions = freeform.getSubOptions prefix;
        };
      getSubModules = modules;
      substSubModules = m: submoduleWith (attrs // { modules = m; });
      nestedTypes = lib.optionalAttrs (freeform != null) { freeformType = freeform; };
      functor = defaultFunctor "submodule" // {
        payload = {
          inherit
            modules
            specialArgs
            shorthandOnlyDefinesConfig
            description
            class
            ;
        };
        type = submoduleWith;
        binOp = a: b: {
          modules = a.modules ++ b.modules;
          specialArgs = a.specialArgs // b.specialArgs;
          shorthandOnlyDefinesConfig = a.shorthandOnlyDefinesConfig || b.shorthandOnlyDefinesConfig;
          description = if a.description != null then a.description else b.description;
          class = if a.class != null then a.class else b.class;
        };
      };
    };

  deferredModule = mkOptionType {
    name = "deferredModule";
    description = "module";
    descriptionClass = "noun";
    check = x: builtins.isAttrs x || lib.isFunction x || types.path.check x;
    merge = loc: defs: {
      imports = map (
        def: lib.setDefaultModuleLocation "${def.file}, via option ${showOption loc}" def.value
      ) defs;
    };
    emptyValue.value.imports = [ ];
  };

  # Sets are merged name by name, lists and functions like everywhere, the rest must be equal.
  anything = mkOptionType {
    name = "anything";
    description = "anything";
    descriptionClass = "noun";
    merge =
      loc: defs:
      let
        kind =
          def:
          if lib.strings.isStringLike def.value && builtins.isAttrs def.value then
            "stringCoercibleSet"
          else
            builtins.typeOf def.value;
        kinds = lib.unique (map kind defs);
        only = builtins.head kinds;
      in
      if lib.length kinds > 1 then
        throw (
          "The option `${showOption loc}' has conflicting option types in "
          + lib.showFiles (lib.getFiles defs)
        )
      else if only == "set" then
        (lazyAttrsOf anything).merge loc defs
      else if only == "list" then
        if lib.length defs > 1 then mergeOneOption loc defs else (listOf anything).merge loc defs
      else if only == "lambda" then
        x:
        anything.merge (loc ++ [ "<function body>" ]) (
          map (def: def // { value = def.value x; }) defs
        )
      else if only == "stringCoercibleSet" then
        mergeOneOption loc defs
      else
        lib.mergeEqualOption loc defs;
  };
}
