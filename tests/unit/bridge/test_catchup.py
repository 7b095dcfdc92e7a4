"""What is taken for missed, and when: with a homeserver that is played."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from corral.bridge.catchup import AT_ONCE_MAX, CatchUp, Event, Options
from corral.bridge.events import Invite
from corral.bridge.matrix.news import News
from corral.bridge.matrix.rooms import Problem
from corral.bridge.ports import Forbidden, Unreachable
from corral.core.errors import StorageError

OWN = "@scout:x"
AGE_MAX_S = 900.0


def event(name: str, *, age: object = 0, sender: str = "@ada:x") -> dict[str, Any]:
    return {"event_id": name, "sender": sender, "room_id": "!r", "unsigned": {"age": age}}


@dataclass
class Played:
    """Gives the answers in turn, and then nothing new; keeps what it was asked."""

    answers: list[News | Problem] = field(default_factory=list)
    since: list[str | None] = field(default_factory=list)
    admitted: list[list[str]] = field(default_factory=list)
    invited: list[Invite] = field(default_factory=list)
    faults: int = 0

    async def look(self, ghost: str, since: str | None) -> News | Problem:
        self.since.append(since)
        return self.answers.pop(0) if self.answers else News(f"p{len(self.since)}", [], [])

    async def admit(self, missed: Sequence[Event]) -> int:
        if self.faults:
            self.faults -= 1
            raise StorageError("no disk")
        self.admitted.append([one["event_id"] for one in missed])
        return len(missed)


def catching(played: Played, ghosts: Sequence[str] = ("scout",)) -> CatchUp:
    options = Options(1.0, AGE_MAX_S, frozenset([OWN]))
    return CatchUp(played, ghosts, options, admit=played.admit, invited=played.invited.extend)


async def test_what_no_transaction_brings_by_the_next_look_is_admitted_once() -> None:
    played = Played([News("p1", [event("$lost"), event("$late")], [])])
    found = catching(played)
    assert await found.look()
    assert played.admitted == []
    found.heard([event("$late")])
    for _ in range(3):
        assert await found.look()
    assert played.admitted == [["$lost"]]
    assert played.since == [None, "p1", "p2", "p3"]


async def test_what_a_transaction_brought_before_is_not_looked_at() -> None:
    played = Played([News("p1", [event("$known")], [])])
    found = catching(played)
    found.heard([event("$known"), "malformed", {"event_id": 7}])
    assert await found.look()
    assert await found.look()
    assert played.admitted == []


async def test_echoes_old_events_and_those_of_unknown_age_are_left_alone() -> None:
    limit_ms = int(AGE_MAX_S * 1000)
    strange = [
        event("$own", sender=OWN),
        event("$old", age=limit_ms + 1),
        event("$ageless", age=None),
        {**event("$no-unsigned"), "unsigned": []},
        {"sender": "@ada:x"},
        {**event("$x"), "event_id": 5},
    ]
    played = Played([News("p1", [*strange, event("$limit", age=limit_ms)], [])])
    found = catching(played)
    assert await found.look()
    assert await found.look()
    assert played.admitted == [["$limit"]]


async def test_while_the_homeserver_is_away_nothing_is_forgotten() -> None:
    played = Played([News("p1", [event("$lost")], []), Unreachable("no_answer")])
    found = catching(played)
    assert await found.look()
    assert not await found.look()
    assert played.admitted == []
    assert await found.look()
    assert played.admitted == [["$lost"]]
    assert played.since == [None, "p1", "p1"]


async def test_while_the_ledger_is_away_nothing_is_forgotten() -> None:
    played = Played([News("p1", [event("$lost")], [])], faults=1)
    found = catching(played)
    assert await found.look()
    assert not await found.look()
    assert await found.look()
    assert played.admitted == [["$lost"]]


async def test_a_position_that_the_homeserver_refuses_is_given_up() -> None:
    played = Played([News("p1", [], []), Forbidden("m_unknown_pos")])
    found = catching(played)
    assert await found.look()
    assert not await found.look()
    assert await found.look()
    assert played.since == [None, "p1", None]


async def test_much_is_admitted_in_parts() -> None:
    many = [event(f"${number}") for number in range(AT_ONCE_MAX + 1)]
    played = Played([News("p1", many, [])])
    found = catching(played)
    assert await found.look()
    assert await found.look()
    assert [len(one) for one in played.admitted] == [AT_ONCE_MAX, 1]


async def test_invitations_are_passed_on() -> None:
    played = Played([News("p1", [], [("!room", "@ada:x")])])
    assert await catching(played).look()
    assert played.invited == [Invite("", "!room", "@ada:x", "scout")]
