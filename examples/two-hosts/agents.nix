# The other of two hosts: an agent, the gateway, and a second process of the bridge. Rooms and the
# database are on rooms.nix. When the bridge there dies, this one takes over what is in work; what
# is said meanwhile Synapse keeps until it is back.
{ lib, pkgs, ... }:
{
  imports = [ ./both.nix ];

  # cowboy, the gateway with every agent, the bridge.
  services.corral.enable = true;

  services.cowboy.agents.scout = {
    runner = {
      kind = "exec";
      command = [
        "tr"
        "a-z"
        "A-Z"
      ];
    };
    path = [ pkgs.coreutils ];
  };

  services.a2a-gateway = {
    # The gateway itself listens on a socket of this host; what comes here is passed on to it.
    listen = [ "192.0.2.20:8080" ];
    clients.bridge.tokenFile = "/run/secrets/gateway-bridge";
  };

  services.a2a-bridge = {
    database = {
      createLocally = false;
      # postgresql://a2a-bridge:PASSWORD@192.0.2.10/a2a-bridge
      urlFile = "/run/secrets/bridge-database";
    };
    # Synapse calls the process of its own host, so this one must not be the one that it looks for.
    settings.takes_transactions = false;
  };

  networking.firewall.interfaces.wg0.allowedTCPPorts = [ 8080 ];

  networking.hostName = "agents";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
