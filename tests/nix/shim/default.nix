# `import <nixpkgs> { … }`: a package set whose packages are names only, made to be rendered.
{
  localSystem ? {
    system = builtins.currentSystem or "x86_64-linux";
  },
  system ? localSystem.system,
  config ? { },
  overlays ? [ ],
}:
import ./pkgs {
  lib = import ./lib;
  inherit system config overlays;
}
