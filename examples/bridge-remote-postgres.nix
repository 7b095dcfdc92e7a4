# The bridge alone on a host: homeserver, PostgreSQL and agents are elsewhere. All secrets are
# files, as agenix, sops-nix or a person puts them there. The registration is copied to the
# homeserver.
{ lib, ... }:
let
  secret = name: "/run/secrets/${name}";
in
{
  services.a2a-bridge = {
    enable = true;

    homeserver = {
      url = "https://matrix.example.org";
      domain = "example.org";
    };

    database = {
      createLocally = false;
      urlFile = secret "bridge-database";
    };
    asTokenFile = secret "bridge-as-token";
    hsTokenFile = secret "bridge-hs-token";

    agents = {
      scout = {
        url = "https://agents.example.org/scout/";
        display_name = "Scout";
        tokenFile = secret "scout-token";
        allowed_senders = [ "@*:example.org" ];
      };
      smith = {
        url = "http://192.0.2.20:8080/";
        task_timeout_s = 3600;
      };
    };

    settings = {
      # The homeserver calls from another host.
      listen_host = "192.0.2.7";
      concurrency = 32;
    };
  };

  networking.firewall.allowedTCPPorts = [ 29331 ];

  networking.hostName = "bridge";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
