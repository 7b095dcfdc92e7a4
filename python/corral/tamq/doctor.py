"""What `tamq doctor` looks at: registry, socket, service, sessions, messages."""

import stat
from collections.abc import Callable, Iterator
from typing import Any, Final

from corral.core.errors import CorralError
from corral.core.settings import load
from corral.tamq import wire
from corral.tamq.ask import Place
from corral.tamq.domain import ENDPOINT_GONE
from corral.tamq.registry import Registry
from corral.tamq.requests import PAGE_MAX
from corral.tamq.settings import TamqSettings

WAITING_PAGES_MAX: Final = 50  # looked through; each at most 10,000 messages of the past

Finding = dict[str, Any]


def run(place: Place) -> list[Finding]:
    """All findings, in order; those that need the service only when it answers."""
    checks: tuple[tuple[str, Callable[[Place], Iterator[str]]], ...] = (
        ("registry", _registry),
        ("socket", _socket),
        ("service", _service),
        ("sessions", _sessions),
        ("messages", _messages),
        ("waiting", _waiting),
    )
    found: list[Finding] = []
    for name, check in checks:
        try:
            found.append({"check": name, "ok": True, "text": "; ".join(check(place))})
        except CorralError as error:
            found.append({"check": name, "ok": False, "text": str(error), "code": error.code})
            if name == "service":
                break
    return found


class FindingError(CorralError):
    """Something that `doctor` finds wrong."""

    code = "unhealthy"


def _registry(_: Place) -> Iterator[str]:
    registry = Registry(load(TamqSettings).gita_repos)
    registry.refresh()
    names = registry.names()
    if not names:
        raise FindingError(
            f"{registry.path} has no repositories", hint="gita add PATH, then try again"
        )
    yield f"{len(names)} repositories in {registry.path}"


def _socket(place: Place) -> Iterator[str]:
    path = place.path
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise FindingError(f"{path}: {error.strerror}", hint="start it: tamq serve") from None
    if not stat.S_ISSOCK(mode):
        raise FindingError(f"{path} is no socket", hint="remove it, then start tamq serve")
    if stat.S_IMODE(mode) != 0o600:
        raise FindingError(f"{path} has mode {stat.S_IMODE(mode):04o}, not 0600", hint="restart")
    yield f"{path}, mode 0600"


def _service(place: Place) -> Iterator[str]:
    pong = place.ask({"op": "ping"})
    wire.check_peer(pong)
    yield f"TAMQ {pong['instance']} speaks protocol {pong['protocol']}"


def _sessions(place: Place) -> Iterator[str]:
    found = place.ask({"op": "endpoints"})["endpoints"]
    if not found:
        raise FindingError("no live session", hint="tamq attach, or tamq run")
    unready = [one for one in found if one["ready"] != "ready" and one["open_messages"]]
    if unready:
        shown = [
            f"{one['endpoint_id']} is {one['ready']} ({one['ready_reason']}) since "
            f"{one['ready_since']}, {one['open_messages']} messages wait"
            for one in unready[:5]
        ]
        raise FindingError("; ".join(shown), hint="look at the session: what does it show?")
    yield f"{len(found)} live"


def _messages(place: Place) -> Iterator[str]:
    failed = place.ask({"op": "history", "state": "failed", "limit": PAGE_MAX})
    count = len(failed["messages"])
    if count:
        more = "at least " if failed["cursor"] else ""
        raise FindingError(
            f"{more}{count} failed, the newest {failed['messages'][0]['message_id']}",
            hint="tamq message ID says why; tamq retry ID --why …",
        )
    yield "none failed"


def _waiting(place: Place) -> Iterator[str]:
    """Messages whose session ended: they wait until somebody binds them to another."""
    cursor, found = None, []
    for _ in range(WAITING_PAGES_MAX):
        page = place.ask({"op": "history", "state": "pending", "limit": PAGE_MAX, "cursor": cursor})
        found += [one for one in page["messages"] if one["waiting_reason"] == ENDPOINT_GONE]
        cursor = page["cursor"]
        if cursor is None:
            break
    if found:
        newest = found[0]
        raise FindingError(
            f"{len(found)} wait for a session that has ended, the newest to "
            f"{newest['target_repo']} since {newest['waiting_since']}",
            hint=f"when a session serves it again: tamq rebind {newest['message_id']} --why …; "
            "tamq history --state pending has the others",
        )
    yield "none for a session that has ended"
