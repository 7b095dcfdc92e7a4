# One host with one agent: Redis in its namespace, the daemon, the runner, a command that answers.
# Replace the file system, the boot loader and the command by your own.
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

    # Acknowledged at the hand-over; an interrupted turn is reported to its sender.
    sources.a2a = { };
    # Here to see that messages pass, without an agent.
    sources.echo.runner.kind = "echo";
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
