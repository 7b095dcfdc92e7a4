"""Hosts with a gateway that are refused, and what is said of them; as in `refused_hosts.py`."""

from tests.nix.refused_hosts import Host

_GATEWAY = "services.a2a-gateway"
_ALL = "agents.a = { }; clients.ann = { };"
COWBOY = (
    'services.cowboy = { enable = true; agents.a = { runner.kind = "echo"; sources.s = { }; }; };'
)


def gateway(text: str = "", more: str = "", *, all_of_it: str = _ALL, cowboy: str = COWBOY) -> str:
    """A host whose gateway has all that it needs, and more; or less."""
    return f"[ {{ {cowboy} {_GATEWAY} = {{ enable = true; {all_of_it} {text} }}; {more} }} ]"


BRIDGE = (
    'services.a2a-bridge = { enable = true; homeserver = { url = "https://m/"; domain = "m"; }; '
    'database = { createLocally = false; urlFile = "/run/secrets/database"; }; '
    'agents.a.url = "unix:/run/a2a-gateway/socket:/a2a/a/"; };'
)

GOOD = {
    "the least": gateway(),
    "a source of another name": gateway('agents.a.source = "asked";'),
    "a token given": gateway('clients.ann.tokenFile = "/run/secrets/ann";'),
    "a bridge beside it": gateway(more=BRIDGE),
    "addresses for other hosts": gateway('listen = [ "192.0.2.20:8080" "[2001:db8::20]:8080" ];'),
    "a setting of tomorrow": gateway("settings.tomorrow = 1;"),
    "nothing, when it is off": f"[ {{ {_GATEWAY}.settings.socket = 1; }} ]",
}

FAILED = (
    Host(
        "gateway_without_anything",
        gateway(all_of_it=""),
        (
            f"{_GATEWAY}.agents: at least one agent is needed",
            f"{_GATEWAY}.clients: at least one client is needed",
        ),
    ),
    Host(
        "gateway_without_cowboy",
        gateway(cowboy=""),
        (f"{_GATEWAY}.enable: needs services.cowboy.enable",),
    ),
    Host(
        "gateway_of_a_disabled_agent",
        gateway(more="services.cowboy.agents.a.enable = false;"),
        (f"{_GATEWAY}.agents.a: there is no services.cowboy.agents.a, or it is disabled",),
    ),
    Host(
        "gateway_of_an_agent_that_nobody_declared",
        gateway("agents.b = { };"),
        (f"{_GATEWAY}.agents.b: there is no services.cowboy.agents.b, or it is disabled",),
    ),
    Host(
        "gateway_with_one_token_for_two",
        gateway(
            'clients.ann.tokenFile = "/run/secrets/t"; clients.bob.tokenFile = "/run/secrets/t";',
            all_of_it="agents.a = { };",
        ),
        (
            (
                f'{_GATEWAY}.clients.bob.tokenFile: token "/run/secrets/t" is already that of '
                f"{_GATEWAY}.clients.ann.tokenFile"
            ),
        ),
    ),
    Host(
        "gateway_at_every_address",
        gateway('listen = [ "0.0.0.0:8080" "[::]:8080" ];'),
        tuple(
            f"{_GATEWAY}.listen: {address} is every address of the host; name those of the private "
            "network"
            for address in ("0.0.0.0:8080", "[::]:8080")
        ),
    ),
    Host(
        "gateway_at_one_address_twice",
        gateway('listen = [ "192.0.2.20:8080" "192.0.2.20:8080" ];'),
        (
            (
                f'{_GATEWAY}.listen.1: address "192.0.2.20:8080" is already that of '
                f"{_GATEWAY}.listen.0"
            ),
        ),
    ),
    Host(
        "gateway_settings_of_the_modules",
        gateway(
            'settings = { agents = { }; clients = { }; metrics_dir = "m"; redis_url = "r"; '
            'socket = "s"; socket_mode = 0; state_dir = "d"; };'
        ),
        (
            f"{_GATEWAY}.settings.agents: has an option of its own, {_GATEWAY}.agents",
            f"{_GATEWAY}.settings.clients: has an option of its own, {_GATEWAY}.clients",
            (
                f"{_GATEWAY}.settings.metrics_dir: is made by the modules; "
                "see services.cowboy.metrics.directory"
            ),
            f"{_GATEWAY}.settings.redis_url: is made by the modules",
            f"{_GATEWAY}.settings.socket: is made by the modules",
            f"{_GATEWAY}.settings.socket_mode: is made by the modules",
            f"{_GATEWAY}.settings.state_dir: is made by the modules",
        ),
    ),
    Host(
        "agent_with_the_user_of_the_gateway",
        gateway(more='services.cowboy.agents.a.user = "a2a-gateway";'),
        (f'services.cowboy.agents.a.user: user "a2a-gateway" is already that of {_GATEWAY}',),
    ),
    Host(
        "tamq_of_the_gateway",
        gateway(more="services.tamq.users.a2a-gateway = { };"),
        (f'services.tamq.users.a2a-gateway: user "a2a-gateway" is already that of {_GATEWAY}',),
    ),
)


def _type(option: str) -> tuple[str, ...]:
    return (f"A definition for option `{_GATEWAY}.{option}' is not of type `",)


# Which one of the list it is, is not said alike by every release.
_LISTEN = (f"A definition for option `{_GATEWAY}.listen.",)

THROWN = (
    Host(
        "gateway_token_in_the_store",
        gateway('clients.ann.tokenFile = "/nix/store/x-secret";'),
        _type("clients.ann.tokenFile"),
    ),
    Host(
        "gateway_client_that_is_no_name",
        gateway('clients."a/b" = { };'),
        _type('clients."a/b".name'),
    ),
    Host(
        "gateway_source_that_is_no_name",
        gateway('agents.a.source = "A";'),
        _type("agents.a.source"),
    ),
    Host(
        "gateway_at_a_name",
        gateway('listen = [ "agents.example.org:8080" ];'),
        _LISTEN,
    ),
    Host(
        "gateway_at_an_address_without_a_port",
        gateway('listen = [ "192.0.2.20" ];'),
        _LISTEN,
    ),
    Host(
        "gateway_without_room",
        gateway("settings.open_tasks_max = 0;"),
        _type("settings.open_tasks_max"),
    ),
)
