# Modules with all that they import, each once: [ { file; options; config; } ].
lib:
let
  structure = [
    "_class"
    "_file"
    "config"
    "disabledModules"
    "freeformType"
    "imports"
    "key"
    "meta"
    "options"
    "require"
  ];

  # A module as a set. Arguments that are not known at once come from `_module.args`.
  called =
    file: { args, config }: module:
    if lib.isFunction module then
      module (
        args
        // builtins.mapAttrs (
          name: _:
          args.${name} or (builtins.addErrorContext
            "while evaluating the module argument `${name}' in \"${file}\":"
            config._module.args.${name}
          )
        ) (lib.functionArgs module)
      )
    else
      module;

  structured =
    file: key: module:
    let
      own = toString module._file or file;
      explicit = module ? config || module ? options;
      extra = removeAttrs module structure;
      names = builtins.attrNames extra;
      # What stands beside `config` and is a definition all the same.
      beside =
        lib.optionalAttrs (module ? freeformType) { _module = { inherit (module) freeformType; }; }
        // lib.optionalAttrs (module ? meta) { inherit (module) meta; };
      withBeside =
        own:
        if beside == { } then
          own
        else
          lib.modules.mkMerge [
            own
            beside
          ];
    in
    {
      file = own;
      key = toString module.key or key;
      imports = module.imports or [ ] ++ module.require or [ ];
      options = module.options or { };
      config =
        if !explicit then
          withBeside extra
        else if extra != { } then
          throw (
            "Module `${key}' has an unsupported attribute `${builtins.head names}'. This is caused"
            + " by introducing a top-level `config' or `options' attribute. Add configuration"
            + " attributes immediately on the top level instead, or move all of them (namely:"
            + " ${toString names}) into the explicit `config' attribute."
          )
        else
          withBeside (module.config or { });
    };

  # One entry of `imports`.
  loaded =
    parent: at: context: entry:
    let
      fromFile = builtins.isPath entry || builtins.isString entry || entry ? outPath;
      file = if fromFile then toString entry else parent;
      key = if fromFile then file else "${parent}:anon-${at}";
      value = called file context (if fromFile then import entry else entry);
    in
    if builtins.isList value then
      throw (
        "Module imports can't be nested lists. Perhaps you meant to remove one level of lists?"
        + " Definitions: ${file}"
      )
    else if !builtins.isAttrs value then
      throw "Expected a module, but found a value of type ${builtins.typeOf value} in ${file}"
    else if value ? _type then
      if value._type == "if" || value._type == "override" then
        structured file key { config = value; }
      else
        throw (
          "Expected a module, but found a value of type \"${value._type}\"."
          + " A module is typically loaded by adding it to imports, in file ${file}."
        )
    else
      structured file key value;
in
{
  modules,
  args,
  config,
}:
let
  context = { inherit args config; };
  children =
    parent: at: entries:
    lib.imap1 (
      n: entry:
      let
        module = loaded parent "${at}-${toString n}" context entry;
      in
      {
        inherit (module) key;
        inherit module;
        at = "${at}-${toString n}";
      }
    ) entries;
  closure = builtins.genericClosure {
    startSet = children "<unknown-file>" "" modules;
    operator = item: children item.module.file item.at item.module.imports;
  };
in
map (item: item.module) closure
