"""Turns, entries and settings for the tests of the turn machine."""

import json
from dataclasses import replace
from typing import Any

from corral.cowboy.config import SourceConfig
from corral.cowboy.domain import Kind, Limits, pack_id, turn_id
from corral.cowboy.turn import Turn

AGENT = "scout"
SOURCE = "a2a"
CONTENT_MAX_BYTES = 40
METADATA_MAX_BYTES = 64
LIMITS = Limits(CONTENT_MAX_BYTES, METADATA_MAX_BYTES)


def entry_id(ms: int, seq: int = 0) -> bytes:
    """A packed entry id."""
    return pack_id(b"%d-%d" % (ms, seq))


def turn(**changes: Any) -> Turn:
    """A message turn that was just received."""
    entry = entry_id(1)
    return replace(
        Turn(1, turn_id(AGENT, SOURCE, 1, entry), 1, entry, Kind.MESSAGE, 1_700_000_000_000),
        **changes,
    )


def source_config(*, runner: str = "exec", **changes: Any) -> SourceConfig:
    """A source with small limits, so that a test meets them."""
    runners: dict[str, dict[str, Any]] = {
        "exec": {"kind": "exec", "command": ["agent"]},
        "tamq": {"kind": "tamq", "repo": "shop", "socket": "/run/tamq.sock"},
        "echo": {"kind": "echo", "reply_max_bytes": CONTENT_MAX_BYTES - 10},
    }
    settings: dict[str, Any] = {
        "stream": f"{AGENT}:{SOURCE}:inbox",
        "outbox": f"{AGENT}:{SOURCE}:outbox",
        "group": "cowboy",
        "consumer": f"harness-{SOURCE}",
        "reclaim_idle_ms": 600_000,
        "read_count": 10,
        "ack": "dispatch",
        "on_interrupt": "notify",
        "runner": runners[runner],
        "content_max_bytes": CONTENT_MAX_BYTES,
        "metadata_max_bytes": METADATA_MAX_BYTES,
        **changes,
    }
    return SourceConfig.model_validate_json(json.dumps(settings))
