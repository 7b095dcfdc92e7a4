"""Values of a wrong type, or outside of what an option takes."""

from tests.nix.topologies import LIMITS, Refusal, agent, agents, exec_with, runner, source

WHOLE = "must be a whole number above 0, not"
VALUES = (
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
        runner('{ kind = "shell"; }'),
        'agents.a.sources.s.runner.kind: must be one of "echo", "exec", "tamq", not "shell"',
    ),
    Refusal(
        "tamq_without_a_repository",
        runner('{ kind = "tamq"; socket = "/run/tamq/a/tamq.sock"; }'),
        "agents.a.sources.s.runner.repo: is missing",
    ),
    Refusal(
        "socket_of_tamq_that_is_no_path",
        runner('{ kind = "tamq"; repo = "shop"; socket = "tamq.sock"; }'),
        'agents.a.sources.s.runner.socket: must be an absolute path, not "tamq.sock"',
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
