# What concerns several options at once, or options of others. Types are checked before, and
# what concerns the topology alone is in lib/checks.nix. Every message begins with the path of
# the option to change.
{ config, lib, ... }:
let
  cfg = config.services.cowboy;
  derived = import ./derived.nix { inherit lib cfg; };
  inherit (derived) agents names topology;

  longest = derived.corral.checks.socket_path_max_bytes;
  at = path: "services.cowboy.${path}";

  problem = message: {
    assertion = false;
    inherit message;
  };
  each = set: problems: lib.concatLists (lib.mapAttrsToList problems set);

  missingRunners = each agents (
    agent: options:
    each options.sources (
      source: set:
      lib.optional (set.runner == null && options.runner == null) {
        assertion = false;
        message =
          "${at "agents.${agent}.sources.${source}.runner"}: is not set, and neither is "
          + at "agents.${agent}.runner";
      }
    )
  );

  # A problem for each runner, of an agent or of a source, of which `wrong` is true.
  ofRunners =
    wrong: option: text:
    each agents (
      agent: options:
      each ({ "" = options.runner; } // lib.mapAttrs (_: set: set.runner) options.sources) (
        source: runner:
        let
          place = if source == "" then "runner" else "sources.${source}.runner";
        in
        lib.optional (runner != null && wrong runner) (
          problem "${at "agents.${agent}.${place}.${option}"}: ${text}"
        )
      )
    );

  missingCommands = ofRunners (
    runner: runner.kind == "exec" && runner.command == [ ]
  ) "command" "is empty; kind \"exec\" needs one";

  missingRepos = ofRunners (
    runner: runner.kind == "tamq" && runner.repo == null
  ) "repo" "is not set; kind \"tamq\" needs one";

  # They are in a file that everybody reads, and these are not for a host to choose.
  settingsOfOurs = {
    config_dir = "is made by the modules";
    daemon_user = "is made by the modules";
    redis_password = "is a secret, and would be in the Nix store; the daemon has its own";
    redis_url = "is made by the modules";
    redis_username = "is made by the modules";
    runner_dir = "is made by the modules";
    runner_user = "is made by the modules";
    runtime_dir = "is made by the modules; see ${at "runtimeDir"}";
    state_dir = "is made by the modules";
  };
  foreignSettings = each agents (
    agent: options:
    map (name: problem "${at "agents.${agent}.settings.${name}"}: ${settingsOfOurs.${name}}") (
      lib.attrNames (builtins.intersectAttrs options.settings settingsOfOurs)
    )
  );

  longUsers = each agents (
    agent: _:
    let
      user = names.daemonUser agent;
      bytes = builtins.stringLength user;
    in
    lib.optional (bytes > derived.user_name_max_bytes) (
      problem (
        "${at "agents.${agent}"}: its daemon's user ${user} has ${toString bytes} bytes; "
        + "the system takes ${toString derived.user_name_max_bytes}"
      )
    )
  );

  longSockets = each agents (
    agent: _:
    let
      socket = "${derived.runnerDirectory agent}/runner.sock";
      bytes = builtins.stringLength socket;
    in
    lib.optional (bytes > longest) (
      problem (
        "${at "runtimeDir"}: the socket path ${socket} has ${toString bytes} bytes; "
        + "the kernel takes ${toString longest}"
      )
    )
  );

  missingUsers = each agents (
    agent: options:
    lib.optional (!options.createUser && !(config.users.users ? ${options.user})) (
      problem (
        "${at "agents.${agent}.user"}: there is no user ${options.user}; declare it, "
        + "or set ${at "agents.${agent}.createUser"}"
      )
    )
  );

  # Two names of one uid are one user to the kernel, whatever they are called.
  usersWithUid =
    let
      entry =
        option: user:
        let
          uid = config.users.users.${user}.uid or null;
        in
        lib.optional (uid != null) {
          inherit option;
          value = toString uid;
        };
    in
    [
      {
        option = "users.users.root";
        value = "0";
      }
    ]
    ++ entry "users.users.redis-cowboy" config.services.redis.servers.cowboy.user
    ++ each agents (
      agent: options:
      entry (at "agents.${agent}.user") options.user
      ++ entry (at "agents.${agent}") (names.daemonUser agent)
    );

  unknownSecrets = each cfg.secrets.files (
    credential: _:
    lib.optional (!(derived.credentials ? ${credential})) (
      problem (
        "${at "secrets.files.${credential}"}: no identity has this credential; there are: "
        + lib.concatStringsSep ", " (lib.attrNames derived.credentials)
      )
    )
  );

  missingClients = lib.concatMap (
    client:
    let
      service = config.systemd.services.${derived.serviceName client.unit};
    in
    lib.optional (!(service.serviceConfig ? ExecStart) && service.script == "") (
      problem "${client.option}: there is no service ${client.unit}; declare it in systemd.services"
    )
  ) derived.clients;

  server = config.services.redis.servers.cowboy;
  redisServer =
    let
      place = path: "services.redis.servers.cowboy.${path}";
      must = option: wanted: reason: {
        assertion = server.${option} == wanted;
        message = "${place option}: ${reason}";
      };
      durable = "an entry whose XADD was answered must survive a power failure";

      setting = name: wanted: {
        assertion = server.settings.${name} == wanted;
        message = "${place "settings.${name}"}: must be ${builtins.toJSON wanted}";
      };
      # The server takes settings in upper and lower case, and the last one wins. What an option
      # of nixpkgs' module has set is told above, with the path of that option.
      without = {
        appendonly = true;
        replicaof = true;
        requirepass = server.requirePass == null;
        slaveof = server.slaveOf == null;
        unixsocket = server.unixSocket == null;
        user = true;
      };
      unwanted = name: name != "appendOnly" && without.${lib.toLower name} or false;
    in
    [
      (must "unixSocket" null "must be null: a socket would cross the network namespace")
      (must "requirePass" null "must be null: who may do what is in the ACL file")
      (must "requirePassFile" null "must be null: who may do what is in the ACL file")
      (must "bind" "127.0.0.1" "must be 127.0.0.1, the loopback interface of the namespace")
      (must "openFirewall" false "must be false: nobody outside of the namespace is served")
      (must "appendOnly" true "must be true: ${durable}")
      (must "appendFsync" "always" "must be \"always\": ${durable}")
      (must "slaveOf" null "must be null: replication is asynchronous and loses answered entries")
    ]
    ++ lib.mapAttrsToList setting {
      aclfile = derived.aclFile;
      inherit (server) appendOnly;
      appendfsync = server.appendFsync;
      maxmemory-policy = "noeviction";
      no-appendfsync-on-rewrite = "no";
    }
    ++ map (
      name: problem "${place "settings.${name}"}: must not be set: it undoes what is promised"
    ) (lib.filter unwanted (lib.attrNames server.settings));
in
{
  config = lib.mkIf cfg.enable {
    assertions =
      map problem (derived.corral.checks.problems "services.cowboy." topology)
      ++ missingRunners
      ++ missingCommands
      ++ missingRepos
      ++ foreignSettings
      ++ longUsers
      ++ longSockets
      ++ missingUsers
      ++ map problem (derived.corral.checks.repeated "uid" usersWithUid)
      ++ unknownSecrets
      ++ missingClients
      ++ redisServer;
  };
}
