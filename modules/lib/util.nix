# Helpers over builtins. Nothing in this folder uses another library, so that every
# file is evaluated alike by any Nix, with or without nixpkgs.
let
  inherit (builtins)
    attrNames
    concatLists
    concatStringsSep
    elemAt
    filter
    genList
    length
    match
    stringLength
    toJSON
    typeOf
    ;
in
rec {
  # Every error begins with the path of the option at fault: that is what the operator edits.
  fail = path: message: throw "${path}: ${message}";

  # child "agents" "scout" -> agents.scout ; child "agents" "a:b" -> agents."a:b"
  child =
    path: key:
    let
      step =
        if stringLength key > 64 then
          "<${show key}>"
        else if match "[A-Za-z_][A-Za-z0-9_-]*" key != null then
          key
        else
          show key;
    in
    if path == "" then step else "${path}.${step}";

  # A value as an error message shows it: short, and never the inside of a collection.
  show =
    value:
    let
      type = typeOf value;
      size = stringLength value;
    in
    if type == "string" then
      (if size <= 64 then toJSON value else "a string of ${toString size} bytes")
    else if type == "int" || type == "bool" || type == "float" || type == "null" then
      toJSON value
    else if type == "set" then
      "an attribute set"
    else if type == "lambda" then
      "a function"
    else
      "a ${type}";

  words = concatStringsSep " ";

  listed = concatStringsSep ", ";

  mapToList = f: set: map (name: f name set.${name}) (attrNames set);

  concatMapToList = f: set: concatLists (mapToList f set);

  hasPrefix = prefix: text: builtins.substring 0 (stringLength prefix) text == prefix;

  # Without a regular expression: those over a long text end Nix itself.
  contains = part: text: builtins.replaceStrings [ part ] [ "" ] text != text;

  # [ { option = "agents.a"; value = "x"; } … ] -> one message for each value that comes again.
  # The message names both options.
  repeated =
    what: entries:
    let
      at = elemAt entries;
      firstWith = value: builtins.head (filter (entry: entry.value == value) entries);
      earlier = index: filter (i: (at i).value == (at index).value) (genList (i: i) index);
      again = filter (index: earlier index != [ ]) (genList (i: i) (length entries));
      message =
        index:
        let
          entry = at index;
        in
        "${entry.option}: ${what} ${show entry.value} is already that of "
        + "${(firstWith entry.value).option}";
    in
    map message again;
}
