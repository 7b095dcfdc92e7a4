"""What goes into a tick and what comes out of it, and what the sources of an agent share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from corral.core.clock import Clock
from corral.core.errors import CorralError
from corral.core.sqlite import SqliteWriter
from corral.cowboy.book import Orders
from corral.cowboy.machine import Machine
from corral.cowboy.store import Rows

Event = Callable[[], None]  # runs inside a tick's transaction, in the writer's thread


@dataclass(slots=True)
class Shared:
    """What the sources of one agent have in common."""

    agent: str
    uuid: str
    writer: SqliteWriter
    rows: Rows
    clock: Clock
    turns_concurrent_max: int
    machines: list[Machine] = field(default_factory=list)
    send: Callable[[Machine, Orders], None] = lambda _machine, _orders: None
    slot_freed: Callable[[], None] = lambda: None

    def busy(self) -> int:
        return sum(len(machine.book.busy) for machine in self.machines)


@dataclass(slots=True)
class Tick:
    """What a committed tick leaves to be done."""

    sequence: int
    orders: Orders
    points: set[str]
    fetch: dict[bytes, list[bytes]]  # lane -> parked entries whose content is wanted
    freed: bool


@dataclass(slots=True, eq=False)
class Command:
    """An event whose caller waits until the tick in which it ran is committed."""

    action: Event
    done: "asyncio.Future[None]"
    ran: bool = False
    failure: CorralError | None = None

    def __call__(self) -> None:
        self.ran = True
        try:
            self.action()
        except CorralError as error:
            self.failure = error

    def end(self, error: CorralError | None) -> None:
        if self.done.done():  # its caller has gone
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
