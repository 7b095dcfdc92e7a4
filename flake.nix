{
  description = "Carries messages to AI agents and their answers back; loses none to a kill";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { nixpkgs, ... }:
    let
      inherit (nixpkgs) lib;
      overlay = import ./services/overlay.nix;
      corral = {
        imports = [ ./modules ];
        nixpkgs.overlays = [ overlay ];
      };
      examples = import ./examples/hosts.nix;

      host =
        system: example:
        lib.nixosSystem {
          inherit system;
          modules = [
            corral
            example
            { documentation.nixos.enable = lib.mkDefault false; }
          ];
        };
      each =
        make:
        lib.genAttrs [
          "x86_64-linux"
          "aarch64-linux"
        ] (system: make (nixpkgs.legacyPackages.${system}.extend overlay));
    in
    {
      overlays.default = overlay;

      nixosModules = {
        inherit corral;
        default = corral;
      };
      nixosConfigurations = builtins.mapAttrs (_: host "x86_64-linux") examples;

      packages = each (pkgs: {
        inherit (pkgs)
          a2a-bridge
          corral
          corral-gateway
          tamq
          ;
        docs = pkgs.corral-docs;
        default = pkgs.corral;
      });

      apps = each (pkgs: rec {
        demo = {
          type = "app";
          program = lib.getExe (pkgs.callPackage ./services/demo.nix { });
          meta.description = "A deployment that is killed while messages flow, reconciled";
        };
        cowboy = {
          type = "app";
          program = lib.getExe pkgs.corral;
          meta.description = "The cowboy program";
        };
        tamq = {
          type = "app";
          program = lib.getExe pkgs.tamq;
          meta.description = "The tamq program, with tmux";
        };
        a2a-bridge = {
          type = "app";
          program = lib.getExe pkgs.a2a-bridge;
          meta.description = "The a2a-bridge program";
        };
        corral-gateway = {
          type = "app";
          program = lib.getExe pkgs.corral-gateway;
          meta.description = "The corral-gateway program";
        };
        default = demo;
      });

      checks = each (
        pkgs:
        import ./tests/nix/checks.nix {
          inherit pkgs examples;
          module = ./modules;
          host = host pkgs.stdenv.hostPlatform.system;
        }
      );

      devShells = each (pkgs: {
        default = pkgs.callPackage ./tests/nix/shell.nix { };
      });

      formatter = each (pkgs: pkgs.callPackage ({ nixfmt-tree }: nixfmt-tree) { });
    };
}
