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
    ./tamq-options.nix
    ./tamq-assertions.nix
    ../services/tamq/module.nix
    ./bridge-options.nix
    ./bridge-assertions.nix
    ../services/a2a-bridge/module.nix
    ./gateway-options.nix
    ./gateway-assertions.nix
    ../services/gateway/module.nix
    ./corral.nix
  ];
}
