# The scenarios of tests/vm on machines of the NixOS test driver: NAME.py is the script, the
# machine is hosts/NAME.nix, or that of the first word of the name, or the standard one.
{ pkgs, module }:
let
  inherit (pkgs) lib;
  folder = ../vm;
  scripts = folder + "/scenarios";
  files = if builtins.pathExists scripts then builtins.readDir scripts else { };
  names = map (lib.removeSuffix ".py") (
    builtins.filter (file: lib.hasSuffix ".py" file && file != "__init__.py") (
      builtins.attrNames files
    )
  );
  hostOf =
    name:
    let
      first = builtins.head (lib.splitString "_" name);
      found = builtins.filter builtins.pathExists (
        map (one: folder + "/hosts/${one}.nix") [
          name
          first
          "standard"
        ]
      );
    in
    builtins.head found;
  only = builtins.filter builtins.pathExists [ (folder + "/nixos.nix") ];

  scenario =
    name:
    pkgs.testers.runNixOSTest {
      name = "corral-${name}";
      nodes.machine.imports = [
        module
        (hostOf name)
      ]
      ++ only;
      testScript = builtins.readFile (scripts + "/${name}.py");
      # The project's own stage does both, with stricter rules.
      skipLint = true;
      skipTypeCheck = true;
    };
in
lib.genAttrs names scenario
