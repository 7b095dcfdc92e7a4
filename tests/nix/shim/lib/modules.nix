# The module system: modules -> options and config. In three steps: collect what the modules
# import, merge the tree of options, give every option its definitions.
lib:
let
  inherit (lib)
    concatMap
    isOption
    mkOption
    optionalAttrs
    showOption
    types
    ;

  inherit (lib.options) showDefs;

  properties = import ./properties.nix lib;
  collect = import ./collect.nix lib;
  inherit (properties) pushDown discharge;

  # ---- options ------------------------------------------------------------------------------

  joined =
    loc: decls:
    let
      once = name: builtins.any (d: d.option ? ${name}) (builtins.tail decls);
      first = (builtins.head decls).option;
      again = throw (
        "The option `${showOption loc}' in ${lib.showFiles [ (lib.last decls).file ]}"
        + " is already declared in ${lib.showFiles [ (builtins.head decls).file ]}."
      );
      declared = builtins.filter (d: d.option ? type) decls;
      typed = map (d: d.option.type) declared;
      merged = builtins.foldl' (
        a: b:
        let
          both = a.typeMerge b.functor;
        in
        if both == null then
          again
        else
          both
      ) (builtins.head typed) (builtins.tail typed);
      clash = lib.findFirst (name: first ? ${name} && once name) null [
        "default"
        "example"
        "description"
        "apply"
      ];
    in
    if lib.length decls > 1 && clash != null then
      again
    else
      builtins.foldl' (all: d: all // d.option) { } decls
      // {
        type = if typed == [ ] then types.unspecified else merged;
        declarations = map (d: d.file) decls;
        inherit loc;
        options = decls;
      };

  # An option whose name is also that of a set of options.
  nested =
    loc: leaf: rest:
    let
      type = (builtins.head leaf).option.type or types.unspecified;
      name = builtins.head (builtins.attrNames (builtins.head rest).option);
    in
    throw (
      "The option `${showOption loc}' in module ${lib.showFiles (map (d: d.file) leaf)} would be a"
      + " parent of the following options, but its type `${type.description}' does not support"
      + " nested options.\n- option(s) with prefix `${showOption (loc ++ [ name ])}' in module "
      + lib.showFiles (map (d: d.file) rest)
    );

  evaluated =
    loc: option: defs:
    let
      withDefault =
        lib.optional (option ? default) {
          file = builtins.head option.declarations;
          value = lib.mkOptionDefault option.default;
        }
        ++ defs;
      merged = mergeDefinitions loc option.type withDefault;
      tooMany =
        option.readOnly or false
        && lib.length (lib.filter (d: discharge d.value != [ ]) withDefault) > 1;
      value =
        if tooMany then
          throw (
            "The option `${showOption loc}' is read-only, but it's set multiple times."
            + " Definition values:"
            + showDefs (map (d: d // { value = builtins.head (discharge d.value); }) withDefault)
          )
        else
          merged.mergedValue;
    in
    option
    // {
      value = if option ? apply then option.apply value else value;
      inherit (merged) isDefined;
      highestPrio = merged.defsFinal'.highestPrio;
      definitions = map (d: d.value) merged.defsFinal;
      definitionsWithLocations = merged.defsFinal;
      files = map (d: d.file) merged.defsFinal;
      __toString = _: showOption loc;
    };

  # ---- the tree -----------------------------------------------------------------------------

  # decls: [ { file; options; } ], configs: [ { file; config; } ] -> { options; config; unmatched; }
  mergeTree =
    prefix: decls: configs:
    let
      flat = concatMap (
        c:
        map (config: {
          inherit (c) file;
          inherit config;
        }) (pushDown c.config)
      ) configs;
      sets = builtins.filter (c: builtins.isAttrs c.config) flat;
      notASet = lib.findFirst (c: !builtins.isAttrs c.config) null flat;
      defsOf =
        name:
        concatMap (
          c:
          lib.optional (c.config ? ${name}) {
            inherit (c) file;
            value = c.config.${name};
          }
        ) sets;
      declsOf =
        name:
        concatMap (
          d:
          lib.optional (d.options ? ${name}) {
            inherit (d) file;
            option = d.options.${name};
          }
        ) decls;
      names = builtins.attrNames (builtins.foldl' (all: d: all // d.options) { } decls);
      node =
        name:
        let
          loc = prefix ++ [ name ];
          own = declsOf name;
          leaf = builtins.filter (d: isOption d.option) own;
          rest = builtins.filter (d: !isOption d.option) own;
          inner = mergeTree loc (map (d: {
            inherit (d) file;
            options = d.option;
          }) own) (map (d: {
            inherit (d) file;
            config = d.value;
          }) (defsOf name));
          option = evaluated loc (joined loc own) (defsOf name);
        in
        if rest == [ ] then
          {
            options = option;
            config = option.value;
            unmatched = [ ];
          }
        else if leaf != [ ] then
          nested loc leaf rest
        else
          inner;
      nodes = lib.genAttrs names node;
      stray = concatMap (
        c:
        map (name: {
          inherit (c) file;
          inherit prefix;
          loc = prefix ++ [ name ];
          value = c.config.${name};
        }) (builtins.filter (name: !nodes ? ${name}) (builtins.attrNames c.config))
      ) sets;
    in
    {
      options = builtins.mapAttrs (_: n: n.options) nodes;
      config =
        if notASet == null then
          builtins.mapAttrs (_: n: n.config) nodes
        else
          throw (
            "You're trying to define a value of type `${builtins.typeOf notASet.config}' rather"
            + " than an attribute set for the option `${showOption prefix}', in `${notASet.file}'"
          );
      unmatched = stray ++ concatMap (name: nodes.${name}.unmatched) names;
    };

  mergeDefinitions =
    loc: type: defs:
    let
      discharged = concatMap (
        d:
        map (value: {
          inherit (d) file;
          inherit value;
        }) (discharge d.value)
      ) defs;
      kept = properties.filterOverrides' discharged;
      sorted = properties.sortProperties kept.values;
      wrong = builtins.filter (d: !type.check d.value) sorted;
      isDefined = sorted != [ ];
    in
    rec {
      defsFinal = sorted;
      defsFinal' = {
        values = sorted;
        inherit (kept) highestPrio;
      };
      inherit isDefined;
      mergedValue =
        if isDefined then
          if wrong == [ ] then
            type.merge loc sorted
          else
            throw (
              "A definition for option `${showOption loc}' is not of type `${type.description}'."
              + " Definition values:${showDefs wrong}"
            )
        else
          type.emptyValue.value or (throw (
            "The option `${showOption loc}' was accessed but has no value defined."
            + " Try setting the option."
          ));
      optionalValue = if isDefined then { value = mergedValue; } else { };
    };

  # ---- evaluation ---------------------------------------------------------------------------

  internal = {
    _file = "lib/modules.nix";
    key = "lib/modules.nix";
    options._module = {
      args = mkOption {
        type = types.lazyAttrsOf types.raw;
        internal = true;
        description = "Arguments that are passed to each module.";
      };
      check = mkOption {
        type = types.bool;
        internal = true;
        default = true;
        description = "Whether every definition must belong to an option.";
      };
      freeformType = mkOption {
        type = types.nullOr types.optionType;
        internal = true;
        default = null;
        description = "The type of definitions that belong to no option.";
      };
    };
  };

  asTree =
    prefix: unmatched:
    map (u: {
      inherit (u) file;
      value = lib.setAttrByPath (lib.drop (lib.length prefix) u.loc) u.value;
    }) unmatched;

  unknown =
    prefix: u:
    throw "The option `${showOption u.loc}' does not exist. Definition values:${showDefs [ u ]}${
      lib.optionalString (prefix == [ ] && u.loc == [ "_module" ]) "?"
    }";

  evalModules =
    {
      modules,
      prefix ? [ ],
      specialArgs ? { },
      class ? null,
    }@given:
    let
      fixed = {
        inherit lib options config;
        inherit (whole) extendModules;
        _class = class;
        _prefix = prefix;
        moduleType = whole.type;
      }
      // specialArgs;
      # What is imported comes before what imports it, so lists are merged in that order.
      all = lib.reverseList (collect {
        modules = [ internal ] ++ modules;
        args = fixed;
        inherit config;
      });
      tree = mergeTree prefix (map (m: { inherit (m) file options; }) all) (
        map (m: { inherit (m) file config; }) all
      );
      freeform = tree.config._module.freeformType;
      free = mergeDefinitions prefix freeform (asTree prefix tree.unmatched);
      merged =
        if freeform == null then
          tree.config
        else
          lib.recursiveUpdate (if tree.unmatched == [ ] then { } else free.mergedValue) tree.config;
      mustMatch = tree.config._module.check && freeform == null && tree.unmatched != [ ];
      checked = if mustMatch then unknown prefix (builtins.head tree.unmatched) else null;
      config = removeAttrs merged [ "_module" ] // {
        inherit (tree.config) _module;
      };
      options = tree.options;
      whole = {
        _type = "configuration";
        inherit class options;
        config = builtins.seq checked (removeAttrs config [ "_module" ]);
        _module = builtins.seq checked config._module;
        graph = map (m: m.file) all;
        type = types.submoduleWith { inherit modules specialArgs class; };
        extendModules =
          more:
          evalModules (
            given
            // {
              modules = modules ++ more.modules or [ ];
              specialArgs = specialArgs // more.specialArgs or { };
              prefix = more.prefix or prefix;
            }
          );
      };
    in
    whole;

in
{
  inherit evalModules mergeDefinitions;
  inherit (properties)
    mkIf
    mkMerge
    mkOverride
    mkOptionDefault
    mkDefault
    mkForce
    mkImageMediaOverride
    mkVMOverride
    mkOrder
    mkBefore
    mkAfter
    mkAssert
    mkDefinition
    defaultOverridePriority
    defaultOrderPriority
    filterOverrides
    filterOverrides'
    sortProperties
    ;
  pushDownProperties = pushDown;
  dischargeProperties = discharge;

  setDefaultModuleLocation = file: module: {
    _file = file;
    imports = [ module ];
  };
  importApply = path: args: {
    _file = path;
    imports = [ (import path args) ];
  };

  mkRemovedOptionModule =
    path: replacement:
    { options, ... }:
    {
      options = lib.setAttrByPath path (mkOption {
        visible = false;
        apply =
          _:
          throw (
            "The option `${showOption path}' can no longer be used since it's been removed."
            + " ${replacement}"
          );
      });
      config.assertions = [
        (
          let
            option = lib.getAttrFromPath path options;
          in
          {
            assertion = !option.isDefined;
            message =
              "The option definition `${showOption path}' in ${lib.showFiles option.files}"
              + " no longer has any effect; please remove it.\n${replacement}\n";
          }
        )
      ];
    };

  mkRenamedOptionModule =
    from: to:
    { config, options, ... }:
    let
      option = lib.getAttrFromPath from options;
    in
    {
      options = lib.setAttrByPath from (mkOption {
        visible = false;
        description = "Alias of `${showOption to}`.";
        apply = _: lib.getAttrFromPath to config;
      });
      config = properties.mkMerge [
        (optionalAttrs (options ? warnings) {
          warnings = lib.optional option.isDefined (
            "The option `${showOption from}' defined in ${lib.showFiles option.files}"
            + " has been renamed to `${showOption to}'."
          );
        })
        (lib.setAttrByPath to (
          properties.mkIf option.isDefined (
            properties.mkMerge (map (properties.mkOverride option.highestPrio) option.definitions)
          )
        ))
      ];
    };
}
