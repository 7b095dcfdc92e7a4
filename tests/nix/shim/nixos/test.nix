# `pkgs.testers.runNixOSTest`: the machines of a test are evaluated, nothing is run.
{
  lib,
  pkgs,
  test,
}:
let
  evaluated = lib.evalModules {
    modules = [
      test
      {
        options = {
          name = lib.mkOption { type = lib.types.str; };
          nodes = lib.mkOption { type = lib.types.lazyAttrsOf lib.types.deferredModule; };
          testScript = lib.mkOption { type = lib.types.either lib.types.str lib.types.raw; };
          skipLint = lib.mkEnableOption "no lint";
          skipTypeCheck = lib.mkEnableOption "no type check";
        };
      }
    ];
  };
  inherit (evaluated) config;
  machine =
    name: module:
    import ./eval-config.nix { inherit lib; } {
      modules = [
        module
        {
          nixpkgs = { inherit pkgs; };
          networking.hostName = lib.mkDefault name;
        }
      ];
    };
  nodes = builtins.mapAttrs machine config.nodes;
in
pkgs.runCommand "vm-test-run-${config.name}" {
  nodes = lib.mapAttrsToList (_: node: node.config.system.build.toplevel) nodes;
  inherit (config) testScript;
} "exit 1\n"
