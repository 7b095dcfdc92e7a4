lib:
let
  chars =
    string: builtins.genList (n: builtins.substring n 1 string) (builtins.stringLength string);
  lower = chars "abcdefghijklmnopqrstuvwxyz";
  upper = chars "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  present = builtins.filter (x: x != null);
  undotted = string: builtins.head (builtins.match "\\.*(.*)" string);
in
rec {
  inherit (builtins)
    concatStringsSep
    fromJSON
    isString
    match
    replaceStrings
    split
    stringLength
    substring
    toJSON
    typeOf
    unsafeDiscardStringContext
    ;

  concatStrings = concatStringsSep "";
  concatMapStrings = f: xs: concatStrings (map f xs);
  concatMapStringsSep =
    separator: f: xs:
    concatStringsSep separator (map f xs);
  concatImapStrings = f: xs: concatStrings (lib.imap1 f xs);
  concatImapStringsSep =
    separator: f: xs:
    concatStringsSep separator (lib.imap1 f xs);
  concatMapAttrsStringSep =
    separator: f: set:
    concatStringsSep separator (lib.mapAttrsToList f set);
  concatLines = concatMapStrings (line: "${line}\n");
  intersperse =
    separator: xs:
    lib.drop 1 (
      builtins.concatMap (x: [
        separator
        x
      ]) xs
    );
  optionalString = condition: string: if condition then string else "";
  replicate = n: string: concatStrings (lib.lists.replicate n string);
  fixedWidthString =
    width: filler: string:
    if width <= stringLength string then
      string
    else
      "${filler}${fixedWidthString (width - 1) filler string}";

  hasPrefix = prefix: string: substring 0 (stringLength prefix) string == prefix;
  hasSuffix =
    suffix: string:
    let
      at = stringLength string - stringLength suffix;
    in
    at >= 0 && substring at (-1) string == suffix;
  hasInfix = infix: string: match ".*${escapeRegex infix}.*" "${string}" != null;
  removePrefix =
    prefix: string:
    if hasPrefix prefix string then substring (stringLength prefix) (-1) string else string;
  removeSuffix =
    suffix: string:
    if hasSuffix suffix string then
      substring 0 (stringLength string - stringLength suffix) string
    else
      string;
  trim =
    string:
    let
      found = match "[ \t\r\n]*(.*[^ \t\r\n])[ \t\r\n]*" string;
    in
    if found == null then "" else builtins.head found;
  splitString =
    separator: string:
    builtins.filter isString (split (escapeRegex (toString separator)) (toString string));
  stringToCharacters = chars;
  toLower = replaceStrings upper lower;
  toUpper = replaceStrings lower upper;
  toSentenceCase = string: toUpper (substring 0 1 string) + toLower (substring 1 (-1) string);

  escape = list: replaceStrings list (map (c: "\\${c}") list);
  escapeRegex = escape (chars "\\[{()^$?*+|.");
  escapeShellArg =
    value:
    let
      string = toString value;
    in
    if match "[[:alnum:],._+:@%/-]+" string != null then
      string
    else
      "'${replaceStrings [ "'" ] [ "'\\''" ] string}'";
  escapeShellArgs = xs: concatMapStringsSep " " escapeShellArg (lib.toList xs);
  escapeNixString = string: escape [ "$" ] (toJSON string);
  escapeNixIdentifier =
    string:
    if match "[a-zA-Z_][a-zA-Z0-9_'-]*" string != null then string else escapeNixString string;
  toShellVar = name: value: "${name}=${escapeShellArg value}";

  makeSearchPath =
    sub: packages: concatMapStringsSep ":" (path: "${path}/${sub}") (present packages);
  makeSearchPathOutput =
    output: sub: packages:
    makeSearchPath sub (map (lib.getOutput output) packages);
  makeBinPath = makeSearchPathOutput "bin" "bin";
  makeLibraryPath = makeSearchPathOutput "lib" "lib";

  isStringLike = x: isString x || builtins.isPath x || x ? outPath || x ? __toString;
  isConvertibleWithToString =
    x:
    isStringLike x
    || builtins.elem (typeOf x) [
      "int"
      "float"
      "null"
      "bool"
    ]
    || (builtins.isList x && builtins.all isConvertibleWithToString x);
  isStorePath =
    x:
    isStringLike x
    && substring 0 1 (toString x) == "/"
    && builtins.dirOf (toString x) == builtins.storeDir;

  toInt =
    string:
    let
      found = match "[[:space:]]*(-?[1-9][0-9]*|0)[[:space:]]*" string;
    in
    if found == null then
      throw "Could not convert ${string} to int."
    else
      builtins.fromJSON (builtins.head found);
  toIntBase10 =
    string:
    let
      found = match "[[:space:]]*0*(-?[0-9]+)[[:space:]]*" string;
    in
    if found == null then
      throw "Could not convert ${string} to int."
    else
      builtins.fromJSON (builtins.head found);

  versionOlder = a: b: builtins.compareVersions b a == 1;
  versionAtLeast = a: b: !versionOlder a b;
  getName =
    x:
    if isString x then
      (builtins.parseDrvName x).name
    else
      x.pname or (builtins.parseDrvName x.name).name;
  getVersion =
    x:
    if isString x then
      (builtins.parseDrvName x).version
    else
      x.version or (builtins.parseDrvName x.name).version;

  # Letters, digits and a few signs; never empty, never a leading dot.
  sanitizeDerivationName =
    string:
    let
      plain = unsafeDiscardStringContext (toString string);
      parts = builtins.filter (part: part != "") (
        map (part: if isString part then part else "-") (
          split "[^[:alnum:]+._?=-]+" (undotted plain)
        )
      );
      name = concatStrings parts;
    in
    if name == "" then "unknown" else substring (lib.max (stringLength name - 207) 0) (-1) name;
}
