# The machine of most scenarios: two agents, and between them every policy.
{ pkgs, ... }:
let
  # Works for as long as its prompt says, and notes every effect; the judge counts them.
  agent = pkgs.writeShellScriptBin "corral-demo-agent" ''
    exec ${pkgs.python3}/bin/python3 -I -S ${../../../python/corral/local/agent.py}
  '';
  effects = name: "/var/lib/cowboy-agents/${name}/effects.jsonl";
  runner = name: {
    kind = "exec";
    command = [ "corral-demo-agent" ];
    turn_timeout_s = 120;
    environment.DEMO_EFFECTS = effects name;
  };
in
{
  services.corral.enable = true;

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

  networking.hostName = "machine";
  system.stateVersion = "26.05";
}
