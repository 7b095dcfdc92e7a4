lib:
let
  inherit (lib) types;
  quoted = part: if special part then part else lib.strings.escapeNixIdentifier part;
  advice =
    "Use `lib.mkForce value` or `lib.mkDefault value` to change the priority on any of these"
    + " definitions.";
  special =
    part:
    builtins.elem part [
      "<name>"
      "*"
      "<function body>"
    ]
    || builtins.match "\\[definition .*]" part != null;
  brief =
    text:
    let
      lines = lib.splitString "\n" text;
    in
    lib.concatStringsSep "\n    " (
      if lib.length lines > 5 then lib.take 5 lines ++ [ "..." ] else lines
    );
  rendered =
    value:
    if value ? _type then value else lib.literalExpression (lib.generators.toPretty { } value);
in
rec {
  isOption = value: value._type or "" == "option";
  mkOption = attrs: attrs // { _type = "option"; };

  mkEnableOption =
    name:
    mkOption {
      default = false;
      example = true;
      description = "Whether to enable ${name}.";
      type = types.bool;
    };

  mkPackageOption =
    pkgs: name:
    {
      nullable ? false,
      default ? name,
      example ? null,
      extraDescription ? "",
      pkgsText ? "pkgs",
    }:
    let
      path = lib.toList default;
      text = "${pkgsText}.${lib.concatStringsSep "." path}";
      names = lib.toList name;
    in
    mkOption (
      {
        type = if nullable then types.nullOr types.package else types.package;
        description = "The ${lib.last names} package to use.${
          lib.optionalString (extraDescription != "") " ${extraDescription}"
        }";
      }
      // lib.optionalAttrs (default != null) {
        default = lib.attrByPath path (throw "${text} cannot be found in ${pkgsText}") pkgs;
        defaultText = literalExpression text;
      }
      // lib.optionalAttrs (example != null) {
        example = literalExpression (
          if builtins.isList example then
            "${pkgsText}.${lib.concatStringsSep "." example}"
          else
            example
        );
      }
    );

  literalExpression = text: {
    _type = "literalExpression";
    inherit text;
  };
  literalMD = text: {
    _type = "literalMD";
    inherit text;
  };

  showOption = path: lib.concatStringsSep "." (map quoted path);
  showFiles = files: lib.concatStringsSep " and " (map (file: "`${file}'") files);
  showDefs = lib.concatMapStrings (
    def:
    "\n- In `${def.file}'"
    + lib.optionalString (
      (builtins.tryEval (builtins.deepSeq def.value true)).success
    ) ": ${brief (lib.generators.toPretty { } def.value)}"
  );
  getValues = map (def: def.value);
  getFiles = map (def: def.file);

  mergeOneOption = mergeUniqueOption { message = ""; };
  mergeUniqueOption =
    {
      message,
      merge ? (_: defs: (builtins.head defs).value),
    }:
    loc: defs:
    if lib.length defs == 1 then
      merge loc defs
    else
      throw (
        "The option `${showOption loc}' is defined multiple times while it's expected to be unique."
        + lib.optionalString (message != "") "\n${message}"
        + "\nDefinition values:${showDefs defs}\n${advice}"
      );

  mergeEqualOption =
    loc: defs:
    let
      first = (builtins.head defs).value;
      conflict = builtins.any (def: def.value != first) (builtins.tail defs);
    in
    if defs == [ ] then
      abort "mergeEqualOption: no definitions"
    else if lib.length defs == 1 then
      first
    else if conflict then
      throw (
        "The option `${showOption loc}' has conflicting definition values:"
        + "${showDefs defs}\n${advice}"
      )
    else
      first;

  # Every option with what a reference page needs, submodules under `<name>` and `*`.
  optionAttrSetToDocList = optionAttrSetToDocList' [ ];
  optionAttrSetToDocList' =
    prefix: options:
    lib.concatMap (
      option:
      let
        visible = if builtins.isBool (option.visible or true) then option.visible or true else true;
        entry = {
          inherit (option) loc;
          name = showOption option.loc;
          description = option.description or null;
          declarations = option.declarations;
          internal = option.internal or false;
          inherit visible;
          readOnly = option.readOnly or false;
          type = option.type.description or "unspecified";
        }
        // lib.optionalAttrs (option ? example) { example = rendered option.example; }
        // lib.optionalAttrs (option ? defaultText || option ? default) {
          default = rendered (option.defaultText or option.default);
        };
        sub = option.type.getSubOptions option.loc;
      in
      [ entry ]
      ++ lib.optionals (sub != { } && visible && option.visible or true != "shallow") (
        optionAttrSetToDocList' option.loc sub
      )
    ) (lib.collect isOption options);
}
