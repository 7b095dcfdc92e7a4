# Option types that more than one module needs. Each makes a mistake an error that names the
# option, where the mistake would else be found by a service at run time, or never.
{ lib }:
let
  names = import ./lib/names.nix;
  inherit (lib) types;
  matches =
    max_bytes: pattern: value:
    builtins.stringLength value <= max_bytes && builtins.match pattern value != null;
  isName = matches 31 "[a-z][a-z0-9-]*";
  checked =
    description: check:
    types.addCheck types.str check
    // {
      name = "checkedStr";
      inherit description;
    };
in
{
  # No type, but an option of one: where a file of this package is.
  ourFile =
    file: description:
    lib.mkOption {
      type = types.path;
      readOnly = true;
      default = file;
      defaultText = lib.literalExpression "the file of this package";
      inherit description;
    };

  # Names become ACL patterns, keys, users, units and paths.
  sourceName = checked "name of 1 to 31 of a-z, 0-9 and '-' that begins with a letter" isName;

  agentName =
    checked
      (
        "name of 1 to 31 of a-z, 0-9 and '-' that begins with a letter, "
        + "and is neither \"ns\", \"rotate\" nor \"secrets\" nor begins with \"runner-\""
      )
      (value: isName value && !names.reservedAgent value);

  userName =
    checked "user name of 1 to 31 of a-z, 0-9, '_' and '-' that begins with a letter or '_'"
      (matches 31 "[a-z_][a-z0-9_-]*");

  # The store is readable by everybody, and a path literal is copied into it.
  secretPath = checked "absolute path, as a string, of a file outside of the Nix store" (
    value: lib.hasPrefix "/" value && !lib.hasPrefix "${builtins.storeDir}/" value
  );

  serviceUnit =
    checked "name of a systemd service, such as \"a2a-gateway.service\""
      (matches 255 "[A-Za-z0-9_@.-]+[.]service");

  runDirectory =
    checked "path below /run of a-z, 0-9, '-' and '/'"
      (matches 255 "/run(/[a-z0-9][a-z0-9-]*)+");
}
