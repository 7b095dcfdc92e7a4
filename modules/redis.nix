# The server: nixpkgs' own module, in the namespace, durable, and with an ACL for everybody.
{ config, lib, ... }:
let
  cfg = config.services.cowboy;
  derived = import ./derived.nix { inherit lib cfg; };
  settings = derived.topology.redis.settings;

  # Options of nixpkgs' module; the other settings are written as they are.
  own = [
    "appendonly"
    "appendfsync"
    "maxclients"
  ];
in
{
  config = lib.mkIf cfg.enable {
    services.redis.servers.cowboy = {
      enable = true;
      bind = lib.mkDefault "127.0.0.1";
      port = cfg.redis.port;
      # A socket in a directory can be reached from every network namespace.
      unixSocket = lib.mkDefault null;
      appendOnly = lib.mkDefault true;
      appendFsync = lib.mkDefault settings.appendfsync;
      databases = 1;
      # Durability is the append-only file alone.
      save = [ ];
      maxclients = lib.mkIf (settings ? maxclients) (lib.toInt settings.maxclients);
      settings = removeAttrs settings own // {
        aclfile = derived.aclFile;
      };
    };

    systemd.services.redis-cowboy = lib.mkMerge [
      derived.membership
      derived.holder
      {
        startLimitIntervalSec = 0;
        serviceConfig = {
          Restart = "always";
          RestartSec = "1s";
          # The server is ready when it has read its append-only file, however long that takes.
          TimeoutStartSec = "15min";
        };
      }
    ];
  };
}
