# Functions of the stand-in's `lib`, as in the real one: `is` equals `wants`.
{ lib }:
let
  inherit (lib) mkOption;
in
{
  "paths of attributes" = {
    is =
      [ (lib.attrByPath [ "a" "b" ] 0 { a.b = 1; }) (lib.attrByPath [ "a" "c" ] 0 { a = { }; })
      (lib.hasAttrByPath [ "a" ] { }) (lib.setAttrByPath [ "a" "b" ] 1) ];
    wants = [
      1
      0
      false
      {
        a = {
          b = 1;
        };
      }
    ];
  };
  "sets" = {
    is =
      [ (lib.filterAttrs (n: v: v > 1) { a = 1; b = 2; })
      (lib.mapAttrs' (n: v: lib.nameValuePair "x${n}" v) { a = 1; })
      (lib.mapAttrsToList (n: v: n) { b = 1; a = 2; }) (lib.genAttrs [ "a" ] (n: n))
      (lib.recursiveUpdate { a.b = 1; a.c = 2; } { a.b = 3; })
      (lib.concatMapAttrs (n: v: { ${n + n} = v; }) { a = 1; })
      (lib.foldlAttrs (acc: n: v: acc + v) 0 { a = 1; b = 2; })
      (lib.attrsToList { a = 1; }) (lib.collect builtins.isInt { a.b = 1; c = 2; })
      (lib.mapAttrsRecursive (p: v: lib.concatStringsSep "." p) { a.b = 1; }) ];
    wants = [
      {
        b = 2;
      }
      {
        xa = 1;
      }
      [
        "a"
        "b"
      ]
      {
        a = "a";
      }
      {
        a = {
          b = 3;
          c = 2;
        };
      }
      {
        aa = 1;
      }
      3
      [
        {
          name = "a";
          value = 1;
        }
      ]
      [
        1
        2
      ]
      {
        a = {
          b = "a.b";
        };
      }
    ];
  };
  "lists" = {
    is =
      [ (lib.unique [ 1 2 1 ]) (lib.flatten [ 1 [ 2 [ 3 ] ] ]) (lib.range 1 3) (lib.last [ 1 2 ])
      (lib.optional true 1) (lib.optionals false [ 1 ]) (lib.foldr (a: b: a + b) "" [ "x" "y" ])
      (lib.imap1 (i: v: i * v) [ 5 6 ]) (lib.subtractLists [ 1 ] [ 1 2 ]) (lib.take 1 [ 1 2 ])
      (lib.drop 1 [ 1 2 ]) (lib.reverseList [ 1 2 ]) (lib.findFirst (x: x > 1) 0 [ 1 2 3 ])
      (lib.zipListsWith (a: b: a + b) [ 1 2 ] [ 3 ]) (lib.allUnique [ 1 1 ]) (lib.toList 1)
      (lib.count (x: x > 1) [ 1 2 3 ]) (lib.sublist 1 5 [ 1 2 3 ]) (lib.init [ 1 2 ])
      (lib.sortOn (x: - x) [ 1 3 2 ]) (lib.remove 1 [ 1 2 ]) (lib.mutuallyExclusive [ 1 ] [ 2 ]) ];
    wants = [
      [
        1
        2
      ]
      [
        1
        2
        3
      ]
      [
        1
        2
        3
      ]
      2
      [
        1
      ]
      [ ]
      "xy"
      [
        5
        12
      ]
      [
        2
      ]
      [
        1
      ]
      [
        2
      ]
      [
        2
        1
      ]
      2
      [
        4
      ]
      false
      [
        1
      ]
      2
      [
        2
        3
      ]
      [
        1
      ]
      [
        3
        2
        1
      ]
      [
        2
      ]
      true
    ];
  };
  "strings" = {
    is =
      [ (lib.hasPrefix "a" "ab") (lib.hasSuffix "b" "ab") (lib.hasInfix "b.c" "ab.cd")
      (lib.hasInfix "b.c" "abxc") (lib.removePrefix "a" "ab") (lib.removeSuffix "b" "ab")
      (lib.splitString "." "a.b.c") (lib.concatMapStringsSep "," toString [ 1 2 ])
      (lib.optionalString false "a") (lib.toUpper "ab") (lib.toInt "12")
      (lib.stringToCharacters "ab") (lib.concatLines [ "a" "b" ]) (lib.trim " a b ")
      (lib.fixedWidthString 3 "0" "7") (lib.boolToString true) (lib.versionAtLeast "7.2" "7.10")
      (lib.escapeShellArg "a b'c") (lib.escapeShellArg "a.b") (lib.escapeShellArgs [ "a" "" ])
      (lib.strings.sanitizeDerivationName "..a b@c") (lib.escapeRegex "a.b")
      (lib.concatImapStringsSep "," (i: v: "${toString i}${v}") [ "a" "b" ])
      (lib.hasInfix "a\nb" "xa\nby") (lib.strings.escapeNixString "a$b\"") (lib.getName "x-1.2") ];
    wants = [
      true
      true
      true
      false
      "b"
      "a"
      [
        "a"
        "b"
        "c"
      ]
      "1,2"
      ""
      "AB"
      12
      [
        "a"
        "b"
      ]
      "a\nb\n"
      "a b"
      "007"
      "true"
      false
      "'a b'\\''c'"
      "a.b"
      "a ''"
      "a-b-c"
      "a\\.b"
      "1a,2b"
      true
      "\"a\\$b\\\"\""
      "x"
    ];
  };
  "generators" = {
    is =
      [ (lib.generators.toKeyValue { } { a = 1; b = true; })
      (lib.generators.toKeyValue { listsAsDuplicateKeys = true; } { a = [ 1 2 ]; })
      (lib.generators.toINI { } { s.k = "v"; t.k = 1; })
      (lib.generators.toPretty { multiline = false; } { a = [ 1 "x" ]; }) ];
    wants = [
      "a=1\nb=true\n"
      "a=1\na=2\n"
      "[s]\nk=v\n\n[t]\nk=1\n"
      "{ a = [ 1 \"x\" ]; }"
    ];
  };
  "options as text" = {
    is =
      [ (lib.showOption [ "a" "b-c" "d.e" "*" "<name>" ]) (lib.isOption (mkOption { }))
      (lib.mkEnableOption "x").description (lib.literalExpression "1").text ];
    wants = [
      "a.b-c.\"d.e\".*.<name>"
      true
      "Whether to enable x."
      "1"
    ];
  };
  "programs of packages" = {
    is =
      let p = { type = "derivation"; outPath = "/p"; meta.mainProgram = "m"; }; in
      [ (lib.getExe p) (lib.getExe' p "n") (lib.makeBinPath [ p ])
      (lib.getExe { type = "derivation"; name = "p-1"; outPath = "/p"; }) ];
    wants = [
      "/p/bin/m"
      "/p/bin/n"
      "/p/bin"
      "/p/bin/p"
    ];
  };
  "functions with overrides" = {
    is =
      [ (lib.makeOverridable ({ a, b ? 2 }: { sum = a + b; }) { a = 1; }).sum
      ((lib.makeOverridable ({ a, b ? 2 }: { sum = a + b; }) { a = 1; }).override { b = 5; }).sum
      (lib.callPackageWith { a = 1; } ({ a, b }: { sum = a + b; }) { b = 3; }).sum ];
    wants = [
      3
      6
      4
    ];
  };
}
