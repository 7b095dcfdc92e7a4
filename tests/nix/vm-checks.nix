# The scenarios of tests/vm on machines of the NixOS test driver: NAME.py is the script, the
# machine is hosts/NAME.nix, or that of the first word of the name, or the standard one. A folder
# in place of that file is several machines, each by the name of its file.
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
        builtins.concatMap
          (one: [
            (folder + "/hosts/${one}.nix")
            (folder + "/hosts/${one}")
          ])
          [
            name
            first
            "standard"
          ]
      );
    in
    builtins.head found;
  nodesOf =
    host:
    let
      node = file: _: lib.nameValuePair (lib.removeSuffix ".nix" file) (host + "/${file}");
    in
    if lib.hasSuffix ".nix" (toString host) then
      { machine = host; }
    else
      lib.mapAttrs' node (builtins.readDir host);
  only = builtins.filter builtins.pathExists [ (folder + "/nixos.nix") ];

  scenario =
    name:
    pkgs.testers.runNixOSTest {
      name = "corral-${name}";
      nodes = builtins.mapAttrs (_: host: {
        imports = [
          module
          host
        ]
        ++ only;
      }) (nodesOf (hostOf name));
      testScript = builtins.readFile (scripts + "/${name}.py");
      # The project's own stage does both, with stricter rules.
      skipLint = true;
      skipTypeCheck = true;
    };
in
lib.genAttrs names scenario
