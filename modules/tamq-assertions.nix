# What concerns several options of TAMQ at once, or options of others. Every message begins with
# the path of the option to change.
{ config, lib, ... }:
let
  cfg = config.services.tamq;
  cowboy = config.services.cowboy;
  derived = import ./tamq-derived.nix { inherit lib cfg; };
  agents = import ./derived.nix {
    inherit lib;
    cfg = cowboy;
  };
  checks = (import ./lib).checks;
  inherit (derived) users;

  longest = checks.socket_path_max_bytes;
  at = path: "services.tamq.${path}";
  problem = message: {
    assertion = false;
    inherit message;
  };
  each = set: problems: lib.concatLists (lib.mapAttrsToList problems set);
  missing = user: !(config.users.users ? ${user});

  roots = each users (
    user: _:
    lib.optional (user == "root") (
      problem "${at "users.root"}: TAMQ types into terminals; it must not run as root"
    )
  );

  missingUsers = each users (
    user: _:
    lib.optional (missing user) (
      problem "${at "users.${user}"}: there is no user ${user}; declare it in users.users"
    )
  );

  longSockets = each users (
    user: _:
    let
      socket = derived.longestSocket user;
      bytes = builtins.stringLength socket;
    in
    lib.optional (bytes > longest) (
      problem (
        "${at "runtimeDir"}: the socket path ${socket} has ${toString bytes} bytes; "
        + "the kernel takes ${toString longest}"
      )
    )
  );

  # They are made by the modules: a command finds the service by them.
  settingsOfOurs = {
    socket = "is made by the modules; see ${at "runtimeDir"}";
    state_dir = "is made by the modules";
  };
  foreignSettings = each users (
    user: options:
    map (name: problem "${at "users.${user}.settings.${name}"}: ${settingsOfOurs.${name}}") (
      lib.attrNames (builtins.intersectAttrs options.settings settingsOfOurs)
    )
  );

  # A user of a service of ours has no sessions, and whoever could write to its TAMQ would be it.
  servants =
    let
      entry = option: value: { inherit option value; };
    in
    lib.optional config.services.a2a-bridge.enable (entry "services.a2a-bridge" "a2a-bridge")
    ++ lib.optional config.services.a2a-gateway.enable (entry "services.a2a-gateway" "a2a-gateway")
    ++ lib.optionals cowboy.enable (
      [ (entry "services.redis.servers.cowboy.user" config.services.redis.servers.cowboy.user) ]
      ++ map (
        agent:
        entry "the daemon of services.cowboy.agents.${agent}" (agents.names.daemonUser agent)
      ) (lib.attrNames agents.agents)
    );
  own = map (user: {
    option = at "users.${user}";
    value = user;
  }) (lib.attrNames users);

  # Two names of one uid are one user to the kernel, whatever they are called.
  uids =
    entries:
    lib.concatMap (
      entry:
      let
        uid = config.users.users.${entry.value}.uid or null;
      in
      lib.optional (uid != null) (entry // { value = toString uid; })
    ) entries;

  # The runner asks its own user's TAMQ, and nobody else's would answer.
  wakers = lib.optionals cowboy.enable (
    each agents.agents (
      agent: options:
      lib.optional (agents.wakes options && !(users ? ${options.user})) (
        problem (
          "services.cowboy.agents.${agent}: it wakes sessions of ${options.user}, who has no TAMQ; "
          + "set ${at "users.${options.user}"}"
        )
      )
    )
  );

  directories =
    lib.optionals cowboy.enable (
      lib.concatMap (agent: [
        {
          option = "services.cowboy.agents.${agent}";
          value = agents.daemonDirectory agent;
        }
        {
          option = "services.cowboy.agents.${agent}";
          value = agents.runnerDirectory agent;
        }
      ]) (lib.attrNames agents.agents)
    )
    ++ map (user: {
      option = at "users.${user}";
      value = derived.directory user;
    }) (lib.attrNames users);
in
{
  config.assertions =
    wakers
    ++ lib.optionals (users != { }) (
      roots
      ++ missingUsers
      ++ longSockets
      ++ foreignSettings
      ++ map problem (
        checks.repeated "user" (servants ++ own)
        ++ checks.repeated "uid" (
          [
            {
              option = "users.users.root";
              value = "0";
            }
          ]
          ++ uids (servants ++ own)
        )
        ++ checks.repeated "directory" directories
      )
    );
}
