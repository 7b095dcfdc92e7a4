# From the options of the bridge to names, paths and the text of settings. Pure.
{ lib, config }:
let
  cfg = config.services.a2a-bridge;
  synapse = config.services.matrix-synapse;
  withoutNulls = lib.filterAttrs (_: value: value != null);
in
rec {
  user = "a2a-bridge";
  unit = "a2a-bridge";
  registrationUnit = "a2a-bridge-registration";

  state = "/var/lib/a2a-bridge";
  registrationDirectory = "/run/a2a-bridge-registration";
  registrationFile = "${registrationDirectory}/registration.yaml";

  # Whoever reads the registration beside the bridge.
  registrationGroup = if synapse.enable then "matrix-synapse" else user;

  # Synapse on SQLite begins its transaction numbers again at each start.
  synapseOnSqlite = synapse.enable && synapse.settings.database.name == "sqlite3";

  # What makes a request's identity known to each side: given as files, or made at the first boot.
  tokens = {
    as-token = cfg.asTokenFile;
    hs-token = cfg.hsTokenFile;
  };
  given = withoutNulls tokens;
  made = lib.attrNames (lib.filterAttrs (_: file: file == null) tokens);
  tokenFile = name: if given ? ${name} then given.${name} else "${state}/${name}";

  # By checked name: whatever is made of an agent, a name that is none is refused first.
  agents = lib.mapAttrs' (_: options: lib.nameValuePair options.name options) cfg.agents;

  agentCredentials = lib.mapAttrs' (
    agent: options: lib.nameValuePair "agent-${agent}" options.tokenFile
  ) (lib.filterAttrs (_: options: options.tokenFile != null) agents);

  credentials =
    lib.genAttrs (lib.attrNames tokens) tokenFile
    // lib.optionalAttrs (cfg.database.urlFile != null) { database = cfg.database.urlFile; }
    // agentCredentials;

  loadCredentials = lib.mapAttrsToList (name: file: "${name}:${file}");

  agentSettings =
    agent: options:
    withoutNulls (
      removeAttrs options [
        "_module"
        "name"
        "tokenFile"
      ]
    )
    // lib.optionalAttrs (options.tokenFile != null) {
      token_file = "/run/credentials/${unit}.service/agent-${agent}";
    };

  settingsText =
    builtins.toJSON (
      withoutNulls cfg.settings
      // {
        homeserver_url = cfg.homeserver.url;
        server_name = cfg.homeserver.domain;
        agents = lib.mapAttrs agentSettings agents;
      }
      # The server knows the user by the socket: there is no secret in it.
      // lib.optionalAttrs cfg.database.createLocally {
        database = "postgresql://${user}@/${user}?host=/run/postgresql";
      }
    )
    + "\n";
}
