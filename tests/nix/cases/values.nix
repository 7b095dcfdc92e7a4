# What is promised of the stand-in's `lib`, and holds for the real one: `is` equals `wants`.
{ lib }:
let
  inherit (import ./prelude.nix { inherit lib; })
    eval
    item
    one
    ;
  inherit (lib)
    mkAfter
    mkBefore
    mkDefault
    mkForce
    mkIf
    mkMerge
    mkOption
    mkOrder
    mkOverride
    types
    ;
in
{
  "an attribute under a false condition is not made" = {
    is =
      one (types.attrsOf item) [ { a = mkIf false { size = 2; }; b.size = 3; } ];
    wants = {
      b = {
        name = "b";
        size = 3;
      };
    };
  };
  "a false condition around everything" = {
    is =
      one (types.attrsOf item) [ (mkIf false { a.size = 2; }) { b = { }; } ];
    wants = {
      b = {
        name = "b";
        size = 1;
      };
    };
  };
  "a condition may depend on another option of the same set" = {
    is =
      eval [ ({ config, ... }: { options.on = mkOption { type = types.bool; default = false; };
      options.n = mkOption { type = types.int; default = 0; };
      config = mkIf config.on { n = 1; }; }) { on = true; } ];
    wants = {
      on = true;
      n = 1;
    };
  };
  "a module may be a condition" = {
    is =
      (eval [ { options.x = mkOption { type = types.int; default = 0; }; }
      ({ ... }: mkIf true { x = 1; }) ]).x;
    wants = 1;
  };
  "a list keeps no element under a false condition" = {
    is =
      one (types.listOf types.int) [ [ 1 (mkIf false 2) (mkIf true 3) ] ];
    wants = [
      1
      3
    ];
  };
  "definitions are merged where they are wrapped" = {
    is =
      one (types.attrsOf types.int) [ (mkMerge [ { a = 1; } (mkIf true { b = 2; }) ]) ];
    wants = {
      a = 1;
      b = 2;
    };
  };
  "the lower number wins" = {
    is =
      one types.int [ (mkDefault 1) (mkForce 2) 3 (mkOverride 60 4) ];
    wants = 2;
  };
  "a priority around a set holds for what is in it" = {
    is =
      one (types.attrsOf types.int) [ (mkForce { a = 1; }) { a = 2; b = 3; } ];
    wants = {
      a = 1;
    };
  };
  "a priority inside a set" = {
    is =
      one (types.attrsOf types.int) [ { a = mkForce 1; } { a = 2; b = 3; } ];
    wants = {
      a = 1;
      b = 3;
    };
  };
  "an option's default gives way to mkDefault" = {
    is =
      (eval [ { options.x = mkOption { type = types.int; default = 1; }; }
      { x = mkDefault 2; } ]).x;
    wants = 2;
  };
  "lists are joined, what is imported first" = {
    is =
      (eval [ { options.x = mkOption { type = types.listOf types.str; }; config.x = [ "a" ]; }
      { imports = [ { x = [ "c" ]; } ]; x = [ "b" ]; } ]).x;
    wants = [
      "c"
      "b"
      "a"
    ];
  };
  "before and after" = {
    is =
      one (types.listOf types.str) [ (mkAfter [ "z" ]) [ "m" ] (mkBefore [ "a" ])
      (mkOrder 100 [ "0" ]) ];
    wants = [
      "0"
      "a"
      "m"
      "z"
    ];
  };
  "a module is taken once" = {
    is =
      (eval [ { options.x = mkOption { type = types.listOf types.int; }; }
      { key = "k"; x = [ 1 ]; } { key = "k"; x = [ 1 ]; } ]).x;
    wants = [
      1
    ];
  };
  "arguments of modules" = {
    is =
      (eval [ ({ extra, lib, ... }: { options.x = lib.mkOption { default = extra; }; })
      { _module.args.extra = 5; } ]).x;
    wants = 5;
  };
  "what a module calls meta is an option like others" = {
    is =
      (eval [ { options.meta = mkOption { type = types.int; }; } { meta = 1; } ]).meta;
    wants = 1;
  };
  "apply" = {
    is =
      (eval [ { options.x = mkOption { type = types.int; apply = n: n + 1; }; } { x = 1; } ]).x;
    wants = 2;
  };
  "whether an option is defined" = {
    is =
      let o = (lib.evalModules { modules = [ { options.a = mkOption { default = 1; };
      options.b = mkOption { type = types.int; }; } ]; }).options;
      in [ o.a.isDefined o.b.isDefined ];
    wants = [
      true
      false
    ];
  };
  "the priority of an option" = {
    is =
      (lib.evalModules { modules = [ { options.a = mkOption { default = 1; }; }
      { a = mkForce 2; } ]; }).options.a.highestPrio;
    wants = 50;
  };
  "a module added later" = {
    is =
      ((lib.evalModules { modules = [ { options.a = mkOption { default = 1; }; } ];
      }).extendModules { modules = [ { a = 2; } ]; }).config.a;
    wants = 2;
  };
  "an old name" = {
    is =
      eval [ (lib.mkRenamedOptionModule [ "old" ] [ "new" ])
      { options.new = mkOption { type = types.int; };
      options.warnings = mkOption { type = types.listOf types.str; }; } { old = 3; } ]
      // { warnings = null; };
    wants = {
      new = 3;
      old = 3;
      warnings = null;
    };
  };
  "two declarations of submodules are one" = {
    is =
      (eval [ { options.x = mkOption { type = types.attrsOf item; default = { }; }; }
      { options.x = mkOption { type = types.attrsOf (types.submodule {
      options.more = mkOption { type = types.bool; default = true; }; }); };
      config.x.a = { }; } ]).x;
    wants = {
      a = {
        name = "a";
        size = 1;
        more = true;
      };
    };
  };
  "two declarations of an enum are one" = {
    is =
      (eval [ { options.x = mkOption { type = types.enum [ "a" ]; }; }
      { options.x = mkOption { type = types.enum [ "b" ]; }; config.x = "b"; } ]).x;
    wants = "b";
  };
  "a freeform submodule" = {
    is =
      one (types.submodule { freeformType = types.attrsOf types.int;
      options.known = mkOption { type = types.bool; default = true; }; }) [ { other = 1; } ];
    wants = {
      known = true;
      other = 1;
    };
  };
  "a freeform submodule without more" = {
    is =
      one (types.submodule { freeformType = types.attrsOf types.int;
      options.known = mkOption { type = types.bool; default = true; }; }) [ { } ];
    wants = {
      known = true;
    };
  };
  "a submodule from two files" = {
    is =
      one item [ { size = 2; } { name = "n"; } ];
    wants = {
      name = "n";
      size = 2;
    };
  };
  "a submodule may be a function" = {
    is =
      one item [ ({ name, ... }: { name = "is-${name}"; }) ];
    wants = {
      name = "is-x";
      size = 1;
    };
  };
  "empty containers" = {
    is =
      map (t: one t [ ]) [ (types.attrsOf types.int) (types.listOf types.int) ];
    wants = [
      { }
      [ ]
    ];
  };
  "either" = {
    is =
      map (v: one (types.either types.int (types.listOf types.int)) [ v ]) [ 1 [ 2 ] ];
    wants = [
      1
      [
        2
      ]
    ];
  };
  "nullOr" = {
    is =
      map (v: one (types.nullOr types.str) [ v ]) [ null "a" ];
    wants = [
      null
      "a"
    ];
  };
  "coercedTo" = {
    is =
      one (types.coercedTo types.int toString types.str) [ 5 ];
    wants = "5";
  };
  "lines" = {
    is =
      one types.lines [ "b" "a" ];
    wants = "a\nb";
  };
  "a single line" = {
    is =
      one types.singleLineStr [ "a\n" ];
    wants = "a";
  };
  "equal definitions" = {
    is =
      one types.str [ "a" "a" ];
    wants = "a";
  };
  "ports and integers" = {
    is =
      [ (one types.port [ 65535 ]) (one types.ints.unsigned [ 0 ])
      (one types.ints.positive [ 1 ]) (one (types.ints.between 2 4) [ 4 ]) ];
    wants = [
      65535
      0
      1
      4
    ];
  };
  "addCheck" = {
    is =
      one (types.addCheck types.int (n: n > 2)) [ 3 ];
    wants = 3;
  };
  "anything" = {
    is =
      one types.anything [ { a.b = 1; } { a.c = 2; } ];
    wants = {
      a = {
        b = 1;
        c = 2;
      };
    };
  };
  "functionTo" = {
    is =
      (one (types.functionTo types.int) [ (n: n + 1) ]) 2;
    wants = 3;
  };
  "a lazy set keeps what depends on itself" = {
    is =
      (eval [ ({ config, ... }: { options.x = mkOption { type = types.lazyAttrsOf types.int; };
      config.x = { a = 1; b = config.x.a + 1; }; }) ]).x;
    wants = {
      a = 1;
      b = 2;
    };
  };
  "descriptions" = {
    is =
      map (t: t.description) [ types.str (types.nullOr types.int) (types.listOf types.port)
      (types.attrsOf (types.listOf types.str)) (types.enum [ "a" "b" ])
      (types.either types.str types.int) (types.strMatching "a") item
      (types.nullOr (types.enum [ 1 2 ])) ];
    wants = [
      "string"
      "null or signed integer"
      "list of 16 bit unsigned integer; between 0 and 65535 (both inclusive)"
      "attribute set of list of string"
      "one of \"a\", \"b\""
      "string or signed integer"
      "string matching the pattern a"
      "submodule"
      "null or one of 1, 2"
    ];
  };
}
