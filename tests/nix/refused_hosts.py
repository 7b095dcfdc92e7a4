"""Hosts that are refused, and what is said of them: each begins with the option's path.

`FAILED` are assertions, all told at once; `THROWN` ends the evaluation at the first.
"""

from dataclasses import dataclass

from tests.nix.hosts import AGENT


@dataclass(frozen=True)
class Host:
    name: str
    modules: str
    messages: tuple[str, ...]


def _with(text: str) -> str:
    """The good host, and more."""
    return f"[ ({AGENT}) {{ {text} }} ]"


def _agent(name: str, text: str = "") -> str:
    return _with(f'services.cowboy.agents."{name}" = {{ sources.s.runner.kind = "echo"; {text} }};')


def _b(text: str) -> str:
    return _with(f"services.cowboy.agents.b = {{ {text} }};")


def _server(text: str) -> str:
    return _with(f"services.redis.servers.cowboy = {{ {text} }};")


def _user(name: str, uid: int) -> str:
    return (
        f'users.users.{name} = {{ uid = {uid}; isSystemUser = true; group = "{name}"; }}; '
        f"users.groups.{name} = {{ }}; "
    )


_DURABLE = "an entry whose XADD was answered must survive a power failure"
_SERVER = "services.redis.servers.cowboy"
_COWBOY = "services.cowboy"
_ECHO = 'sources.s.runner.kind = "echo";'
_LONG = "r" * 81  # /run/<81>-runner/a/runner.sock has 107 bytes

FAILED = (
    Host(
        "two_agents_with_one_user",
        _agent("b", 'user = "a";'),
        (f'{_COWBOY}.agents.b.user: user "a" is already that of {_COWBOY}.agents.a.user',),
    ),
    Host(
        "two_agents_with_one_uid",
        _with(
            _user("x", 1) + _user("y", 1) + f"{_COWBOY}.agents = {{ "
            f'b = {{ user = "x"; {_ECHO} }}; c = {{ user = "y"; {_ECHO} }}; }};'
        ),
        (
            f'{_COWBOY}.agents.c.user: uid "1" is already that of {_COWBOY}.agents.b.user',
            "UIDs and GIDs must be unique!",
        ),
    ),
    Host(
        "agent_with_the_uid_of_a_daemon",
        _with(
            f"users.users.cowboy-a.uid = 7; {_user('x', 7)} "
            f'{_COWBOY}.agents.b = {{ user = "x"; {_ECHO} }};'
        ),
        (
            f'{_COWBOY}.agents.b.user: uid "7" is already that of {_COWBOY}.agents.a',
            "UIDs and GIDs must be unique!",
        ),
    ),
    Host(
        "root",
        _agent("b", 'user = "root";'),
        (
            f"{_COWBOY}.agents.b.user: an agent must not run as root",
            f'{_COWBOY}.agents.b.user: uid "0" is already that of users.users.root',
        ),
    ),
    Host(
        "user_of_a_daemon",
        _agent("b", 'user = "cowboy-a";'),
        (f'{_COWBOY}.agents.b.user: user "cowboy-a" is already that of {_COWBOY}.agents.a',),
    ),
    Host(
        "unknown_user",
        _agent("b", 'user = "alice";'),
        (
            (
                f"{_COWBOY}.agents.b.user: there is no user alice; declare it, "
                f"or set {_COWBOY}.agents.b.createUser"
            ),
        ),
    ),
    Host(
        "long_name",
        _agent("b" * 25),
        (
            (
                f"{_COWBOY}.agents.{'b' * 25}: its daemon's user cowboy-{'b' * 25} has 32 bytes; "
                "the system takes 31"
            ),
        ),
    ),
    Host(
        "long_socket",
        _with(f'{_COWBOY}.runtimeDir = "/run/{_LONG}r";'),
        (
            (
                f"{_COWBOY}.runtimeDir: the socket path /run/{_LONG}r-runner/a/runner.sock "
                "has 108 bytes; the kernel takes 107"
            ),
        ),
    ),
    Host(
        "socket_of_120_bytes",
        _with(f'{_COWBOY}.runtimeDir = "/run/{"r" * 100}";'),
        (
            (
                f"{_COWBOY}.agents.a: the socket path /run/{'r' * 100}/a/control.sock "
                "has 120 bytes; the kernel takes 107"
            ),
            (
                f"{_COWBOY}.agents.a: the socket path /run/{'r' * 100}/a/reply.sock "
                "has 118 bytes; the kernel takes 107"
            ),
            (
                f"{_COWBOY}.agents.a: the socket path /run/{'r' * 100}/a/runner.sock "
                "has 119 bytes; the kernel takes 107"
            ),
            (
                f"{_COWBOY}.runtimeDir: the socket path /run/{'r' * 100}-runner/a/runner.sock "
                "has 126 bytes; the kernel takes 107"
            ),
        ),
    ),
    Host(
        "no_runner",
        _b("sources.s = { };"),
        (
            (
                f"{_COWBOY}.agents.b.sources.s.runner: is not set, "
                f"and neither is {_COWBOY}.agents.b.runner"
            ),
        ),
    ),
    Host(
        "no_command_of_a_source",
        _b('sources.s.runner.kind = "exec";'),
        (f'{_COWBOY}.agents.b.sources.s.runner.command: is empty; kind "exec" needs one',),
    ),
    Host(
        "no_command_of_an_agent",
        _b('runner.kind = "exec"; sources.s = { };'),
        (f'{_COWBOY}.agents.b.runner.command: is empty; kind "exec" needs one',),
    ),
    Host(
        "no_repository",
        _with(
            f'{_COWBOY}.agents.b = {{ runner.kind = "tamq"; sources.s = {{ }}; }}; '
            "services.tamq.users.b = { };"
        ),
        (f'{_COWBOY}.agents.b.runner.repo: is not set; kind "tamq" needs one',),
    ),
    Host(
        "settings_of_the_modules",
        _with(
            f"{_COWBOY}.agents.a.settings = {{ "
            'redis_password = "planted"; runtime_dir = "/run/x"; state_dir = "/srv/x"; };'
        ),
        (
            (
                f"{_COWBOY}.agents.a.settings.redis_password: is a secret, and would be in the "
                "Nix store; the daemon has its own"
            ),
            (
                f"{_COWBOY}.agents.a.settings.runtime_dir: is made by the modules; "
                f"see {_COWBOY}.runtimeDir"
            ),
            f"{_COWBOY}.agents.a.settings.state_dir: is made by the modules",
        ),
    ),
    Host(
        "secret_of_nobody",
        _with(f'{_COWBOY}.secrets.files.redis-agent-b = "/run/secrets/b";'),
        (
            (
                f"{_COWBOY}.secrets.files.redis-agent-b: no identity has this credential; "
                "there are: redis-agent-a, redis-metrics, redis-operator, redis-source.a.s"
            ),
        ),
    ),
    Host(
        "client_that_is_nowhere",
        _with(f'{_COWBOY}.agents.a.sources.s.client.units = [ "gateway.service" ];'),
        (
            (
                f"{_COWBOY}.agents.a.sources.s.client.units: there is no service gateway.service; "
                "declare it in systemd.services"
            ),
        ),
    ),
    Host(
        "server_with_a_socket",
        _server('unixSocket = "/run/redis-cowboy/redis.sock";'),
        (f"{_SERVER}.unixSocket: must be null: a socket would cross the network namespace",),
    ),
    Host(
        "server_with_a_password",
        _server('requirePass = "x";'),
        (f"{_SERVER}.requirePass: must be null: who may do what is in the ACL file",),
    ),
    Host(
        "server_with_a_password_file",
        _server('requirePassFile = "/run/x";'),
        (f"{_SERVER}.requirePassFile: must be null: who may do what is in the ACL file",),
    ),
    Host(
        "server_on_every_address",
        _server("bind = null;"),
        (f"{_SERVER}.bind: must be 127.0.0.1, the loopback interface of the namespace",),
    ),
    Host(
        "server_behind_an_open_firewall",
        _server("openFirewall = true;"),
        (f"{_SERVER}.openFirewall: must be false: nobody outside of the namespace is served",),
    ),
    Host(
        "server_that_forgets",
        _server('appendOnly = false; appendFsync = "everysec";'),
        (
            f"{_SERVER}.appendOnly: must be true: {_DURABLE}",
            f'{_SERVER}.appendFsync: must be "always": {_DURABLE}',
        ),
    ),
    Host(
        "replica",
        _server('slaveOf = { ip = "192.0.2.1"; port = 6379; };'),
        (
            (
                f"{_SERVER}.slaveOf: must be null: replication is asynchronous "
                "and loses answered entries"
            ),
        ),
    ),
    Host(
        "another_acl_file",
        _server('settings.aclfile = lib.mkForce "/etc/x";'),
        (f'{_SERVER}.settings.aclfile: must be "/run/cowboy/redis.acl"',),
    ),
    Host(
        "more_settings_that_undo_options",
        _server(
            'settings = { appendOnly = lib.mkForce false; requirepass = "x"; '
            'no-appendfsync-on-rewrite = lib.mkForce "yes"; replicaof = "192.0.2.1 6379"; '
            'SlaveOf = "192.0.2.1 6379"; };'
        ),
        (
            f"{_SERVER}.settings.appendOnly: must be true",
            f'{_SERVER}.settings.no-appendfsync-on-rewrite: must be "no"',
            f"{_SERVER}.settings.SlaveOf: must not be set: it undoes what is promised",
            f"{_SERVER}.settings.replicaof: must not be set: it undoes what is promised",
            f"{_SERVER}.settings.requirepass: must not be set: it undoes what is promised",
        ),
    ),
    Host(
        "settings_that_undo_options",
        _server(
            'settings = { APPENDONLY = "no"; unixsocket = "/x"; appendfsync = lib.mkForce "no"; '
            'maxmemory-policy = lib.mkForce "allkeys-lru"; user = "x on nopass ~* +@all"; };'
        ),
        (
            f'{_SERVER}.settings.appendfsync: must be "always"',
            f'{_SERVER}.settings.maxmemory-policy: must be "noeviction"',
            f"{_SERVER}.settings.APPENDONLY: must not be set: it undoes what is promised",
            f"{_SERVER}.settings.unixsocket: must not be set: it undoes what is promised",
            f"{_SERVER}.settings.user: must not be set: it undoes what is promised",
        ),
    ),
)

_NAME = (
    "name of 1 to 31 of a-z, 0-9 and '-' that begins with a letter, and is neither "
    '"ns", "rotate" nor "secrets" nor begins with "runner-"'
)
_SOURCE_NAME = "name of 1 to 31 of a-z, 0-9 and '-' that begins with a letter"
_SECRET = "absolute path, as a string, of a file outside of the Nix store"


def _type(option: str, description: str) -> tuple[str, ...]:
    return (f"A definition for option `{option}' is not of type `{description}'.",)


def _name(shown: str) -> tuple[str, ...]:
    return _type(f"{_COWBOY}.agents.{shown}.name", _NAME)


THROWN = (
    *(
        Host(f"agent_{what}", _agent(name), _name(shown))
        for what, name, shown in (
            ("glob", "*", "*"),
            ("colon", "a:b", '"a:b"'),
            ("of_40_bytes", "a" * 40, "a" * 40),
            ("of_32_bytes", "a" * 32, "a" * 32),
            ("upper", "A", "A"),
            ("dot", "a.b", '"a.b"'),
            ("slash", "a/b", '"a/b"'),
            ("digit", "1a", '"1a"'),
            ("newline", "a\\n", '"a\\n"'),
            ("that_is_the_runner_of_another", "runner-a", "runner-a"),
            ("that_is_a_unit_of_ours", "secrets", "secrets"),
        )
    ),
    Host(
        "source_name",
        _with(f'{_COWBOY}.agents.a.sources."b*".runner.kind = "echo";'),
        _type(f'{_COWBOY}.agents.a.sources."b*".name', _SOURCE_NAME),
    ),
    Host(
        "two_sources_with_one_stream",
        _with(f'{_COWBOY}.agents.a.sources.s.stream = "a:t:inbox";'),
        (f"The option `{_COWBOY}.agents.a.sources.s.stream' does not exist.",),
    ),
    Host(
        "misspelt",
        _with(f"{_COWBOY}.agents.a.soruces = {{ }};"),
        (f"The option `{_COWBOY}.agents.a.soruces' does not exist.",),
    ),
    Host("no_source", _b("sources = { };"), (f"{_COWBOY}.agents.b.sources: must not be empty",)),
    Host(
        "secret_in_the_store",
        _with(f'{_COWBOY}.secrets.files.redis-agent-a = "/nix/store/x-secret";'),
        _type(f"{_COWBOY}.secrets.files.redis-agent-a", _SECRET),
    ),
    Host(
        "secret_as_a_path_literal",
        _with(f"{_COWBOY}.secrets.files.redis-agent-a = /run/secrets/a;"),
        _type(f"{_COWBOY}.secrets.files.redis-agent-a", _SECRET),
    ),
    Host(
        "credential_in_the_store",
        _with(f'{_COWBOY}.agents.a.credentials.key = "/nix/store/x-key";'),
        _type(f"{_COWBOY}.agents.a.credentials.key", _SECRET),
    ),
    Host(
        "environment_file_in_the_store",
        _with(f'{_COWBOY}.agents.a.environmentFiles = [ "/nix/store/x-env" ];'),
        (f"A definition for option `{_COWBOY}.agents.a.environmentFiles.",),
    ),
    Host(
        "interface_name",
        _with(f'{_COWBOY}.namespace.name = "{"n" * 16}";'),
        (f"A definition for option `{_COWBOY}.namespace.name' is not of type `string matching",),
    ),
    Host(
        "runtime_directory_elsewhere",
        _with(f'{_COWBOY}.runtimeDir = "/srv/x";'),
        _type(f"{_COWBOY}.runtimeDir", "path below /run of a-z, 0-9, '-' and '/'"),
    ),
    Host(
        "durability",
        _with(f'{_COWBOY}.redis.settings.appendfsync = "no";'),
        (f'{_COWBOY}.redis.settings.appendfsync: must be "always", not "no": an XADD that',),
    ),
    Host(
        "relative_command",
        _b('sources.s.runner = { kind = "exec"; command = [ "./x" ]; };'),
        (f"{_COWBOY}.agents.b.sources.s.runner.command.0: must be an absolute path, or a name",),
    ),
    Host(
        "variable_of_the_runner",
        _b(
            'runner = { kind = "exec"; command = [ "x" ]; environment.CORRAL_X = ""; }; '
            "sources.s = { };"
        ),
        (f"{_COWBOY}.agents.b.sources.s.runner.environment.CORRAL_X: is set by the runner",),
    ),
)
