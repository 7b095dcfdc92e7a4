# One host with everything on it: a person mentions the agent in a room of this host's Synapse, the
# bridge asks the gateway, that passes it on through Redis, cowboy runs the command, and its answer
# comes back into the room. Replace the names, the file system, the boot loader and the command.
{ lib, pkgs, ... }:
{
  services.corral.enable = true;

  services.cowboy.agents.scout = {
    # Each entry becomes one run: the prompt is its standard input, its output is the reply.
    runner = {
      kind = "exec";
      command = [
        "tr"
        "a-z"
        "A-Z"
      ];
      turn_timeout_s = 120;
    };
    path = [ pkgs.coreutils ];

    # Acknowledged at the hand-over; an interrupted turn is reported to its sender. Rooms come by
    # this source.
    sources.a2a = { };
    # Here to see that messages pass, without an agent.
    sources.echo.runner.kind = "echo";
  };

  services.matrix-synapse = {
    enable = true;
    settings = {
      server_name = "example.org";
      # Enough for a small server. For PostgreSQL leave it out, and make the database as NixOS'
      # manual says; the bridge has one of its own there in any case.
      database.name = "sqlite3";
      # Made by Synapse: root makes users with it.
      registration_shared_secret_path = "/var/lib/matrix-synapse/registration-secret";
    };
  };

  networking.hostName = "corral";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
