{ lib, pkgs }:
let
  inherit (lib) types;
  value =
    let
      inner = types.nullOr (
        types.oneOf [
          types.bool
          types.int
          types.float
          types.str
          types.path
          (types.attrsOf inner)
          (types.listOf inner)
        ]
      );
    in
    inner;
  atom = types.nullOr (
    types.oneOf [
      types.bool
      types.int
      types.float
      types.str
    ]
  );

  indented =
    indent: data:
    let
      inner = "${indent}  ";
      list =
        open: close: items:
        if items == [ ] then
          "${open}${close}"
        else
          "${open}\n${inner}${lib.concatStringsSep ",\n${inner}" items}\n${indent}${close}";
    in
    if builtins.isList data then
      list "[" "]" (map (indented inner) data)
    else if builtins.isAttrs data && !data ? outPath then
      list "{" "}" (
        lib.mapAttrsToList (key: one: "${builtins.toJSON key}: ${indented inner one}") data
      )
    else
      builtins.toJSON data;
in
{
  json = _: {
    type = value // {
      description = "JSON value";
    };
    # As jq writes it: two spaces a level.
    generate = name: data: pkgs.writeText name "${indented "" data}\n";
  };
  yaml = _: {
    type = value // {
      description = "YAML value";
    };
    # JSON is YAML; nothing of it is compared.
    generate = name: data: pkgs.writeText name "${indented "" data}\n";
  };
  keyValue =
    {
      listsAsDuplicateKeys ? false,
      mkKeyValue ? lib.generators.mkKeyValueDefault { } "=",
    }@args:
    {
      type = types.attrsOf (
        if listsAsDuplicateKeys then types.either atom (types.listOf atom) else atom
      );
      generate = name: data: pkgs.writeText name (lib.generators.toKeyValue args data);
    };
  ini =
    {
      listsAsDuplicateKeys ? false,
    }@args:
    {
      type = types.attrsOf (
        types.attrsOf (if listsAsDuplicateKeys then types.either atom (types.listOf atom) else atom)
      );
      generate = name: data: pkgs.writeText name (lib.generators.toINI args data);
    };
}
