"""The parts of TAMQ's reference that come from the code.

`python -m tests.unit.tamq.reference` writes them; `test_reference.py` compares them.
"""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path

from corral.tamq import domain, requests, roster, transport, wire
from corral.tamq.errors import CODES
from corral.tamq.main import cli
from corral.tamq.schema import schema_text
from corral.tamq.settings import TamqSettings
from tests.unit.cowboy_cli.reference import command_text, leaves, table

PAGES = Path(__file__).parents[3] / "docs" / "reference"
SCHEMA = PAGES / "tamq.schema.json"
_PART = re.compile(
    r"(?P<head><!-- tamq (?P<name>[a-z]+), written by: [^>]* -->\n)"
    r".*?"
    r"(?P<end><!-- end of the written part -->)",
    re.DOTALL,
)


def limits() -> str:
    rows = [
        ("a line, its newline included", f"{wire.FRAME_MAX_BYTES:,} bytes"),
        ("body", f"{wire.BODY_MAX_BYTES:,} bytes of UTF-8, at least one"),
        ("metadata", f"{wire.METADATA_MAX_BYTES:,} bytes of compact JSON"),
        (
            "`client_id`, `idempotency_key`, `correlation_id`, `endpoint_id`, `profile`, `actor`",
            f"{wire.ID_MAX_BYTES} bytes",
        ),
        ("names of repositories", f"{wire.REPO_MAX_BYTES} bytes"),
        ("`provenance`", f"{requests.PROVENANCE_MAX_BYTES} bytes"),
        ("`label`", f"{requests.LABEL_MAX_BYTES} bytes"),
        ("`why`", f"{requests.WHY_MAX_BYTES} bytes"),
        ("repositories of a session", str(requests.REPOS_MAX)),
        ("`terminal`", f"{requests.TERMINAL_MAX_BYTES:,} bytes of compact JSON"),
        ("a page", f"{requests.PAGE_MAX} messages, {requests.PAGE_DEFAULT} unless asked"),
        ("live sessions", str(roster.ENDPOINTS_MAX)),
        ("attempts", f"{domain.ATTEMPTS_MIN} to {domain.ATTEMPTS_MAX}"),
        ("connections", f"{transport.CONNECTIONS_MAX:,} (a setting)"),
        ("time for a line", f"{transport.READ_TIMEOUT_S:g} s (a setting)"),
    ]
    return table(["what", "at most"], [list(row) for row in rows])


def states() -> str:
    lines = (domain.__doc__ or "").splitlines()
    return "\n".join(line for line in lines if line.startswith("|")) + "\n"


def errors() -> str:
    rows = [
        [
            f"`{code}`",
            "yes" if kind.retryable else "no",
            str(kind.exit_code),
            " ".join(inspect.cleandoc(kind.__doc__ or "").split()),
        ]
        for code, kind in sorted(CODES.items())
    ]
    return table(["code", "retryable", "exit status", "meaning"], rows)


def settings() -> str:
    rows = []
    for name, field in TamqSettings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        shown = (
            "" if field.default_factory is not None or default is None else f"`{written(default)}`"
        )
        rows.append([f"`TAMQ_{name.upper()}`", shown, field.description or ""])
    return table(["variable", "default", "meaning"], rows)


def written(value: object) -> str:
    """A value as a variable has it: lists are JSON."""
    return str(value) if isinstance(value, str) else json.dumps(value)


def commands() -> str:
    return "\n".join(command_text(words, command) for words, command in leaves(("tamq",), cli))


PARTS: dict[str, Callable[[], str]] = {
    "limits": limits,
    "states": states,
    "errors": errors,
    "settings": settings,
    "commands": commands,
}


def pages() -> list[Path]:
    return sorted(PAGES.glob("tamq-*.md"))


def names(text: str) -> list[str]:
    return [part["name"] for part in _PART.finditer(text)]


def rendered(text: str) -> str:
    """The page with its written parts made anew."""
    return _PART.sub(lambda part: f"{part['head']}\n{PARTS[part['name']]()}\n{part['end']}", text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(rendered(page.read_text()))
    SCHEMA.write_text(schema_text())
