# From the options of the gateway to names, paths and the text of settings. Pure.
{ lib, config }:
let
  cfg = config.services.a2a-gateway;
  cowboy = import ./derived.nix {
    inherit lib;
    cfg = config.services.cowboy;
  };
  inherit (cowboy) names;
  withoutNulls = lib.filterAttrs (_: value: value != null);
in
rec {
  user = "a2a-gateway";
  unit = "a2a-gateway";
  listenUnit = "a2a-gateway-listen";
  tokensUnit = "a2a-gateway-tokens";

  runtime = "/run/a2a-gateway";
  socket = "${runtime}/socket";
  state = "/var/lib/a2a-gateway";
  # The tokens that are made are apart from the tasks: their unit owns their folder.
  tokens = "/var/lib/a2a-gateway-tokens";

  # By checked name: whatever is made of one, a name that is none is refused first.
  byName = lib.mapAttrs' (_: options: lib.nameValuePair options.name options);
  agents = byName cfg.agents;
  clients = byName cfg.clients;

  tokenFile =
    client: options: if options.tokenFile != null then options.tokenFile else "${tokens}/${client}";
  made = lib.attrNames (lib.filterAttrs (_: options: options.tokenFile == null) clients);

  identity = agent: options: names.credential (names.identity.source agent options.source);

  # The passwords of the agents' sources are given by modules/clients.nix.
  loadCredential = lib.mapAttrsToList (
    client: options: "client-${client}:${tokenFile client options}"
  ) clients;
  credential = name: "/run/credentials/${unit}.service/${name}";

  metricsDirectory = config.services.cowboy.metrics.directory;

  settingsText =
    builtins.toJSON (
      lib.optionalAttrs (cfg.listen != [ ]) { base_url = "http://${lib.head cfg.listen}"; }
      // withoutNulls cfg.settings
      // {
        inherit socket;
        # 0660: its group may connect.
        socket_mode = 432;
        state_dir = state;
        redis_url = cowboy.redisUrl;
        agents = lib.mapAttrs (agent: options: {
          inherit (options) source description;
          password_file = credential (identity agent options);
        }) agents;
        clients = lib.mapAttrs (client: _: credential "client-${client}") clients;
      }
      // lib.optionalAttrs (metricsDirectory != null) { metrics_dir = metricsDirectory; }
    )
    + "\n";
}
