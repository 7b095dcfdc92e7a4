# One agent is switched off: no identity, no unit and no user of it is left. Its ledger and its
# streams stay, and it goes on where it was when it is switched on again. Another runs as a
# person's own user, beside that person's terminals.
{ lib, pkgs, ... }:
{
  services.cowboy = {
    enable = true;

    agents.scout = {
      enable = false;
      runner.kind = "echo";
      sources.a2a = { };
    };

    agents.helper = {
      user = "alice";
      runner = {
        kind = "exec";
        command = [ "cat" ];
      };
      path = [ pkgs.coreutils ];
      sources.notes = { };
    };
  };

  users.users.alice = {
    isNormalUser = true;
    uid = 1000;
  };

  networking.hostName = "switched-off";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
