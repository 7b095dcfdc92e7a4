{
  description = "A stand-in for nixpkgs: parts of lib, of NixOS' options, and packages by name";

  outputs =
    _:
    let
      plain = import ./lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
    in
    {
      lib = plain // {
        nixosSystem = import ./nixos/eval-config.nix { lib = plain; };
      };
      legacyPackages = plain.genAttrs systems (system: import ./. { inherit system; });
    };
}
