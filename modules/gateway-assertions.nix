# What concerns several options of the gateway at once, or options of others. Every message begins
# with the path of the option to change.
{ config, lib, ... }:
let
  cfg = config.services.a2a-gateway;
  derived = import ./gateway-derived.nix { inherit lib config; };
  cowboy = import ./derived.nix {
    inherit lib;
    cfg = config.services.cowboy;
  };
  checks = (import ./lib).checks;

  at = path: "services.a2a-gateway.${path}";
  problem = message: {
    assertion = false;
    inherit message;
  };
  problemIf = condition: path: text: lib.optional condition (problem "${at path}: ${text}");

  absent = lib.concatMap (
    agent:
    problemIf (!cowboy.agents ? ${agent}) "agents.${agent}" (
      "there is no services.cowboy.agents.${agent}, or it is disabled"
    )
  ) (lib.attrNames derived.agents);

  tokens = checks.repeated "token" (
    lib.mapAttrsToList (client: options: {
      option = at "clients.${client}.tokenFile";
      value = derived.tokenFile client options;
    }) derived.clients
  );

  settingsOfOurs = {
    agents = "has an option of its own, ${at "agents"}";
    clients = "has an option of its own, ${at "clients"}";
    metrics_dir = "is made by the modules; see services.cowboy.metrics.directory";
    redis_url = "is made by the modules";
    socket = "is made by the modules";
    socket_mode = "is made by the modules";
    state_dir = "is made by the modules";
  };
  foreignSettings = map (name: problem "${at "settings.${name}"}: ${settingsOfOurs.${name}}") (
    lib.attrNames (builtins.intersectAttrs cfg.settings settingsOfOurs)
  );

  # Every network of the host would be one of them, those of tomorrow too.
  wildcards = lib.concatMap (
    address:
    problemIf (lib.hasPrefix "0.0.0.0:" address || lib.hasPrefix "[::]:" address) "listen" (
      "${address} is every address of the host; name those of the private network"
    )
  ) cfg.listen;
  listened = checks.repeated "address" (
    lib.imap0 (number: value: {
      option = at "listen.${toString number}";
      inherit value;
    }) cfg.listen
  );

  # Who is the gateway's user reads its tokens and its tasks.
  users = lib.mapAttrsToList (agent: options: {
    option = "services.cowboy.agents.${agent}.user";
    value = options.user;
  }) cowboy.agents;
in
{
  config = lib.mkIf cfg.enable {
    assertions =
      problemIf (!config.services.cowboy.enable) "enable" "needs services.cowboy.enable"
      ++ problemIf (cfg.agents == { }) "agents" "at least one agent is needed"
      ++ problemIf (cfg.clients == { }) "clients" "at least one client is needed"
      ++ lib.optionals config.services.cowboy.enable absent
      ++ map problem (tokens ++ listened)
      ++ wildcards
      ++ foreignSettings
      ++ map problem (
        checks.repeated "user" (
          [
            {
              option = "services.a2a-gateway";
              value = derived.user;
            }
          ]
          ++ users
        )
      );
  };
}
