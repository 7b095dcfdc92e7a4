# Two agents with three sources each. What writes their inboxes and reads their outboxes is
# elsewhere: here it is a service of this host, which gets the password of each source it serves.
{ lib, pkgs, ... }:
let
  exec = command: {
    kind = "exec";
    inherit command;
  };
  # The gateway of your choice. It finds its passwords below $CREDENTIALS_DIRECTORY.
  gateway = [ "my-gateway.service" ];
in
{
  services.cowboy = {
    enable = true;

    agents.scout = {
      path = [ pkgs.coreutils ];
      runner = exec [
        "tr"
        "a-z"
        "A-Z"
      ];
      limits.turns_concurrent_max = 4;
      sources = {
        a2a = {
          client.units = gateway;
        };
        # Acknowledged together with the answer; an interrupted turn is run again.
        chat = {
          ack = "reply";
          on_interrupt = "resume";
          client.units = gateway;
        };
        # An interrupted turn waits for a person.
        deploy = {
          on_interrupt = "hold";
          turns_concurrent_max = 1;
          client.units = gateway;
        };
      };
    };

    agents.smith = {
      path = [ pkgs.util-linux ];
      runner = exec [ "rev" ];
      sources = {
        a2a = { };
        mail.reclaim_idle_ms = 60000;
        echo.runner.kind = "echo";
      };
    };
  };

  systemd.services.my-gateway = {
    description = "Stands for the service that speaks to the agents";
    wantedBy = [ "multi-user.target" ];
    serviceConfig = {
      ExecStart = "${pkgs.coreutils}/bin/sleep infinity";
      DynamicUser = true;
    };
  };

  networking.hostName = "agents";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
