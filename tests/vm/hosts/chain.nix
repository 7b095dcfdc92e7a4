# Everything on one machine, as the preset wires it: from a mention in a room of Synapse over
# bridge, gateway, Redis and cowboy to an agent, and back.
{ pkgs, ... }:
{
  imports = [ ../rooms.nix ];

  services.corral.enable = true;

  services.cowboy = {
    metrics.directory = "/var/lib/metrics";
    agents.scout = {
      path = [ (import ../agent.nix { inherit pkgs; }) ];
      runner = {
        kind = "exec";
        command = [ "corral-demo-agent" ];
        turn_timeout_s = 120;
        environment.DEMO_EFFECTS = "/var/lib/cowboy-agents/scout/effects.jsonl";
      };
    };
  };

  networking.hostName = "machine";
  system.stateVersion = "26.05";
}
