# What concerns several options of the bridge at once, or options of others. Every message begins
# with the path of the option to change.
{ config, lib, ... }:
let
  cfg = config.services.a2a-bridge;
  cowboy = config.services.cowboy;
  derived = import ./bridge-derived.nix { inherit lib config; };
  agents = import ./derived.nix {
    inherit lib;
    cfg = cowboy;
  };
  checks = (import ./lib).checks;

  at = path: "services.a2a-bridge.${path}";
  problem = message: {
    assertion = false;
    inherit message;
  };
  problemIf = condition: path: text: lib.optional condition (problem "${at path}: ${text}");

  withoutSynapse =
    "is needed, because there is no Synapse on this host"
    + lib.optionalString config.services.corral.enable (
      "; services.corral.enable has switched the bridge on, and ${at "enable"} = false does without"
    );
  homeserver =
    problemIf (cfg.homeserver.url == null) "homeserver.url" withoutSynapse
    ++ problemIf (cfg.homeserver.domain == null) "homeserver.domain" withoutSynapse;

  database =
    problemIf (cfg.database.createLocally && cfg.database.urlFile != null) "database.urlFile" (
      "is not used with a database on this host; set ${at "database.createLocally"} to false"
    )
    ++ problemIf (!cfg.database.createLocally && cfg.database.urlFile == null) "database.urlFile" (
      "is needed, because ${at "database.createLocally"} is false"
    );

  tokens =
    problemIf (cfg.asTokenFile != null && cfg.asTokenFile == cfg.hsTokenFile) "hsTokenFile"
      "is also ${at "asTokenFile"}; each side proves itself with a token of its own";

  secret = path: "is a secret, and settings are in the Nix store; see ${at path}";
  elsewhere = path: "has an option of its own, ${at path}";
  settingsOfOurs = {
    agents = elsewhere "agents";
    as_token = secret "asTokenFile";
    hs_token = secret "hsTokenFile";
    database = secret "database";
    homeserver_url = elsewhere "homeserver.url";
    server_name = elsewhere "homeserver.domain";
  };
  foreignSettings = map (name: problem "${at "settings.${name}"}: ${settingsOfOurs.${name}}") (
    lib.attrNames (builtins.intersectAttrs cfg.settings settingsOfOurs)
  );

  # Who is the bridge's user reads its tokens and its ledger.
  users = lib.optionals cowboy.enable (
    lib.mapAttrsToList (agent: options: {
      option = "services.cowboy.agents.${agent}.user";
      value = options.user;
    }) agents.agents
  );
in
{
  config = lib.mkIf cfg.enable {
    assertions =
      homeserver
      ++ database
      ++ tokens
      ++ foreignSettings
      ++ problemIf (cfg.agents == { }) "agents" "at least one agent is needed"
      ++ map problem (
        checks.repeated "user" (
          [
            {
              option = "services.a2a-bridge";
              value = derived.user;
            }
          ]
          ++ users
        )
      );
  };
}
