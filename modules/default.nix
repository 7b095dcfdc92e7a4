# The NixOS modules, sorted by dependency: each file uses only what those above it declare.
{
  imports = [
    ./options.nix
    ./assertions.nix
    ./namespace.nix
    ./secrets.nix
    ./redis.nix
    ../services/cowboy/module.nix
    ./clients.nix
    ./corral.nix
  ];
}
