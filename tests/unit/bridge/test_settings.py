"""The bridge's settings: defaults, rules between fields, and what is derived."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from corral.bridge import registration, service
from corral.bridge.settings import BridgeSettings
from corral.core.errors import ConfigError
from corral.core.settings import load

GOOD: dict[str, Any] = {
    "homeserver_url": "http://127.0.0.1:8008/",
    "server_name": "corral.test",
    "as_token": "a" * 24,
    "hs_token": "h" * 24,
    "database": "postgresql:///bridge",
    "agents": {"scout": {"url": "http://127.0.0.1:9000"}},
}


def made(**more: Any) -> BridgeSettings:
    return load(BridgeSettings, **{**GOOD, **more})


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = made()
    assert settings.concurrency == 16
    assert settings.limits.room_queue_capacity == 32
    assert settings.limits.global_queue_capacity == 256
    assert settings.limits.control_capacity_per_job == 16
    assert settings.limits.progress_posts_max == 3
    assert settings.lease_s == 30
    assert settings.attempts_max == 5
    assert settings.tombstone_retention_h == 24
    assert settings.transaction_max_bytes == 16 * 1024 * 1024
    assert settings.txn_conflict == "reject"
    assert settings.cancel_power_level is None


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (
            {"control_capacity_per_job": 4, "max_task_progress_posts": 3},
            ("control_capacity_per_job", "max_task_progress_posts"),
        ),
        (
            {"room_queue_capacity": 300},
            ("room_queue_capacity", "global_queue_capacity"),
        ),
        ({"retry_initial_s": 60}, ("retry_initial_s", "retry_max_s")),
        ({"sender_localpart": "scout"}, ("localpart", "sender_localpart")),
        ({"tombstone_retention_h": 23}, ("tombstone_retention_h",)),
        ({"agents": {}}, ("agents",)),
        ({"agents": {"scout": {"url": "x", "surplus": 1}}}, ("agents.scout.surplus",)),
        ({"homeserver_url": "localhost"}, ("homeserver_url",)),
        ({"as_token": None}, ("as_token",)),
        ({"homesever_url": "x"}, ("homesever_url",)),
    ],
)
def test_what_does_not_agree_is_refused_by_the_names_of_the_fields(
    more: dict[str, Any], names: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        made(**more)
    for name in names:
        assert name in refused.value.message


def test_rules_hold_at_their_limits() -> None:
    made(control_capacity_per_job=5, max_task_progress_posts=3)
    made(room_queue_capacity=256)
    made(retry_initial_s=30)


def test_no_secret_is_shown() -> None:
    assert "aaaa" not in repr(made())
    assert "aaaa" not in str(made().model_dump())


def test_what_is_derived() -> None:
    settings = made(
        agents={
            "scout": {"url": "http://127.0.0.1:9000", "task_timeout_s": 5},
            "clerk": {
                "url": "unix:/run/clerk.sock:/a2a",
                "localpart": "the-clerk",
                "display_name": "Clerk",
                "protocol": "0.3",
                "allowed_senders": ["@boss:*"],
                "idempotent": True,
            },
        }
    )
    assert settings.appservice_url == "http://127.0.0.1:29331"
    registered = registration.of(settings)
    assert registered.ghosts == ("scout", "the-clerk")
    known = service.users(settings)
    assert known.ghosts.by_user == {
        "@scout:corral.test": "scout",
        "@the-clerk:corral.test": "clerk",
    }
    assert "@a2a-bridge:corral.test" in known.own
    targets = service.agent_targets(settings)
    assert (targets["clerk"].version, targets["clerk"].idempotent) == ("0.3", True)
    assert targets["scout"].version is None
    policy = service.job_policy(settings)
    assert policy.agents["scout"].task_timeout_s == 5
    assert policy.agents["clerk"].task_timeout_s == 600
    assert service.rooms_options(settings).names == {"clerk": "Clerk"}
    assert service.rooms_options(settings).homeserver == "http://127.0.0.1:8008"
    assert not settings.intake_policy().agent_senders["clerk"].allows("@guest:x")


def test_the_settings_of_the_how_to_are_right() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/bridge.md").read_text()
    [example] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    text = "\n".join(line.removeprefix("   ") for line in example.splitlines())
    secret = {key: GOOD[key] for key in ("as_token", "hs_token", "database")}
    settings = load(BridgeSettings, **tomllib.loads(text), **secret)
    assert settings.agents["scout"].display_name == "Scout"
