"""What the runner asks a TAMQ: its public protocol, one connection for each question.

Nothing of TAMQ is imported: the protocol is the contract. `AskError` says whether the same
question may have another answer later; no answer at all is such a case, too.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

PROTOCOL: Final = "0.1"
FRAME_MAX_BYTES: Final = 131_072
ASK_TIMEOUT_S: Final = 5.0
PAGES_MAX: Final = 64


class AskError(Exception):
    """TAMQ refused, or did not answer. Its text is a code of the protocol, never content.

    ``doubtful``: what was asked may have been done.
    """

    def __init__(self, code: str, *, retryable: bool, doubtful: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.retryable = retryable
        self.doubtful = doubtful


async def ask(socket: str, fields: Mapping[str, object]) -> dict[str, Any]:
    """The answer's fields. Raises `AskError`."""
    frame = json.dumps({"protocol": PROTOCOL, **fields}).encode() + b"\n"
    doubtful = False
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(socket, limit=FRAME_MAX_BYTES)
            doubtful = True
            try:
                writer.write(frame)
                line = await reader.readline()
            finally:
                writer.close()
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        raise AskError("unavailable", retryable=True, doubtful=doubtful) from error
    return _answer(line)


def _answer(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not line.endswith(b"\n") or not isinstance(fields, dict):
        raise AskError("unavailable", retryable=True, doubtful=True)
    if fields.get("ok") is True:
        return fields
    told = fields.get("error")
    refusal = told if isinstance(told, dict) else {}
    raise AskError(
        str(refusal.get("code", "unavailable"))[:64],
        retryable=refusal.get("retryable", True) is True,
    )


async def is_live(socket: str, endpoint_id: str) -> bool:
    """Whether a session is still registered. Raises `AskError`."""
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await ask(socket, {"op": "endpoints", **({"cursor": cursor} if cursor else {})})
        if any(one.get("endpoint_id") == endpoint_id for one in page["endpoints"]):
            return True
        cursor = page.get("cursor")
        if cursor is None:
            return False
    return True  # too many to tell
