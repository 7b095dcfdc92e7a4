"""Hosts with TAMQ that are refused, and what is said of them; as in `refused_hosts.py`."""

from tests.nix.hosts import AGENT
from tests.nix.refused_hosts import Host

_TAMQ = "services.tamq"
_UIDS = "UIDs and GIDs must be unique!"
# A user's longest socket is that of `tamq run`: 107 bytes in this folder, for a name of one byte.
_LONGEST = f"/run/{'r' * 83}"


def _user(name: str, uid: int | None = None) -> str:
    number = "" if uid is None else f"uid = {uid};"
    return f"users.users.{name} = {{ isNormalUser = true; {number} }}; "


def _tamq(names: str, more: str = "") -> str:
    users = "".join(f'"{name}" = {{ }}; ' for name in names.split())
    return f"[ {{ {_TAMQ}.users = {{ {users} }}; {more} }} ]"


def _settings(text: str) -> str:
    return _tamq("", f"{_TAMQ}.users.a.settings = {{ {text} }}; {_user('a')}")


def _beside_an_agent(text: str) -> str:
    return f"[ ({AGENT}) {{ {text} }} ]"


GOOD = {
    "one user": _tamq("a", _user("a")),
    "name of 31 bytes": _tamq("a" * 31, _user("a" * 31)),
    "names like ours": _tamq("tamq run _a-b", _user("tamq") + _user("run") + _user("_a-b")),
    "socket of 107 bytes": _tamq("a", f'{_user("a")} {_TAMQ}.runtimeDir = "{_LONGEST}";'),
    "the agent's own user": _beside_an_agent(f"{_TAMQ}.users.a = {{ }};"),
    "a setting of tomorrow": _settings("tomorrow = 1;"),
    "an agent that wakes sessions": _beside_an_agent(
        "services.cowboy.agents.b = { "
        'sources.s.runner = { kind = "tamq"; repo = "shop"; turn_timeout_s = 60; }; }; '
        f"{_TAMQ}.users.b = {{ }};"
    ),
}

_WAKES = '{ kind = "tamq"; repo = "shop"; }'

FAILED = (
    Host(
        "sessions_of_a_user_without_tamq",
        _beside_an_agent(f"services.cowboy.agents.b.sources.s.runner = {_WAKES};"),
        (
            (
                "services.cowboy.agents.b: it wakes sessions of b, who has no TAMQ; "
                f"set {_TAMQ}.users.b"
            ),
        ),
    ),
    Host(
        "sessions_of_another_user",
        _beside_an_agent(
            f"services.cowboy.agents.b = {{ sources.s = {{ }}; runner = {_WAKES}; }}; "
            f"{_TAMQ}.users.a = {{ }};"
        ),
        (
            (
                "services.cowboy.agents.b: it wakes sessions of b, who has no TAMQ; "
                f"set {_TAMQ}.users.b"
            ),
        ),
    ),
    Host(
        "tamq_of_nobody",
        _tamq("a"),
        (f"{_TAMQ}.users.a: there is no user a; declare it in users.users",),
    ),
    Host(
        "tamq_of_root",
        _tamq("root"),
        (
            f"{_TAMQ}.users.root: TAMQ types into terminals; it must not run as root",
            f'{_TAMQ}.users.root: uid "0" is already that of users.users.root',
        ),
    ),
    Host(
        "tamqs_of_one_uid",
        _tamq("a b", _user("a", 1000) + _user("b", 1000)),
        (f'{_TAMQ}.users.b: uid "1000" is already that of {_TAMQ}.users.a', _UIDS),
    ),
    Host(
        "tamq_of_a_daemon",
        _beside_an_agent(f"{_TAMQ}.users.cowboy-a = {{ }};"),
        (
            (
                f'{_TAMQ}.users.cowboy-a: user "cowboy-a" is already that of '
                "the daemon of services.cowboy.agents.a"
            ),
        ),
    ),
    Host(
        "tamq_with_the_uid_of_a_daemon",
        _beside_an_agent(
            f"{_TAMQ}.users.b = {{ }}; users.users.cowboy-a.uid = 7; "
            'users.users.b = { uid = 7; isSystemUser = true; group = "b"; }; users.groups.b = { };'
        ),
        (
            (f'{_TAMQ}.users.b: uid "7" is already that of the daemon of services.cowboy.agents.a'),
            _UIDS,
        ),
    ),
    Host(
        "tamq_of_redis",
        _beside_an_agent(f"{_TAMQ}.users.redis-cowboy = {{ }};"),
        (
            (
                f'{_TAMQ}.users.redis-cowboy: user "redis-cowboy" is already that of '
                "services.redis.servers.cowboy.user"
            ),
        ),
    ),
    Host(
        "tamq_in_the_place_of_an_agent",
        _beside_an_agent(f'{_TAMQ} = {{ users.a = {{ }}; runtimeDir = "/run/cowboy"; }};'),
        (
            (
                f'{_TAMQ}.users.a: directory "/run/cowboy/a" is already that of '
                "services.cowboy.agents.a"
            ),
        ),
    ),
    Host(
        "tamq_with_a_long_socket",
        _tamq("a", f'{_user("a")} {_TAMQ}.runtimeDir = "{_LONGEST}r";'),
        (
            (
                f"{_TAMQ}.runtimeDir: the socket path {_LONGEST}r/a/pty-4194304.sock "
                "has 108 bytes; the kernel takes 107"
            ),
        ),
    ),
    Host(
        "tamq_settings_of_the_modules",
        _settings('socket = "/run/s"; state_dir = "/srv/s";'),
        (
            (f"{_TAMQ}.users.a.settings.socket: is made by the modules; see {_TAMQ}.runtimeDir"),
            f"{_TAMQ}.users.a.settings.state_dir: is made by the modules",
        ),
    ),
)

_NAME = "user name of 1 to 31 of a-z, 0-9, '_' and '-' that begins with a letter or '_'"
_FILE = "absolute path, as a string, of a file outside of the Nix store"


def _type(option: str, description: str) -> tuple[str, ...]:
    return (f"A definition for option `{_TAMQ}.{option}' is not of type `{description}'.",)


THROWN = (
    *(
        Host(f"tamq_{what}", _tamq(name), _type(f"users.{shown}.name", _NAME))
        for what, name, shown in (
            ("glob", "*", "*"),
            ("slash", "a/b", '"a/b"'),
            ("up", "..", '".."'),
            ("instance", "a@b", '"a@b"'),
            ("upper", "A", "A"),
            ("digit", "1a", '"1a"'),
            ("newline", "a\\n", '"a\\n"'),
            ("of_32_bytes", "a" * 32, "a" * 32),
        )
    ),
    Host(
        "tamq_misspelt",
        _tamq("", f"{_TAMQ}.users.a.setings = {{ }};"),
        (f"The option `{_TAMQ}.users.a.setings' does not exist.",),
    ),
    Host(
        "tamq_runtime_directory_elsewhere",
        _tamq("a", f'{_TAMQ}.runtimeDir = "/srv/x";'),
        _type("runtimeDir", "path below /run of a-z, 0-9, '-' and '/'"),
    ),
    Host(
        "tamq_registry_in_the_store",
        _settings('gita_repos = "/nix/store/x-repos.csv";'),
        _type("users.a.settings.gita_repos", _FILE),
    ),
    Host(
        "tamq_no_delays",
        _settings("retry_delays_ms = [ ];"),
        (f"A definition for option `{_TAMQ}.users.a.settings.retry_delays_ms' is not of type",),
    ),
    Host(
        "tamq_no_lease",
        _settings("lease_ms = 0;"),
        (f"A definition for option `{_TAMQ}.users.a.settings.lease_ms' is not of type",),
    ),
)
