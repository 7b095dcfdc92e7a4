"""What the programs said, as lines of one screen. Pure.

A line says of one thing how it is (`ok`, `warn`, `bad`), what waits there, and what to do about it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from corral.overview.programs import Answer

Level = Literal["ok", "warn", "bad"]
LEVELS: Final[Mapping[str, Level]] = {
    "ok": "ok", "absent": "ok", "warning": "warn",
}  # fmt: skip
Data = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """`what` is of `service`; `text` says what is so, `hint` what to do."""

    service: str
    what: str
    level: Level
    text: str
    hint: str = ""

    def as_dict(self) -> dict[str, str]:
        return {
            "service": self.service, "what": self.what, "level": self.level,
            "text": self.text, "hint": self.hint,
        }  # fmt: skip


def lines_of(service: str, answers: Sequence[Answer]) -> list[Line]:
    """All lines of a service."""
    troubles = list(dict.fromkeys(one.trouble for one in answers if one.data is None))
    found = [Line(service, "service", "bad", trouble) for trouble in troubles]
    known = {one.key: one.data for one in answers if one.data is not None}
    if "agents" in known:
        found += cowboy(known["agents"])
    if "sessions" in known:
        found += tamq(known)
    if "doctor" in known:
        found += checks(service, known["doctor"])
    if "jobs" in known:
        found += jobs(known["jobs"])
    return found


def cowboy(data: Data) -> Iterator[Line]:
    """`cowboy status`: a line for each source, and for an agent that does not answer."""
    for agent in data["agents"]:
        name = agent["agent"]
        if agent.get("error"):
            yield Line("cowboy", name, "bad", str(agent["error"]))
        streams = {one["source"]: one for one in agent.get("redis") or ()}
        for source in agent["sources"]:
            yield _source(name, source, streams.get(source["source"]))


def _source(agent: str, source: Data, stream: Data | None) -> Line:
    waits = [f"{source['open']} open"]
    if stream is not None:
        waits.append(f"{stream['inbox']['lag']} unread")
        unseen = sum(reader["lag"] or 0 for reader in stream["outbox"]["readers"].values())
        waits.append(f"{unseen} answers unread")
        if stream["dead"]:
            waits.append(f"{stream['dead']} dead")
    if held := source["turns"].get("held", 0):
        waits.append(f"{held} held")
    if oldest := source.get("oldest_unanswered"):
        waits.append(f"the oldest for {oldest['age_s']:.0f} s ({oldest['turn_id']})")
    healthy = source["healthy"]
    text = f"{source['state']}: {', '.join(waits)}"
    level: Level = "warn" if healthy and held else "ok" if healthy else "bad"
    return Line("cowboy", f"{agent}/{source['source']}", level, text, source.get("reason") or "")


def tamq(known: Mapping[str, Data]) -> Iterator[Line]:
    """Sessions, and what waits for them; a list that is longer than one answer ends with +."""
    for one in known["sessions"]["endpoints"]:
        ready = str(one["ready"])
        yield Line("tamq", ",".join(one["repos"]), "ok", f"live, {ready}")
    counts = []
    for state in ("pending", "awaiting_ack", "failed"):
        if (found := known.get(state)) is not None:
            more = "+" if found.get("cursor") else ""
            counts.append((state, len(found["messages"]), more))
    level: Level = "warn" if any(state == "failed" and n for state, n, _ in counts) else "ok"
    text = ", ".join(f"{n}{more} {state.replace('_', ' ')}" for state, n, more in counts)
    hint = "tamq history --state failed" if level != "ok" else ""
    yield Line("tamq", "messages", level, text, hint)


def jobs(data: Data) -> Iterator[Line]:
    """`a2a-bridge jobs list`: by state."""
    counts = Counter(str(one["state"]) for one in data["jobs"])
    uncertain = sum(counts[state] for state in ("ambiguous", "dead"))
    text = ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none is open"
    hint = "a2a-bridge jobs list --state ambiguous --state dead" if uncertain else ""
    yield Line("a2a-bridge", "jobs", "warn" if uncertain else "ok", text, hint)


def checks(service: str, data: Data) -> Iterator[Line]:
    """What a `doctor` found; of several agents each by its name."""
    for agent in data.get("agents", [data]):
        prefix = f"{agent['agent']}: " if "agent" in agent else ""
        for check in agent["checks"]:
            hint = check.get("hint") or check.get("fix") or ""
            yield Line(service, prefix + check["check"], level_of(check), check["text"], hint)


def level_of(check: Data) -> Level:
    """A check that could not run is not green."""
    if "ok" in check:
        return "ok" if check["ok"] else "bad"
    return LEVELS.get(str(check.get("level", check.get("result"))), "bad")
