"""Names and options that must be refused."""

from tests.nix.topologies import ECHO, LIMITS, Refusal, agent, agents, exec_with, runner, source

NAME = "must be a name of a-z, 0-9 and '-' that begins with a letter, not"
SOURCE_OPTIONS = ", ".join(sorted((*LIMITS, "ack", "client", "on_interrupt", "runner")))

NAMES = (
    Refusal("star", agents(f'{{ "*".sources.s = {ECHO}; }}'), f'agents."*": {NAME} "*"'),
    Refusal("colon", agents(f'{{ "a:b".sources.s = {ECHO}; }}'), f'agents."a:b": {NAME} "a:b"'),
    Refusal("dot", agents(f'{{ "a.b".sources.s = {ECHO}; }}'), f'agents."a.b": {NAME} "a.b"'),
    Refusal("slash", agents(f'{{ "../x".sources.s = {ECHO}; }}'), f'agents."../x": {NAME} "../x"'),
    Refusal("space", agents(f'{{ "a b".sources.s = {ECHO}; }}'), f'agents."a b": {NAME} "a b"'),
    Refusal("newline", agents(f'{{ "a\\n".sources.s = {ECHO}; }}'), rf'agents."a\n": {NAME} "a\n"'),
    Refusal("empty", agents(f'{{ "".sources.s = {ECHO}; }}'), 'agents."": must not be empty'),
    Refusal("capital", agents(f"{{ A.sources.s = {ECHO}; }}"), f'agents.A: {NAME} "A"'),
    Refusal("digit", agents(f'{{ "1a".sources.s = {ECHO}; }}'), f'agents."1a": {NAME} "1a"'),
    Refusal("dash", agents(f'{{ "-a".sources.s = {ECHO}; }}'), f'agents."-a": {NAME} "-a"'),
    Refusal("letter", agents(f'{{ "ä".sources.s = {ECHO}; }}'), f'agents."ä": {NAME} "ä"'),
    Refusal(
        "placeholder", agents(f'{{ "@x@".sources.s = {ECHO}; }}'), f'agents."@x@": {NAME} "@x@"'
    ),
    Refusal(
        "long",
        agents(f"{{ {'a' * 32}.sources.s = {ECHO}; }}"),
        f"agents.{'a' * 32}: must have at most 31 bytes, not 32",
    ),
    Refusal(
        "huge",
        agents(f"{{ {'a' * 100_000}.sources.s = {ECHO}; }}"),
        "agents.<a string of 100000 bytes>: must have at most 31 bytes, not 100000",
    ),
    Refusal(
        "source_star",
        agents(f'{{ a.sources."*" = {ECHO}; }}'),
        f'agents.a.sources."*": {NAME} "*"',
    ),
    Refusal(
        "source_colon",
        agents(f'{{ a.sources."b:inbox" = {ECHO}; }}'),
        f'agents.a.sources."b:inbox": {NAME} "b:inbox"',
    ),
    Refusal(
        "source_long",
        agents(f"{{ a.sources.{'s' * 32} = {ECHO}; }}"),
        f"agents.a.sources.{'s' * 32}: must have at most 31 bytes, not 32",
    ),
)

UNKNOWN = (
    Refusal(
        "top",
        "{ agent = { }; }",
        "topology.agent: unknown option; known here: agents, metrics, operator, paths, redis",
    ),
    Refusal(
        "agent",
        agent("{ source = { }; }"),
        "agents.a.source: unknown option; known here: limits, sources, user",
    ),
    Refusal(
        "agent_limit",
        agent("{ limits.turns_max = 1; }"),
        "agents.a.limits.turns_max: unknown option; known here: turns_concurrent_max",
    ),
    Refusal(
        "source",
        source("{ readcount = 1; }"),
        f"agents.a.sources.s.readcount: unknown option; known here: {SOURCE_OPTIONS}",
    ),
    Refusal(
        "stream_is_derived",
        source('{ stream = "a:s:inbox"; }'),
        f"agents.a.sources.s.stream: unknown option; known here: {SOURCE_OPTIONS}",
    ),
    Refusal(
        "exec",
        exec_with("{ shell = true; }"),
        "agents.a.sources.s.runner.shell: unknown option; known here: "
        "command, environment, kind, output, reply_max_bytes, turn_timeout_s",
    ),
    Refusal(
        "echo",
        runner('{ kind = "echo"; command = [ "c" ]; }'),
        "agents.a.sources.s.runner.command: unknown option; known here: kind, reply_max_bytes",
    ),
    Refusal(
        "client",
        source('{ client.unit = "x.service"; }'),
        "agents.a.sources.s.client.unit: unknown option; known here: units, user",
    ),
    Refusal(
        "path",
        '{ paths.log = "log"; }',
        "paths.log: unknown option; known here: config, runtime, state",
    ),
    Refusal(
        "redis", "{ redis.port = 1; }", "redis.port: unknown option; known here: settings, socket"
    ),
    Refusal(
        "redis_setting",
        '{ redis.settings.requirepass = "x"; }',
        "redis.settings.requirepass: unknown option; known here: acllog-max-len, appendfsync, "
        "appendonly, auto-aof-rewrite-min-size, auto-aof-rewrite-percentage, maxclients, "
        "maxmemory, maxmemory-policy, no-appendfsync-on-rewrite",
    ),
    Refusal(
        "operator",
        "{ operator.keys = [ ]; }",
        "operator.keys: unknown option; known here: units, user",
    ),
    Refusal(
        "metrics",
        "{ metrics.verbs = [ ]; }",
        "metrics.verbs: unknown option; known here: units, user",
    ),
    Refusal(
        "hostile_option",
        agent('{ "a.b:*" = 1; }'),
        'agents.a."a.b:*": unknown option; known here: limits, sources, user',
    ),
)
