# Checkers: `type path value` gives the value back, or an error that names the path.
let
  inherit (builtins)
    attrNames
    elem
    elemAt
    filter
    genList
    head
    isAttrs
    isInt
    isList
    isString
    length
    mapAttrs
    match
    stringLength
    ;
  util = import ./util.nix;
  inherit (util) child fail listed show;

  attrs =
    path: value:
    if isAttrs value then value else fail path "must be an attribute set, not ${show value}";

  string =
    path: value:
    if !isString value then
      fail path "must be a string, not ${show value}"
    else if value == "" then
      fail path "must not be empty"
    else
      value;
in
rec {
  inherit attrs string;

  # The length is tested before the pattern: a regular expression over megabytes ends Nix itself.
  matching =
    {
      pattern,
      max_bytes,
      meaning,
    }:
    path: value:
    let
      text = string path value;
    in
    if stringLength text > max_bytes then
      fail path "must have at most ${toString max_bytes} bytes, not ${toString (stringLength text)}"
    else if match pattern text == null then
      fail path "must be ${meaning}, not ${show text}"
    else
      text;

  positive =
    path: value:
    if isInt value && value > 0 then
      value
    else
      fail path "must be a whole number above 0, not ${show value}";

  oneOf =
    choices: path: value:
    if isString value && elem value choices then
      value
    else
      fail path "must be one of ${listed (map show choices)}, not ${show value}";

  listOf =
    type: path: value:
    if isList value then
      genList (index: type "${path}.${toString index}" (elemAt value index)) (length value)
    else
      fail path "must be a list, not ${show value}";

  nonEmptyListOf =
    type: path: value:
    let
      checked = listOf type path value;
    in
    if checked == [ ] then fail path "must not be empty" else checked;

  # Any keys that `key` accepts, all values of one type.
  attrsOf =
    { key, value }:
    path: set:
    let
      checked =
        name: each:
        let
          at = child path name;
        in
        builtins.seq (key at name) (value at each);
    in
    mapAttrs checked (attrs path set);

  # Exactly these keys. A misspelt option is an error, never ignored.
  struct =
    {
      required ? { },
      optional ? { },
    }:
    path: value:
    let
      known = required // optional;
      given = attrNames (attrs path value);
      unknown = filter (name: !(known ? ${name})) given;
      missing = filter (name: !(value ? ${name})) (attrNames required);
    in
    if unknown != [ ] then
      fail (child path (head unknown)) "unknown option; known here: ${listed (attrNames known)}"
    else if missing != [ ] then
      fail (child path (head missing)) "is missing"
    else
      mapAttrs (name: each: known.${name} (child path name) each) value;
}
