# The one place where names are made: keys, identities, credentials, users, units.
# Agent and source names become ACL patterns, key prefixes, users and paths, so their
# alphabet holds none of the separators: ':' in keys, '.' in identities, '/' in paths, and
# no glob character. That is why agent "a-b" with source "c" never meets agent "a" with
# source "b-c": a-b:c:inbox and a:b-c:inbox, source.a-b.c and source.a.b-c.
let
  types = import ./types.nix;
  util = import ./util.nix;
in
rec {
  name = types.matching {
    pattern = "[a-z][a-z0-9-]*";
    max_bytes = 31;
    meaning = "a name of a-z, 0-9 and '-' that begins with a letter";
  };

  user = types.matching {
    pattern = "[a-z_][a-z0-9_-]*";
    max_bytes = 31;
    meaning = "a user name of a-z, 0-9, '_' and '-' that begins with a letter or '_'";
  };

  unit = types.matching {
    pattern = "[A-Za-z0-9_@.-]+[.]service";
    max_bytes = 255;
    meaning = "the name of a systemd service, such as \"a2a-gateway.service\"";
  };

  # The keys of one source. Python's configuration model refuses any other stream and outbox.
  keys =
    agent: source:
    let
      key = part: "${agent}:${source}:${part}";
    in
    {
      inbox = key "inbox";
      outbox = key "outbox";
      sent = key "sent";
      replies = key "replies";
      ledger = key "ledger";
      fence = key "fence";
      dead = "${key "inbox"}:dead";
    };

  agentPattern = agent: "${agent}:*";

  group = "cowboy";
  consumer = source: "harness-${source}";

  identity = {
    agent = agent: "agent-${agent}";
    source = agent: source: "source.${agent}.${source}";
    operator = "operator";
    metrics = "metrics";
  };

  credential = identity: "redis-${identity}";

  daemonUser = agent: "cowboy-${agent}";
  daemonUnit = agent: "cowboy-${agent}.service";
  runnerUnit = agent: "cowboy-runner-${agent}.service";

  # Units of the deployment itself that begin as an agent's units do; and an agent "runner-x"
  # would meet the runner of agent "x". Such names are no names of agents where units are made.
  reservedAgent =
    agent:
    builtins.elem agent [
      "ns"
      "rotate"
      "secrets"
    ]
    || util.hasPrefix "runner-" agent;
}
