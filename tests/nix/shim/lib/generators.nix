lib: rec {
  mkValueStringDefault =
    _: value:
    if builtins.isInt value then
      toString value
    else if builtins.isFloat value then
      builtins.toJSON value
    else if lib.isDerivation value || builtins.isPath value then
      toString value
    else if builtins.isString value then
      value
    else if value == true then
      "true"
    else if value == false then
      "false"
    else if value == null then
      "null"
    else
      throw (
        "generators.mkValueStringDefault: ${builtins.typeOf value} not supported: "
        + toPretty { } value
      );

  mkKeyValueDefault =
    {
      mkValueString ? mkValueStringDefault { },
    }:
    separator: key: value:
    "${lib.escape [ separator ] key}${separator}${mkValueString value}";

  toKeyValue =
    {
      mkKeyValue ? mkKeyValueDefault { } "=",
      listsAsDuplicateKeys ? false,
      indent ? "",
    }:
    set:
    lib.concatStrings (
      lib.concatLists (
        lib.mapAttrsToList (
          key: value:
          map (one: "${indent}${mkKeyValue key one}\n") (
            if listsAsDuplicateKeys && builtins.isList value then value else [ value ]
          )
        ) set
      )
    );

  toINI =
    {
      mkSectionName ? (
        name:
        lib.escape [
          "["
          "]"
        ] name
      ),
      mkKeyValue ? mkKeyValueDefault { } "=",
      listsAsDuplicateKeys ? false,
    }:
    sections:
    lib.concatStringsSep "\n" (
      lib.mapAttrsToList (
        name: values:
        "[${mkSectionName name}]\n${toKeyValue { inherit mkKeyValue listsAsDuplicateKeys; } values}"
      ) sections
    );

  toJSON = _: builtins.toJSON;
  toYAML = toJSON;

  # For messages; on one line when `multiline` is false.
  toPretty =
    {
      multiline ? true,
      indent ? "",
      allowPrettyValues ? false,
    }@options:
    value:
    let
      between = if multiline then "\n${indent}  " else " ";
      end = if multiline then "\n${indent}" else " ";
      inner = toPretty (options // { indent = "${indent}  "; });
      list =
        open: close: items:
        if items == [ ] then
          "${open} ${close}"
        else
          "${open}${between}${lib.concatStringsSep between items}${end}${close}";
    in
    if builtins.isString value then
      lib.strings.escapeNixString value
    else if builtins.isList value then
      list "[" "]" (map inner value)
    else if lib.isFunction value then
      "<function>"
    else if lib.isDerivation value then
      "<derivation ${value.name or "???"}>"
    else if builtins.isAttrs value then
      list "{" "}" (
        lib.mapAttrsToList (
          name: one: "${lib.strings.escapeNixIdentifier name} = ${inner one};"
        ) value
      )
    else
      mkValueStringDefault { } value;
}
