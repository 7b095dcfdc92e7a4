# The ACL file, one line a user. Written for Redis 7.0 and Valkey: allow-lists only (a newer
# server adds nothing to an identity), no comments (the servers refuse them), no
# client|setinfo (7.0 does not know it). "@<credential>@" stands for the SHA-256 of that
# credential's value; it is filled in when the server starts, never here.
#
# %R~ and %W~ follow the servers' own key flags, which the contract tests measure: to them
# XREADGROUP reads; XADD, XAUTOCLAIM, XACK, XTRIM and XGROUP CREATE write; EVALSHA does both.
let
  names = import ./names.nix;
  util = import ./util.nix;
  inherit (util) words;

  # What a client sends before its first command, and to see that the server lives.
  handshake = [
    "+hello"
    "+auth"
    "+ping"
  ];

  user =
    identity: rules:
    words (
      [
        "user ${identity} on #@${names.credential identity}@ resetchannels -@all"
      ]
      ++ rules
    );

  # A selector stands alone: its verbs reach its keys and no others.
  selector = rules: "(${words rules})";

  # Off, so nobody can be it; but Redis 7.0 replays its append-only file as this user and checks
  # the commands of a transaction. Without the right to write, a restart drops every script's work.
  default = "user default off resetpass ~* resetchannels -@all +@write";

  # The wait, the poll, the trim, the outbox script. No XPENDING: the agent has no use for it.
  agent =
    name:
    user (names.identity.agent name) (
      [ "~${names.agentPattern name}" ]
      ++ handshake
      ++ [
        "+xgroup|create"
        "+xreadgroup"
        "+xread"
        "+xautoclaim"
        "+xrange"
        "+xtrim"
        "+xadd"
        "+xack"
        "+get"
        "+set"
        "+incr"
        "+hget"
        "+hset"
        "+hdel"
        "+hkeys"
        "+evalsha"
        "+script|load"
      ]
    );

  # The producer of one inbox and the reader of its outbox. EVALSHA admits only these two
  # keys, and the server checks every command inside a script against this line as well.
  source =
    agentName: name:
    let
      keys = names.keys agentName name;
    in
    user (names.identity.source agentName name) (
      handshake
      ++ [
        "+script|load"
        (selector [
          "%W~${keys.inbox}"
          "+xadd"
        ])
        (selector [
          "%R~${keys.sent}"
          "+hget"
          "+hkeys"
        ])
        (selector [
          "%W~${keys.sent}"
          "+hset"
          "+hdel"
        ])
        (selector [
          "~${keys.inbox}"
          "~${keys.sent}"
          "+evalsha"
        ])
        (selector [
          "%R~${keys.outbox}"
          "+xreadgroup"
        ])
        (selector [
          "%W~${keys.outbox}"
          "+xautoclaim"
          "+xack"
          "+xtrim"
          "+xgroup|create"
        ])
      ]
    );

  # A person: reads everything, adds to inboxes. An interactive redis-cli begins with COMMAND.
  operator = user names.identity.operator (
    [ "%R~*" ]
    ++ handshake
    ++ [
      "+command"
      "+dbsize"
      "+scan"
      "+exists"
      "+type"
      "+ttl"
      "+pttl"
      "+get"
      "+strlen"
      "+hget"
      "+hmget"
      "+hgetall"
      "+hexists"
      "+hlen"
      "+hkeys"
      "+hscan"
      "+xlen"
      "+xrange"
      "+xrevrange"
      "+xread"
      "+xinfo"
      "+xpending"
      (selector [
        "%W~*:inbox"
        "+xadd"
      ])
    ]
  );

  # INFO is @dangerous to the servers: granted alone, never by its category.
  metrics = user names.identity.metrics (
    [
      "%R~*:inbox"
      "%R~*:outbox"
      "%R~*:inbox:dead"
    ]
    ++ handshake
    ++ [
      "+info"
      "+xinfo"
      "+xlen"
    ]
  );
in
{
  lines =
    topology:
    [ default ]
    ++ map agent (builtins.attrNames topology.agents)
    ++ util.concatMapToList (
      agentName: options: map (source agentName) (builtins.attrNames options.sources)
    ) topology.agents
    ++ [
      operator
      metrics
    ];
}
