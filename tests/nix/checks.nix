# What `nix flake check` builds: the package, the examples' configurations, and every scenario of
# tests/vm on machines of the NixOS test driver.
{
  pkgs,
  examples,
  module,
  host,
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
  docs = pkgs.corral-docs;
  inherit (pkgs) a2a-bridge corral-gateway tamq;
}
// prefixed "example" (builtins.mapAttrs evaluated examples)
// prefixed "vm" (import ./vm-checks.nix { inherit pkgs module; })
