"""The parts of the bridge's reference that come from the code.

`python -m tests.unit.bridge.reference` writes them; `test_reference.py` compares them.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from corral.bridge.main import cli
from corral.bridge.settings import AgentSettings, BridgeSettings
from tests.unit.cowboy_cli.reference import command_text, leaves, table

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "bridge.md"
_PART = re.compile(
    r"(?P<head><!-- bridge (?P<name>[a-z]+), written by: [^>]* -->\n)"
    r".*?"
    r"(?P<end><!-- end of the written part -->)",
    re.DOTALL,
)


def _fields(model: type[BaseModel], shown: Callable[[str], str], skip: frozenset[str]) -> str:
    rows = [
        [f"`{shown(name)}`", _default(field), _meaning(name, field)]
        for name, field in model.model_fields.items()
        if name not in skip
    ]
    return table(["setting", "default", "meaning"], rows)


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if value is PydanticUndefined:
        return "required"
    return "" if value in {None, ()} else f"`{value}`"


# Whose name and unit say it all.
PLAIN = {
    "appservice_id": "As in the registration.",
    "listen_port": "There.",
    "control_capacity_per_job": "Questions, answers, cancellations, posts of one job.",
    "max_task_progress_posts": "Of one job, in the placeholder's thread.",
    "claim_interval_s": "Only the fallback: a new job wakes the worker.",
    "lease_s": "How long a worker has a job without renewing; it renews every third of it.",
    "retry_initial_s": "The first pause after a failure.",
    "retry_max_s": "The longest one.",
    "task_timeout_s": "From the first call on; paused while input is awaited.",
    "input_wait_timeout_s": "For the answer to an agent's question.",
    "reconcile_timeout_s": "For finding a lost call, or sending it again.",
    "shutdown_timeout_s": "For what is in work when the bridge is stopped.",
    "tombstone_retention_h": "Of delivered and denied jobs, without content.",
    "transaction_max_bytes": "Of one delivery of the homeserver.",
    "sender_burst": "At once.",
    "room_burst": "At once.",
    "agents": "See below.",
    "request_timeout_s": "Of one HTTP call; unset: the bridge's.",
}


def _meaning(name: str, field: FieldInfo) -> str:
    return field.description or PLAIN[name]


def settings() -> str:
    return _fields(BridgeSettings, lambda name: f"BRIDGE_{name.upper()}", frozenset())


def agents() -> str:
    return _fields(AgentSettings, str, frozenset())


def commands() -> str:
    found = leaves(("a2a-bridge",), cli)
    return "\n".join(command_text(words, command) for words, command in found)


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "agents": agents,
    "commands": commands,
}


def names(text: str) -> list[str]:
    return [part["name"] for part in _PART.finditer(text)]


def rendered(text: str) -> str:
    """The page with its written parts made anew."""
    return _PART.sub(lambda part: f"{part['head']}\n{PARTS[part['name']]()}\n{part['end']}", text)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
