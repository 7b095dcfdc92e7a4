# nixpkgs with this project's packages.
final: _prev: {
  a2a-bridge = final.callPackage ./a2a-bridge/package.nix { };
  corral = final.callPackage ./cowboy/package.nix { };
  corral-docs = final.callPackage ./docs/package.nix { };
  corral-gateway = final.callPackage ./gateway/package.nix { };
  tamq = final.callPackage ./tamq/package.nix { };
}
