# The namespace has another name, Redis another port, and the agent's runs may reach one address.
{ lib, pkgs, ... }:
{
  services.cowboy = {
    enable = true;

    namespace = {
      name = "agents-ns";
      egress = [
        {
          address = "203.0.113.7";
          port = 443;
        }
        # Names are resolved inside only when a name server may be reached, too.
        {
          address = "203.0.113.53";
          protocol = "udp";
          port = 53;
        }
      ];
    };
    redis = {
      port = 6380;
      maxmemory = "1gb";
    };

    agents.scout = {
      runner = {
        kind = "exec";
        command = [ "cat" ];
      };
      path = [ pkgs.coreutils ];
      sources.a2a = { };
    };
  };

  networking.hostName = "renamed";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
