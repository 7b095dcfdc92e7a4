"""The registration: exactly our users, and nothing that a homeserver would refuse."""

import json
import re
from dataclasses import replace

import pytest

from corral.bridge.registration import Registration, document, text
from corral.core.errors import ConfigError
from tests.unit.loaded import modules_after

GOOD = Registration(
    id="corral",
    url="http://127.0.0.1:29331",
    server_name="corral.test",
    sender_localpart="bridge",
    ghosts=("scout", "clerk.2"),
    as_token="a" * 32,
    hs_token="h" * 32,
)


def claimed(user: str) -> bool:
    users = document(GOOD)["namespaces"]["users"]
    return any(re.match(one["regex"], user) for one in users)


@pytest.mark.parametrize(
    "user", ["@scout:corral.test", "@clerk.2:corral.test", "@bridge:corral.test"]
)
def test_our_users_are_claimed(user: str) -> None:
    assert claimed(user)


@pytest.mark.parametrize(
    "user",
    ["@scouting:corral.test", "@clerkx2:corral.test", "@scout:corral.tests", "@scout:corralxtest"],
)
def test_nobody_else_is(user: str) -> None:
    assert not claimed(user)


def test_all_are_exclusive_and_unlimited_and_nothing_ephemeral_is_wanted() -> None:
    made = document(GOOD)
    assert all(one["exclusive"] for one in made["namespaces"]["users"])
    assert made["rate_limited"] is False
    assert made["receive_ephemeral"] is False


def test_the_text_is_the_document() -> None:
    assert json.loads(text(GOOD)) == document(GOOD)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ghosts": ("Scout",)}, "'Scout' cannot be the local part"),
        ({"ghosts": ("a:b",)}, "'a:b' cannot be the local part"),
        ({"ghosts": ("scout", "scout")}, "scout is named twice"),
        ({"ghosts": ("bridge",)}, "bridge is named twice"),
        ({"as_token": "short"}, "as_token is shorter"),
        ({"hs_token": "a" * 32}, "are the same"),
    ],
)
def test_what_would_not_work_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        document(replace(GOOD, **wrong))  # type: ignore[arg-type]


def test_no_token_is_shown() -> None:
    assert "aaaa" not in repr(GOOD)
    assert "hhhh" not in repr(GOOD)


CLI = "from corral.bridge.main import cli\n"
ASKED = f"""{CLI}
import contextlib
with contextlib.suppress(SystemExit):
    cli(["registration"])
"""


def test_the_program_alone_loads_nothing_slow() -> None:
    assert not modules_after(CLI) & {"pydantic", "structlog", "asyncio", "aiohttp", "asyncpg"}


def test_who_asks_for_the_registration_does_not_wait_for_the_service_to_load() -> None:
    environ = {
        "BRIDGE_HOMESERVER_URL": "http://127.0.0.1:8008",
        "BRIDGE_SERVER_NAME": GOOD.server_name,
        "BRIDGE_AS_TOKEN": GOOD.as_token,
        "BRIDGE_HS_TOKEN": GOOD.hs_token,
        "BRIDGE_DATABASE": "postgresql:///none",
        "BRIDGE_AGENTS": '{"scout": {"url": "http://127.0.0.1:1/"}}',
    }
    loaded = modules_after(ASKED, environ)
    assert "corral.bridge.registration" in loaded
    assert not loaded & {"corral.bridge.service", "structlog", "aiohttp", "asyncpg", "mautrix"}
