# What `nix flake check` builds: the package, the examples' configurations, the style of the Nix
# files, and every scenario of tests/vm on machines of the real NixOS test driver.
{
  pkgs,
  examples,
  module,
  host,
  source,
}:
let
  inherit (pkgs) lib;

  # The evaluation is the check; to build whole systems would take hours.
  evaluated =
    name: example:
    pkgs.writeText "example-${name}" (
      builtins.unsafeDiscardStringContext (host example).config.system.build.toplevel.drvPath
    );

  prefixed = prefix: lib.mapAttrs' (name: lib.nameValuePair "${prefix}-${name}");
in
{
  package = pkgs.corral;
  style = pkgs.callPackage ./style-check.nix { inherit source; };
}
// prefixed "example" (builtins.mapAttrs evaluated examples)
// prefixed "vm" (import ./vm-checks.nix { inherit pkgs module; })
