"""Invitations: answered when they are heard, found again at the start, refused by policy."""

import asyncio
from collections.abc import Sequence

import pytest

from corral.bridge.events import Invite
from corral.bridge.joining import AT_ONCE, Joining
from corral.bridge.limits import AllowList, Policy, Rate
from corral.bridge.ports import AuthFailed, Forbidden, JoinAnswer, Joined, Limited, Unreachable
from corral.local import wait

FREE = Rate(0, 1)
TIMEOUT_S = 60.0


class Host:
    """A homeserver that answers as the test says, then always well."""

    def __init__(self) -> None:
        self.missed: list[Sequence[tuple[str, str]] | Unreachable] = []
        self.answers: list[JoinAnswer] = []
        self.joined: list[tuple[str, str]] = []
        self.asked = 0
        self.slow: set[str] = set()  # rooms that never answer
        self.faulty: set[str] = set()
        self.at_once = self.most_at_once = 0
        self.all_at_once = asyncio.Event()

    async def join(self, ghost: str, room_id: str) -> JoinAnswer:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.at_once == AT_ONCE:
                self.all_at_once.set()
            if room_id in self.slow:
                await asyncio.Event().wait()
        finally:
            self.at_once -= 1
        if room_id in self.faulty:
            self.faulty.discard(room_id)
            raise KeyError(room_id)
        answer = self.answers.pop(0) if self.answers else Joined()
        if isinstance(answer, Joined):
            self.joined.append((ghost, room_id))
        return answer

    async def invitations(self, ghost: str) -> Sequence[tuple[str, str]] | Unreachable:
        return self.missed.pop(0) if self.missed else []


@pytest.fixture
def host() -> Host:
    return Host()


async def joins(host: Host, policy: Policy, *heard: Invite, expect: list[tuple[str, str]]) -> None:
    joining = Joining(host, policy, {"scout": "scout"})
    joining.heard(heard)
    running = asyncio.create_task(joining.run())
    await wait.until_true(lambda: len(host.joined) >= len(expect), TIMEOUT_S, "the joins")
    running.cancel()
    await asyncio.wait({running})
    assert sorted(host.joined) == sorted(expect)


def invite(room_id: str, sender: str = "@a:x") -> Invite:
    return Invite("$e", room_id, sender, "scout")


async def test_what_is_heard_and_what_was_missed_is_answered(host: Host) -> None:
    host.missed = [Unreachable("no_answer"), [("!missed", "@a:x")]]
    expected = [("scout", "!heard"), ("scout", "!missed")]
    await joins(host, Policy(FREE, FREE), invite("!heard"), expect=expected)


async def test_trouble_is_tried_again_and_a_refusal_is_not(host: Host) -> None:
    host.answers = [Unreachable("x"), Limited(1), AuthFailed("x"), Joined()]
    await joins(host, Policy(FREE, FREE), invite("!one"), expect=[("scout", "!one")])
    assert host.asked == 4
    host.answers = [Forbidden("banned")]
    heard = (invite("!two"), invite("!three"))
    host.joined.clear()
    await joins(host, Policy(FREE, FREE), *heard, expect=[("scout", "!three")])
    assert host.asked == 6


async def test_strangers_invitations_are_left_alone(host: Host) -> None:
    policy = Policy(FREE, FREE, inviters=AllowList(("@a:x",)))
    heard = (invite("!bad", "@b:x"), invite("!good"))
    await joins(host, policy, *heard, expect=[("scout", "!good")])


async def test_slow_rooms_and_faults_hold_up_no_other(host: Host) -> None:
    host.slow, host.faulty = {"!slow"}, {"!faulty"}
    heard = [invite(room) for room in ("!slow", "!slow", "!faulty", *(f"!{n}" for n in range(40)))]
    expected = [("scout", one.room_id) for one in heard if one.room_id != "!slow"]
    await joins(host, Policy(FREE, FREE), *heard, expect=expected)
    assert host.asked == len(expected) + 2  # the slow one once, the faulty one twice


async def test_so_many_are_asked_at_once_and_no_more(host: Host) -> None:
    rooms = [f"!{n}" for n in range(3 * AT_ONCE)]
    host.slow = set(rooms)
    joining = Joining(host, Policy(FREE, FREE), {"scout": "scout"})
    joining.heard([invite(room) for room in rooms])
    running = asyncio.create_task(joining.run())
    await asyncio.wait_for(host.all_at_once.wait(), TIMEOUT_S)
    for _ in range(100):
        await asyncio.sleep(0)
    assert host.most_at_once == AT_ONCE
    running.cancel()
    await asyncio.wait({running})
