# The preset: what carries a mention in a room to an agent of this host and its answer back, wired
# together. It only sets defaults. Synapse is not among them: it needs a name that is yours.
{ config, lib, ... }:
let
  inherit (lib) mapAttrs mkDefault mkIf;
  inherit (config) services;
  gateway = services.a2a-gateway;
  bridge = services.a2a-bridge;
  derived = import ./derived.nix {
    inherit lib;
    cfg = services.cowboy;
  };

  # Of the gateway: the bridge is one among others.
  client = "bridge";
  urlOf = agent: "unix:${gateway.socket}:/a2a/${agent}/";

  # An agent of that name elsewhere is not told the token of this host's.
  isHere = agent: gateway.clients ? ${client} && bridge.agents.${agent}.url == urlOf agent;

  tamqOf = lib.mapAttrs' (_: agent: lib.nameValuePair agent.user (mkDefault { })) (
    lib.filterAttrs (_: derived.wakes) derived.agents
  );
in
{
  options.services.corral.enable = lib.mkEnableOption ''
    the parts of Corral, wired together on one host: cowboy, a TAMQ for each user whose sessions an
    agent's runner wakes, the gateway with every agent of `services.cowboy.agents` by its source
    `a2a`, and the bridge, in whose rooms each of them can be mentioned. Each part is switched on
    and set up by defaults, so that anything can be set otherwise'';

  config = mkIf services.corral.enable {
    services.cowboy.enable = mkDefault true;

    services.tamq.users = tamqOf;

    services.a2a-gateway = {
      enable = mkDefault true;
      agents = mapAttrs (_: _: mkDefault { }) derived.agents;
      clients = mkIf bridge.enable { ${client} = mkDefault { }; };
    };

    services.a2a-bridge = {
      enable = mkDefault true;
      agents = mkIf (bridge.enable && gateway.enable) (
        mapAttrs (agent: _: {
          url = mkDefault (urlOf agent);
          tokenFile = mkIf (isHere agent) (mkDefault gateway.clients.${client}.tokenPath);
          # The gateway knows a message that comes again.
          idempotent = mkDefault true;
        }) gateway.agents
      );
    };
  };
}
