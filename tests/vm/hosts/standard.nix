# The machine of most scenarios: two agents, and between them every policy; two people, each with
# a TAMQ.
{ pkgs, ... }:
let
  agent = import ../agent.nix { inherit pkgs; };
  effects = name: "/var/lib/cowboy-agents/${name}/effects.jsonl";
  runner = name: {
    kind = "exec";
    command = [ "corral-demo-agent" ];
    turn_timeout_s = 120;
    environment.DEMO_EFFECTS = effects name;
  };
in
{
  services.cowboy.enable = true;

  services.cowboy.agents.scout = {
    path = [ agent ];
    sources.a2a.runner = runner "scout";
    sources.chat = {
      ack = "reply";
      on_interrupt = "resume";
      runner = runner "scout";
    };
    sources.echo.runner.kind = "echo";
  };

  # Beside it, to see that they are kept apart.
  services.cowboy.agents.smith.sources.echo.runner.kind = "echo";

  services.tamq.users = {
    alice = { };
    bob = { };
  };
  users.users = {
    alice.isNormalUser = true;
    bob.isNormalUser = true;
  };

  networking.hostName = "machine";
  system.stateVersion = "26.05";
}
