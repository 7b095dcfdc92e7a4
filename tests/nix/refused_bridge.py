"""Hosts with a bridge that are refused, and what is said of them; as in `refused_hosts.py`."""

from tests.nix.hosts import AGENT
from tests.nix.refused_hosts import Host

_BRIDGE = "services.a2a-bridge"
_AGENTS = 'agents.scout.url = "https://agents.example.org/";'
SERVER = 'homeserver = { url = "https://matrix.example.org"; domain = "example.org"; };'


def bridge(text: str = "", more: str = "", *, server: str = SERVER, agents: str = _AGENTS) -> str:
    """A host whose bridge has all that it needs, and more; or less."""
    return f"[ {{ {_BRIDGE} = {{ enable = true; {server} {agents} {text} }}; {more} }} ]"


def _synapse(database: str) -> str:
    return (
        'services.matrix-synapse = { enable = true; settings = { server_name = "example.org"; '
        f'database.name = "{database}"; }}; }};'
    )


SYNAPSE = _synapse("psycopg2")
SYNAPSE_ON_SQLITE = _synapse("sqlite3")
_SECRET = "is a secret, and settings are in the Nix store"
REMOTE = 'database = { createLocally = false; urlFile = "/run/secrets/database"; };'

GOOD = {
    "the least": bridge(),
    "Synapse beside it": bridge(more=SYNAPSE, server=""),
    "Synapse on SQLite beside it": bridge(more=SYNAPSE_ON_SQLITE, server=""),
    "a database elsewhere": bridge(REMOTE),
    "one token given": bridge('asTokenFile = "/run/secrets/as";'),
    "an agent behind a socket": bridge('agents.a.url = "unix:/run/a.sock:/scout";'),
    "beside agents of its host": f"[ ({AGENT}) ] ++ {bridge()}",
    "a setting of tomorrow": bridge("settings.tomorrow = 1;"),
    "nothing, when it is off": f"[ {{ {_BRIDGE}.settings.as_token = 1; }} ]",
}

FAILED = (
    Host(
        "bridge_without_agents",
        bridge(agents=""),
        (f"{_BRIDGE}.agents: at least one agent is needed",),
    ),
    Host(
        "bridge_without_a_homeserver",
        bridge(server=""),
        (
            f"{_BRIDGE}.homeserver.url: is needed, because there is no Synapse on this host",
            f"{_BRIDGE}.homeserver.domain: is needed, because there is no Synapse on this host",
        ),
    ),
    Host(
        "bridge_with_two_databases",
        bridge('database.urlFile = "/run/secrets/database";'),
        (
            (
                f"{_BRIDGE}.database.urlFile: is not used with a database on this host; "
                f"set {_BRIDGE}.database.createLocally to false"
            ),
        ),
    ),
    Host(
        "bridge_without_a_database",
        bridge("database.createLocally = false;"),
        (
            (
                f"{_BRIDGE}.database.urlFile: is needed, "
                f"because {_BRIDGE}.database.createLocally is false"
            ),
        ),
    ),
    Host(
        "bridge_with_one_token_for_both_sides",
        bridge('asTokenFile = "/run/secrets/t"; hsTokenFile = "/run/secrets/t";'),
        (
            (
                f"{_BRIDGE}.hsTokenFile: is also {_BRIDGE}.asTokenFile; "
                "each side proves itself with a token of its own"
            ),
        ),
    ),
    Host(
        "bridge_settings_of_the_modules",
        bridge(
            'settings = { agents = { }; as_token = "t"; hs_token = "t"; database = "d"; '
            'homeserver_url = "u"; server_name = "n"; };'
        ),
        (
            f"{_BRIDGE}.settings.agents: has an option of its own, {_BRIDGE}.agents",
            f"{_BRIDGE}.settings.as_token: {_SECRET}; see {_BRIDGE}.asTokenFile",
            f"{_BRIDGE}.settings.database: {_SECRET}; see {_BRIDGE}.database",
            (
                f"{_BRIDGE}.settings.homeserver_url: has an option of its own, "
                f"{_BRIDGE}.homeserver.url"
            ),
            f"{_BRIDGE}.settings.hs_token: {_SECRET}; see {_BRIDGE}.hsTokenFile",
            (
                f"{_BRIDGE}.settings.server_name: has an option of its own, "
                f"{_BRIDGE}.homeserver.domain"
            ),
        ),
    ),
    Host(
        "agent_with_the_user_of_the_bridge",
        f'[ ({AGENT}) {{ services.cowboy.agents.a.user = "a2a-bridge"; }} ] ++ {bridge()}',
        (f'services.cowboy.agents.a.user: user "a2a-bridge" is already that of {_BRIDGE}',),
    ),
    Host(
        "tamq_of_the_bridge",
        bridge(more="services.tamq.users.a2a-bridge = { };"),
        (f'services.tamq.users.a2a-bridge: user "a2a-bridge" is already that of {_BRIDGE}',),
    ),
)

_FILE = "null or absolute path, as a string, of a file outside of the Nix store"


def _type(option: str, description: str = "") -> tuple[str, ...]:
    said = f"A definition for option `{_BRIDGE}.{option}' is not of type `{description}"
    return (f"{said}'." if description else said,)


THROWN = (
    *(
        Host(
            f"bridge_{name}_in_the_store",
            bridge(text % '"/nix/store/x-secret"'),
            _type(option, _FILE),
        )
        for name, option, text in (
            ("as_token", "asTokenFile", "asTokenFile = %s;"),
            ("hs_token", "hsTokenFile", "hsTokenFile = %s;"),
            ("database", "database.urlFile", "database.urlFile = %s;"),
            ("agents_token", "agents.scout.tokenFile", "agents.scout.tokenFile = %s;"),
        )
    ),
    Host(
        "bridge_token_as_a_path",
        bridge("asTokenFile = /etc/hostname;"),
        _type("asTokenFile", _FILE),
    ),
    Host(
        "bridge_with_an_agent_nowhere", bridge(agents='agents.a.url = "a";'), _type("agents.a.url")
    ),
    Host(
        "bridge_with_an_agent_misspelt",
        bridge('agents.scout.tokenfile = "/run/x";'),
        (f"The option `{_BRIDGE}.agents.scout.tokenfile' does not exist.",),
    ),
    Host(
        "bridge_with_an_agent_without_address",
        bridge(agents="agents.a = { };"),
        (f"The option `{_BRIDGE}.agents.a.url' was accessed but has no value defined.",),
    ),
    Host(
        "bridge_with_a_name_that_is_no_credential",
        bridge('agents."a/b".url = "https://x/";'),
        _type('agents."a/b".name'),
    ),
    Host(
        "bridge_with_another_conflict",
        bridge('settings.txn_conflict = "ignore";'),
        _type("settings.txn_conflict"),
    ),
    Host(
        "bridge_without_workers", bridge("settings.concurrency = 0;"), _type("settings.concurrency")
    ),
)
