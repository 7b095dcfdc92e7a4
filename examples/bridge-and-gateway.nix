# A mention in a room reaches an agent of this host, by the preset; homeserver and PostgreSQL are
# elsewhere. The homeserver calls this host, and has a copy of the registration.
{ lib, pkgs, ... }:
{
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

  services.a2a-gateway.agents.scout.description = "Says it louder.";

  services.a2a-bridge = {
    homeserver = {
      url = "https://matrix.example.org";
      domain = "example.org";
    };
    database = {
      createLocally = false;
      urlFile = "/run/secrets/bridge-database";
    };
    agents.scout.display_name = "Scout";
    settings.listen_host = "192.0.2.7";
  };

  networking.firewall.allowedTCPPorts = [ 29331 ];

  networking.hostName = "corral";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
