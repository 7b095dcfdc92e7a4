# `lib.nixosSystem`: the given modules together with the options that they may set.
{ lib }:
{
  modules,
  system ? null,
  specialArgs ? { },
  extraModules ? [ ],
}:
let
  evaluated = lib.evalModules {
    class = "nixos";
    specialArgs = {
      modulesPath = toString ./.;
    }
    // specialArgs;
    modules = import ./modules.nix ++ extraModules ++ modules ++ [
      { nixpkgs.system = lib.mkIf (system != null) (lib.mkDefault system); }
    ];
  };
in
evaluated
// {
  inherit lib extraModules;
  inherit (evaluated._module.args) pkgs;
}
