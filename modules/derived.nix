# From the options to what modules/lib derives from a topology. Pure: the modules beside this
# file take everything that is a name, a path or a table from here.
{ lib, cfg }:
let
  corral = import ./lib;
  inherit (corral) names;

  withoutNulls = lib.filterAttrs (_: value: value != null);

  # By checked name: whatever is made of an agent, a name that is none is refused first.
  byName = lib.mapAttrs' (_: options: lib.nameValuePair options.name options);

  agents = byName (lib.filterAttrs (_: agent: agent.enable) cfg.agents);

  runnerOf =
    agent: source:
    if source.runner != null then
      source.runner
    else if agent.runner != null then
      agent.runner
    else
      noRunner;

  # Stands in until assertions.nix has said that there is none.
  noRunner = {
    kind = "echo";
  };

  runner =
    agent: options:
    withoutNulls (
      if options.kind == "exec" then
        removeAttrs options [
          "_module"
          "repo"
        ]
      else if options.kind == "tamq" then
        {
          inherit (options)
            kind
            repo
            reply_max_bytes
            turn_timeout_s
            ;
          socket = "${cfg.tamqDirectory}/${agent.user}/tamq.sock";
        }
      else
        {
          inherit (options) kind;
          reply_max_bytes = options.reply_max_bytes or null;
        }
    );

  source =
    agent: options:
    withoutNulls (
      removeAttrs options [
        "_module"
        "name"
        "client"
        "runner"
      ]
    )
    // {
      client = { inherit (options.client) units; };
      runner = runner agent (runnerOf agent options);
    };

  paths = {
    config = "/etc/cowboy";
    state = "/var/lib/cowboy";
    runtime = cfg.runtimeDir;
  };

  topology = corral.topology "services.cowboy." {
    agents = lib.mapAttrs (_: agent: {
      inherit (agent) user;
      limits = withoutNulls (removeAttrs agent.limits [ "_module" ]);
      sources = lib.mapAttrs (_: source agent) (byName agent.sources);
    }) agents;
    inherit paths;
    redis.settings = {
      inherit (cfg.redis) maxmemory;
    }
    // cfg.redis.settings;
  };

  credentials = corral.credentials.table topology;
in
rec {
  inherit
    agents
    corral
    credentials
    names
    paths
    topology
    ;

  user_name_max_bytes = 31;

  # NixOS itself ends at a longer name, without a word of the option that it came from;
  # assertions.nix has that word.
  withUsers = lib.filterAttrs (
    agent: _: builtins.stringLength (names.daemonUser agent) <= user_name_max_bytes
  ) agents;

  # Fixed names, each in one place.
  units = {
    namespace = "cowboy-ns.service";
    secrets = "cowboy-secrets.service";
    redis = "redis-cowboy.service";
  };

  namespacePath = "/run/netns/${cfg.namespace.name}";
  aclFile = "${paths.runtime}/redis.acl";
  environmentFile = "${paths.runtime}/operator-redis.env";
  redisUrl = "redis://127.0.0.1:${toString cfg.redis.port}";

  # The runner's socket and records are apart from the daemon's: another user owns them.
  runnerRuntime = "${paths.runtime}-runner";
  daemonDirectory = agent: "${paths.runtime}/${agent}";
  runnerDirectory = agent: "${runnerRuntime}/${agent}";
  agentHome = agent: "/var/lib/cowboy-agents/${agent}";

  secretFile =
    credential: cfg.secrets.files.${credential} or "${cfg.secrets.directory}/${credential}";

  # "name:file" as LoadCredential= takes it.
  loadCredential = as: credential: "${as}:${secretFile credential}";

  clients = lib.concatLists (
    lib.mapAttrsToList (
      agent: options:
      lib.concatLists (
        lib.mapAttrsToList (
          source: set:
          map (unit: {
            inherit unit;
            option = "services.cowboy.agents.${agent}.sources.${source}.client.units";
            credential = names.credential (names.identity.source agent source);
          }) set.client.units
        ) options.sources
      )
    ) topology.agents
  );

  members = lib.unique (
    [ units.redis ]
    ++ lib.concatMap (agent: [
      (names.daemonUnit agent)
      (names.runnerUnit agent)
    ]) (lib.attrNames topology.agents)
    ++ map (client: client.unit) clients
  );

  # What every member of the namespace says of it.
  membership = {
    bindsTo = [ units.namespace ];
    after = [ units.namespace ];
    serviceConfig.NetworkNamespacePath = namespacePath;
  };

  # What every holder of a secret says of the unit that makes it: no start without it, and a
  # restart of that unit, which is how a secret is changed, restarts the holder.
  holder = {
    requires = [ units.secrets ];
    after = [ units.secrets ];
  };

  # Whether live sessions of the agent's user answer.
  wakes =
    agent: lib.any (source: (runnerOf agent source).kind == "tamq") (lib.attrValues agent.sources);

  serviceName = lib.removeSuffix ".service";

  sourcesText =
    agent: builtins.toJSON (corral.sources.file agent topology.agents.${agent}) + "\n";
}
