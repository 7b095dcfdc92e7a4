# nixpkgs with this project's packages.
final: _prev: {
  corral = final.callPackage ./cowboy/package.nix { };
}
