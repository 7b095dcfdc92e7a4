# Every secret comes as a file: from agenix, sops-nix or by hand. The files are read when the
# units start; none of them, and no path into the Nix store, is ever part of the configuration.
{ lib, pkgs, ... }:
{
  services.cowboy = {
    enable = true;

    # Passwords of the identities of Redis. What is not listed is made on the first boot.
    secrets.files = {
      redis-agent-scout = "/run/secrets/redis-agent-scout";
      "redis-source.scout.a2a" = "/run/secrets/redis-source-scout-a2a";
      redis-operator = "/run/secrets/redis-operator";
      redis-metrics = "/run/secrets/redis-metrics";
    };

    agents.scout = {
      runner = {
        kind = "exec";
        # A run finds its credentials as files in $CREDENTIALS_DIRECTORY.
        command = [
          "sh"
          "-c"
          "wc -c < \"$CREDENTIALS_DIRECTORY/api-key\""
        ];
      };
      path = [
        pkgs.bash
        pkgs.coreutils
      ];
      environmentFiles = [ "/run/secrets/scout.env" ];
      credentials.api-key = "/run/secrets/scout-api-key";
      sources.a2a = { };
    };
  };

  networking.hostName = "secrets";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
