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
in
{
  json = _: {
    type = value // {
      description = "JSON value";
    };
    # The real one has jq indent it; here the text is the same value on one line.
    generate = name: data: pkgs.writeText name "${builtins.toJSON data}\n";
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
