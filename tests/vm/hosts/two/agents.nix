# The other of two machines: an agent, the gateway, a second process of the bridge. See rooms.nix.
{ pkgs, ... }:
{
  imports = [ ../../two.nix ];

  services.corral.enable = true;

  services.cowboy.agents.scout = {
    path = [ (import ../../agent.nix { inherit pkgs; }) ];
    runner = {
      kind = "exec";
      command = [ "corral-demo-agent" ];
      turn_timeout_s = 120;
      environment.DEMO_EFFECTS = "/var/lib/cowboy-agents/scout/effects.jsonl";
    };
  };

  services.a2a-gateway = {
    listen = [ "192.168.1.1:8080" ];
    clients.bridge.tokenFile = "/run/given/gateway-bridge";
  };
  systemd.services.given-secrets = rec {
    requiredBy = [ "a2a-gateway.service" ];
    before = requiredBy;
  };

  services.a2a-bridge = {
    database = {
      createLocally = false;
      urlFile = "/run/given/bridge-database";
    };
    settings.takes_transactions = false;
  };

  networking.firewall.allowedTCPPorts = [
    8080
    # Redis has it, where nobody else is: a refusal must not be the firewall's.
    6379
  ];
  networking.hostName = "agents";
  system.stateVersion = "26.05";
}
