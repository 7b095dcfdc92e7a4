# Two people of one host, each with a TAMQ of their own: a message that is sent to a repository
# wakes the session that works on it. The sessions are theirs, in tmux or under `tamq run`.
{ lib, pkgs, ... }:
{
  services.tamq.users = {
    alice = { };

    bob.settings = {
      # Where bob told gita to keep its files.
      gita_repos = "/srv/bob/gita/repos.csv";
      # Slow programs need longer to acknowledge.
      ack_deadline_ms = 120000;
      retention_days = 7;
      # A program of bob's own beside the built-in ones.
      profiles = pkgs.writeText "profiles.toml" ''
        [helper]
        layout = "line"
        prompt = 'helper> ?'
      '';
    };
  };

  users.users = {
    alice = {
      isNormalUser = true;
      uid = 1000;
    };
    bob = {
      isNormalUser = true;
      uid = 1001;
    };
  };

  environment.systemPackages = [ pkgs.tmux ];

  networking.hostName = "terminals";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
