# What concerns several options at once. All problems are told together; each names its
# option. Most duplicates cannot be written at all, since names are derived: they are
# checked all the same, so that a change of names.nix cannot merge two identities in silence.
let
  credentials = import ./credentials.nix;
  names = import ./names.nix;
  sockets = import ./sockets.nix;
  util = import ./util.nix;
  inherit (builtins) filter length stringLength;

  socket_path_max_bytes = 107;

  users =
    topology:
    util.concatMapToList (agent: options: [
      {
        option = "agents.${agent}.user";
        value = options.user;
      }
      {
        option = "agents.${agent}";
        value = names.daemonUser agent;
      }
    ]) topology.agents
    ++ [
      {
        option = "metrics.user";
        value = topology.metrics.user;
      }
    ];

  keys =
    topology:
    util.concatMapToList (
      agent: options:
      util.concatMapToList (
        source: _:
        util.mapToList (_: value: {
          option = "agents.${agent}.sources.${source}";
          inherit value;
        }) (names.keys agent source)
      ) options.sources
    ) topology.agents;

  identities =
    topology:
    map (holder: {
      inherit (holder) option;
      value = holder.identity;
    }) (credentials.holders topology);

  paths =
    topology:
    util.mapToList (name: value: {
      option = "paths.${name}";
      inherit value;
    }) topology.paths;

  rootAgents =
    topology:
    map (agent: "agents.${agent}.user: an agent must not run as root") (
      filter (agent: topology.agents.${agent}.user == "root") (builtins.attrNames topology.agents)
    );

  longSockets =
    topology:
    let
      bytes = socket: stringLength socket.value;
      long = filter (socket: bytes socket > socket_path_max_bytes) (sockets.all topology);
    in
    map (
      socket:
      "${socket.option}: the socket path ${socket.value} has ${toString (bytes socket)} bytes; "
      + "the kernel takes ${toString socket_path_max_bytes}"
    ) long;

  # An agent's runtime directory is that agent's alone.
  redisInAgent =
    topology:
    let
      inside = agent: util.hasPrefix "${sockets.directory topology agent}/" topology.redis.socket;
    in
    map (
      agent:
      "agents.${agent}: its runtime directory ${sockets.directory topology agent} would hold "
      + "redis.socket, ${topology.redis.socket}; rename the agent or move the socket"
    ) (filter inside (builtins.attrNames topology.agents));
in
rec {
  inherit (util) repeated;
  inherit socket_path_max_bytes;

  # Every message begins with the option's path, below `prefix`: "" or "services.cowboy.".
  problems =
    prefix: topology:
    let
      placed = map (entry: entry // { option = "${prefix}${entry.option}"; });
      again = what: entries: repeated what (placed (entries topology));
    in
    again "user" users
    ++ again "key" keys
    ++ again "identity" identities
    ++ again "path" paths
    ++ again "socket" sockets.all
    ++ map (message: "${prefix}${message}") (
      rootAgents topology ++ longSockets topology ++ redisInAgent topology
    );

  # The topology itself, or an error with every problem found.
  verified =
    topology:
    let
      found = problems "" topology;
    in
    if length found == 0 then topology else throw (builtins.concatStringsSep "\n" found);
}
