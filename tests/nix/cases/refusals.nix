# What the stand-in's `lib` refuses, as the real one does: `is` fails, and Nix says `why` (a
# regular expression of Python).
{ lib }:
let
  inherit (import ./prelude.nix { inherit lib; })
    eval
    item
    one
    ;
  inherit (lib)
    mkIf
    mkMerge
    mkOption
    types
    ;
in
{
  "an option that does not exist" = {
    why = "The option `a\\.c' does not exist";
    is =
      eval [ { options.a.b = mkOption { default = 1; }; } { a.c = 2; } ];
  };
  "an option of a submodule that does not exist" = {
    why = "The option `x\\.a\\.sise' does not exist";
    is =
      one (types.attrsOf item) [ { a.sise = 1; } ];
  };
  "a false condition does not hide a misspelt option" = {
    why = "The option `b' does not exist";
    is =
      eval [ { options.a = mkOption { default = 1; }; config = mkIf false { b = 1; }; } ];
  };
  "a wrong type" = {
    why = "A definition for option `x' is not of type `signed integer'\\. Definition values:";
    is =
      one types.int [ "a" ];
  };
  "a wrong element" = {
    why = "option `x\\.\"?\\[definition 1-entry 2\\]\"?' is not of type `signed integer'";
    is =
      one (types.listOf types.int) [ [ 1 "a" ] ];
  };
  "a name that the pattern refuses" = {
    why = "A definition for option `x' is not of type `string matching the pattern \\[a-z\\]\\+'";
    is =
      one (types.strMatching "[a-z]+") [ "A" ];
  };
  "a port past the last one" = {
    why = "option `x' is not of type `16 bit";
    is =
      one types.port [ 65536 ];
  };
  "no definition" = {
    why = "The option `x' (was accessed but has no value defined|is used but not defined)";
    is =
      one types.int [ ];
  };
  "two definitions" = {
    why = "The option `x' has conflicting definition values:";
    is =
      one types.str [ "a" "b" ];
  };
  "a value that may be there once" = {
    why = "The option `x' is defined multiple times while it's expected to be unique";
    is =
      one types.raw [ 1 2 ];
  };
  "null beside a value" = {
    why = "is defined both null and not null";
    is =
      one (types.nullOr types.int) [ null 1 ];
  };
  "an option that may only be read" = {
    why = "The option `x' is read-only, but it's set multiple times";
    is =
      (eval [ { options.x = mkOption { readOnly = true; default = 1; }; } { x = 2; } ]).x;
  };
  "two types that are not one" = {
    why = "The option `x' in `.*' is already declared in `.*'";
    is =
      (eval [ { options.x = mkOption { type = types.int; }; }
      { options.x = mkOption { type = types.str; }; config.x = 1; } ]).x;
  };
  "an option inside an option" = {
    why = "its type `signed integer' does not support nested options";
    is =
      eval [ { options.a = mkOption { type = types.int; }; }
      { options.a.b = mkOption { default = 1; }; } ];
  };
  "definitions beside config" = {
    why = "has an unsupported attribute `a'";
    is =
      eval [ { config = { }; options.a = mkOption { default = 1; }; a = 2; } ];
  };
  "a module that is a merge" = {
    why = "of type \\\"?merge\\\"?";
    is =
      eval [ (mkMerge [ { } ]) ];
  };
  "a set where a value is needed" = {
    why = "rather than an attribute set for the option\\s+`a'";
    is =
      eval [ { options.a.b = mkOption { default = 1; }; } { a = 5; } ];
  };
  "an argument that nobody gives" = {
    why = "attribute 'nobody' missing";
    is =
      eval [ ({ nobody, ... }: { options.a = mkOption { default = nobody; }; }) ];
  };
  "an option that was removed" = {
    why = "The option `old' can no longer be used since it's been removed\\. Use new\\.";
    is =
      (eval [ (lib.mkRemovedOptionModule [ "old" ] "Use new.")
      { options.assertions = mkOption { type = types.listOf types.raw; }; } ]).old;
  };
  "a name of the library that does not exist" = {
    why = "attribute 'mkEnabledOption' missing";
    is =
      lib.mkEnabledOption;
  };
  "text that is no number" = {
    why = "Could not convert a to int|toInt";
    is =
      lib.toInt "a";
  };
  "an argument that a package lacks" = {
    why = "called without required argument \\\"absent\\\"";
    is =
      lib.callPackageWith { } ({ absent }: { }) { };
  };
}
