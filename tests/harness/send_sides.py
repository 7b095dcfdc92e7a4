"""Whom the bridge calls in a trial of killed sends: is started and killed; notes what it begins."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from corral.bridge.domain import Reason
from corral.gateway import points
from tests.contract.kit import AGENT, PAIRS, House
from tests.harness.a2a_peers import sdk_words
from tests.harness.armed_process import ArmedProcess
from tests.harness.gateway_process import SOURCE, GatewayProcess


class Side(ABC):
    """`folder` is the trial's. `ends` are how its mentions may end; `agent` is the bridge's policy
    for it, `http` where it is."""

    points: ClassVar[Sequence[str]] = ()  # at which it may kill itself
    agent: ClassVar[Mapping[str, Any]] = {}
    ends: ClassVar[frozenset[Reason]]
    reconcile_timeout_s: ClassVar[float] = 1.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http: Mapping[str, Any] = {}
        self.process: ArmedProcess
        self.place = folder / "agent"  # its socket

    @abstractmethod
    def live(self) -> AbstractAsyncContextManager[None]:
        """Makes `process`, which is not started yet, and what it needs besides."""

    @abstractmethod
    def begun(self, rows: Sequence[Any], texts: Mapping[str, str]) -> Counter[str]:
        """How often the agent began, by event id. `rows`: the jobs; `texts`: what events say."""

    def noted(self) -> str:
        """What the agent itself has written down."""
        return (self.folder / "begun").read_text()


class ThroughGateway(Side):
    """The gateway, Redis, and cowboy with an agent that notes what it is asked."""

    points = (points.SENT, points.ADDED, points.PUBLISHED)
    agent: ClassVar[Mapping[str, Any]] = {"idempotent": True}
    ends = frozenset({Reason.ANSWERED})
    reconcile_timeout_s = 60.0  # as it comes

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        note = ["/usr/bin/tee", "-a", str(self.folder / "begun")]
        runner = {"kind": "exec", "command": note, "turn_timeout_s": 60}
        async with House(PAIRS[1], only=(SOURCE,), changes={SOURCE: {"runner": runner}}) as house:
            await house.start()
            process = GatewayProcess(self.folder / "gateway", house.topology, AGENT)
            self.process, self.http = process, {
                "url": process.url, "token_file": str(process.token), **self.agent,
            }  # fmt: skip
            self.place = process.place
            yield

    def begun(self, rows: Sequence[Any], texts: Mapping[str, str]) -> Counter[str]:
        events = {text.partition(" ")[2]: event for event, text in texts.items()}
        return Counter(events.get(text, text) for text in re.findall(r"<\d+>", self.noted()))


class SdkProcess(ArmedProcess):
    """An agent of the SDK, which has no points of ours."""

    def words(self, hits: Path, arms: Sequence[str]) -> list[str]:
        place = self.folder / "agent"
        place.unlink(missing_ok=True)
        return sdk_words("1", place, "--log", str(self.folder / "begun"))


class PlainSdk(Side):
    """An agent of the official SDK as it comes. Killed, it has forgotten its tasks."""

    ends = frozenset({Reason.ANSWERED, Reason.CALL_UNCERTAIN, Reason.TASK_LOST})

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        self.process = SdkProcess(self.folder, "sdk", "")
        self.http = {"url": f"unix:{self.place}:/"}
        yield

    def begun(self, rows: Sequence[Any], texts: Mapping[str, str]) -> Counter[str]:
        events = {row["a2a_message_id"]: row["event_id"] for row in rows}
        return Counter(events.get(ident, ident) for ident in self.noted().split())


class ReconciledSdk(PlainSdk):
    """The same, asked what it has before a call is given up."""

    agent: ClassVar[Mapping[str, Any]] = {"reconcile": True}


SIDES: Final[Mapping[str, type[Side]]] = {
    "gateway": ThroughGateway,
    "sdk": PlainSdk,
    "sdk-reconciled": ReconciledSdk,
}
