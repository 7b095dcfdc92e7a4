"""Topologies that must be refused, with the whole message: it begins with the option's path."""

from dataclasses import dataclass

ECHO = '{ runner.kind = "echo"; }'


@dataclass(frozen=True)
class Refusal:
    name: str
    topology: str
    message: str


def agents(text: str) -> str:
    return f"{{ agents = {text}; }}"


def agent(text: str) -> str:
    """One agent `a` with one good source, and more options."""
    return agents(f"{{ a = {{ sources.s = {ECHO}; }} // {text}; }}")


def source(text: str) -> str:
    """One source `s`, good but for these options."""
    return agents(f"{{ a.sources.s = {ECHO} // {text}; }}")


def runner(text: str) -> str:
    return agents(f"{{ a.sources.s.runner = {text}; }}")


def exec_with(text: str) -> str:
    return runner(f'{{ kind = "exec"; command = [ "c" ]; }} // {text}')


NAME = "must be a name of a-z, 0-9 and '-' that begins with a letter, not"
LIMITS = (
    "ack_attempts_max",
    "backlog_max",
    "block_ms",
    "channel_backlog_max",
    "content_max_bytes",
    "dispatch_attempts_max",
    "drain_interval_ms",
    "metadata_max_bytes",
    "outbox_attempts_max",
    "read_count",
    "reclaim_idle_ms",
    "retention_h",
    "trim_interval_ms",
    "turns_concurrent_max",
)
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

WHOLE = "must be a whole number above 0, not"
TYPES = (
    Refusal("topology", "[ ]", "topology: must be an attribute set, not a list"),
    Refusal("agents", agents("[ ]"), "agents: must be an attribute set, not a list"),
    Refusal("agent", agents("{ a = true; }"), "agents.a: must be an attribute set, not true"),
    Refusal("no_sources", agents("{ a = { }; }"), "agents.a.sources: is missing"),
    Refusal("empty_sources", agents("{ a.sources = { }; }"), "agents.a.sources: must not be empty"),
    Refusal(
        "source",
        agents('{ a.sources.s = "x"; }'),
        'agents.a.sources.s: must be an attribute set, not "x"',
    ),
    Refusal("no_runner", agents("{ a.sources.s = { }; }"), "agents.a.sources.s.runner: is missing"),
    Refusal("no_kind", runner("{ }"), "agents.a.sources.s.runner.kind: is missing"),
    Refusal(
        "kind",
        runner('{ kind = "tamq"; }'),
        'agents.a.sources.s.runner.kind: must be one of "echo", "exec", not "tamq"',
    ),
    Refusal(
        "no_command", runner('{ kind = "exec"; }'), "agents.a.sources.s.runner.command: is missing"
    ),
    Refusal(
        "command_text",
        exec_with('{ command = "prog arg"; }'),
        'agents.a.sources.s.runner.command: must be a list, not "prog arg"',
    ),
    Refusal(
        "command_empty",
        exec_with("{ command = [ ]; }"),
        "agents.a.sources.s.runner.command: must not be empty",
    ),
    Refusal(
        "argument",
        exec_with('{ command = [ "c" 1 ]; }'),
        "agents.a.sources.s.runner.command.1: must be a string, not 1",
    ),
    Refusal(
        "program_path_value",
        exec_with("{ command = [ ./prog ]; }"),
        "agents.a.sources.s.runner.command.0: must be a string, not a path",
    ),
    Refusal(
        "program_relative",
        exec_with('{ command = [ "bin/prog" ]; }'),
        "agents.a.sources.s.runner.command.0: "
        "must be an absolute path, or a name to look up in PATH",
    ),
    Refusal(
        "output",
        exec_with('{ output = "xml"; }'),
        'agents.a.sources.s.runner.output: must be one of "text", "json", not "xml"',
    ),
    Refusal(
        "timeout",
        exec_with("{ turn_timeout_s = 1.5; }"),
        f"agents.a.sources.s.runner.turn_timeout_s: {WHOLE} 1.5",
    ),
    Refusal(
        "environment",
        exec_with("{ environment = [ ]; }"),
        "agents.a.sources.s.runner.environment: must be an attribute set, not a list",
    ),
    Refusal(
        "environment_value_is_not_shown",
        exec_with("{ environment.TOKEN = 4711; }"),
        "agents.a.sources.s.runner.environment.TOKEN: must be a string, not a int",
    ),
    Refusal(
        "environment_name",
        exec_with('{ environment."A=B" = "x"; }'),
        'agents.a.sources.s.runner.environment."A=B": is not the name of an environment variable',
    ),
    Refusal(
        "environment_reserved",
        exec_with('{ environment.CORRAL_AGENT = "x"; }'),
        "agents.a.sources.s.runner.environment.CORRAL_AGENT: is set by the runner",
    ),
    Refusal(
        "environment_traceparent",
        exec_with('{ environment.TRACEPARENT = "x"; }'),
        "agents.a.sources.s.runner.environment.TRACEPARENT: is set by the runner",
    ),
    Refusal(
        "ack",
        source('{ ack = "never"; }'),
        'agents.a.sources.s.ack: must be one of "dispatch", "reply", not "never"',
    ),
    Refusal(
        "on_interrupt",
        source("{ on_interrupt = null; }"),
        'agents.a.sources.s.on_interrupt: must be one of "notify", "resume", "hold", not null',
    ),
    *(
        Refusal(f"{limit}_{value}", source(f"{{ {limit} = {value}; }}"), message)
        for limit, value, shown in (
            *((limit, "0", "0") for limit in LIMITS),
            ("read_count", '"10"', '"10"'),
            ("read_count", "(-1)", "-1"),
            ("read_count", "(x: x)", "a function"),
            ("read_count", "null", "null"),
        )
        for message in (f"agents.a.sources.s.{limit}: {WHOLE} {shown}",)
    ),
    Refusal(
        "agent_limit",
        agent("{ limits.turns_concurrent_max = 0; }"),
        f"agents.a.limits.turns_concurrent_max: {WHOLE} 0",
    ),
    Refusal(
        "client_unit",
        source('{ client.units = [ "a2a" ]; }'),
        "agents.a.sources.s.client.units.0: must be the name of a systemd service, "
        'such as "a2a-gateway.service", not "a2a"',
    ),
    Refusal(
        "user",
        agent('{ user = "Scout"; }'),
        "agents.a.user: must be a user name of a-z, 0-9, '_' and '-' "
        "that begins with a letter or '_', not \"Scout\"",
    ),
    Refusal(
        "user_long",
        agent(f'{{ user = "{"u" * 32}"; }}'),
        "agents.a.user: must have at most 31 bytes, not 32",
    ),
    Refusal("path", "{ paths.state = 7; }", "paths.state: must be a string, not 7"),
    Refusal("path_empty", '{ paths.state = ""; }', "paths.state: must not be empty"),
    Refusal(
        "path_dots",
        '{ paths.state = "var/../x"; }',
        "paths.state: must not have '.' or '..' as a part, as \"var/../x\" has",
    ),
    Refusal(
        "path_space",
        '{ paths.state = "my state"; }',
        "paths.state: must be a path of letters, digits, '.', '_', '-' and single '/', "
        'not "my state"',
    ),
    Refusal(
        "redis_type",
        "{ redis.settings.maxmemory = 268435456; }",
        "redis.settings.maxmemory: must be a string, not 268435456",
    ),
    Refusal(
        "redis_injection",
        r'{ redis.settings.maxmemory = "1mb\nrequirepass x"; }',
        'redis.settings.maxmemory: must be a size above 0, such as "256mb", '
        r'not "1mb\nrequirepass x"',
    ),
    Refusal(
        "redis_no_limit",
        '{ redis.settings.maxmemory = "0"; }',
        'redis.settings.maxmemory: must be a size above 0, such as "256mb", not "0"',
    ),
    *(
        Refusal(
            f"redis_{setting}",
            f'{{ redis.settings.{setting} = "{value}"; }}',
            f'redis.settings.{setting}: must be "{fixed}", not "{value}": {reason}',
        )
        for setting, value, fixed, reason in (
            (
                "appendonly",
                "no",
                "yes",
                "without it a killed server forgets entries that were answered",
            ),
            (
                "appendfsync",
                "everysec",
                "always",
                "an XADD that was answered must survive a power failure",
            ),
            (
                "no-appendfsync-on-rewrite",
                "yes",
                "no",
                "an XADD that was answered must survive a power failure",
            ),
            (
                "maxmemory-policy",
                "allkeys-lru",
                "noeviction",
                "any other policy drops keys that hold unanswered entries",
            ),
        )
    ),
)


def two(first: str, second: str) -> str:
    one = f"{{ sources.s = {ECHO}; }}"
    return agents(f"{{ a = {one} // {first}; b = {one} // {second}; }}")


# 107 bytes is what the kernel takes: /<n>/a/control.sock
_LONG = "/" + "r" * 92

TOGETHER = (
    Refusal(
        "one_user_for_two_agents",
        two('{ user = "x"; }', '{ user = "x"; }'),
        'agents.b.user: user "x" is already that of agents.a.user',
    ),
    Refusal(
        "user_of_a_daemon",
        two("{ }", '{ user = "cowboy-a"; }'),
        'agents.b.user: user "cowboy-a" is already that of agents.a',
    ),
    Refusal(
        "user_of_metrics",
        agents(f"{{ a.sources.s = {ECHO}; }}")[:-1] + ' metrics.user = "a"; }',
        'metrics.user: user "a" is already that of agents.a.user',
    ),
    Refusal("root", agent('{ user = "root"; }'), "agents.a.user: an agent must not run as root"),
    Refusal(
        "one_path_for_two",
        '{ paths.config = "x"; paths.state = "x"; }',
        'paths.state: path "x" is already that of paths.config',
    ),
    Refusal(
        "socket_path",
        agents(f"{{ a.sources.s = {ECHO}; }}")[:-1] + f' paths.runtime = "{_LONG}"; }}',
        f"agents.a: the socket path {_LONG}/a/control.sock has 108 bytes; the kernel takes 107",
    ),
    Refusal(
        "redis_socket_path",
        f'{{ redis.socket = "/{"r" * 107}"; }}',
        f"redis.socket: the socket path /{'r' * 107} has 108 bytes; the kernel takes 107",
    ),
    Refusal(
        "redis_socket_in_an_agent",
        f'{{ agents.redis.sources.s = {ECHO}; paths.runtime = "run"; '
        'redis.socket = "run/redis/redis.sock"; }',
        "agents.redis: its runtime directory run/redis would hold redis.socket, "
        "run/redis/redis.sock; rename the agent or move the socket",
    ),
    Refusal(
        "socket_twice",
        f'{{ agents.x.sources.s = {ECHO}; paths.runtime = "run"; '
        'redis.socket = "run/x/runner.sock"; }',
        'agents.x: socket "run/x/runner.sock" is already that of redis.socket\n'
        "agents.x: its runtime directory run/x would hold redis.socket, "
        "run/x/runner.sock; rename the agent or move the socket",
    ),
    Refusal(
        "every_problem_is_told",
        two('{ user = "root"; }', '{ user = "root"; }'),
        'agents.b.user: user "root" is already that of agents.a.user\n'
        "agents.a.user: an agent must not run as root\n"
        "agents.b.user: an agent must not run as root",
    ),
)

GROUPS = {"name": NAMES, "unknown": UNKNOWN, "type": TYPES, "together": TOGETHER}
