"""Short ways to make what Matrix sends."""

import hashlib
from collections.abc import Sequence
from typing import Any

from corral.bridge.domain import Limits
from corral.bridge.incoming import Classified, EventDigest, Incoming, Mention

ALICE = "@alice:example.org"
BOB = "@bob:example.org"
ROOM = "!room:example.org"
SMALL = Limits(room_queue_capacity=2, global_queue_capacity=3)


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def mention(name: str, *, room: str = ROOM, ghost: str = "scout", **more: object) -> Mention:
    fields: dict[str, object] = {"sender": ALICE, "text": f"do {name}", "position": 0, **more}
    return Mention(f"${name}", room, ghost=ghost, **fields)  # type: ignore[arg-type]


def incoming(
    txn: str,
    *classified: Classified,
    age: str = "",
    events: Sequence[EventDigest] | None = None,
) -> Incoming:
    """A transaction; `age` changes its bytes, not its events."""
    named = dict.fromkeys(
        one.event_id if not hasattr(one, "mention") else one.mention.event_id for one in classified
    )
    made = tuple(EventDigest(name, sha(name)) for name in named) if events is None else events
    return Incoming(txn, sha(f"{txn}{list(named)}{age}"), tuple(made), classified)


async def rows(sql: Any) -> list[tuple[str, str, str | None]]:
    found = await sql.fetch("SELECT event_id, state, reason FROM bridge_delegations ORDER BY seq")
    return [tuple(row) for row in found]


async def waits_for_a_row(sql: Any) -> bool:
    found = await sql.fetchval(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    )
    return bool(found)
