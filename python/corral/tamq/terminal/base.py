"""What the deliverer knows of a terminal: who lives there, whether it is ready, what a write did.

A `Terminal` is one live session. It is asked `readiness` before a lease is taken, and told to
`inject` after. Nothing here decides about attempts or states of messages; that is the deliverer's.

Nothing is ever written to a session that is not the one that registered, to one that shows a
dialog or a menu, is in copy mode, or holds somebody's draft. No Escape is ever sent.
"""

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, NamedTuple

# `readiness` and `capture` answer within the first, `inject` within the second: a lease must be
# longer than that.
LOOK_MAX_MS: Final = 5_000
INJECT_MAX_MS: Final = 20_000


class ProcessId(NamedTuple):
    """A process by pid and start time (clock ticks since boot), of one boot of the machine."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class TmuxAddress:
    """A pane: the server's socket and the pane's id (`%7`), never a name.

    `server` is the tmux server that was registered, `process` the program in the pane that the
    messages are for: the leader of its foreground process group when it registered.
    """

    socket: str
    server: ProcessId
    pane: str
    process: ProcessId


@dataclass(frozen=True)
class PtyAddress:
    """A pseudo-terminal that `tamq run` holds: that program's own socket, and the two processes."""

    socket: str
    host: ProcessId
    process: ProcessId


Address = TmuxAddress | PtyAddress


@dataclass(frozen=True)
class Wake:
    """One attempt to deliver one message.

    `message_id` is random (128 bits or more, lower-case hex or a UUID) and made after the body
    was admitted: that is why no body can contain the line that ends its envelope. `sender` is
    what the daemon verified, for display. `earlier_attempts` are the attempts of this message
    into this endpoint whose outcome was `NOT_SUBMITTED`, `UNKNOWN` or never recorded: their text
    may still be in the composer, where it is no draft. `unread`: one of them is on record as
    `not_read`: its line was entered, and the program had not read it then.
    """

    message_id: str
    attempt: int
    sender: str
    body: str
    earlier_attempts: tuple[int, ...] = ()
    unread: bool = False


class Ready(enum.StrEnum):
    """What a terminal is before a write. Only `READY` is written to; only `GONE` is final."""

    READY = "ready"
    BUSY = "busy"  # no place to write is on the screen, or the program is at work
    DRAFT = "draft"  # somebody's text is in the composer
    COPY_MODE = "copy_mode"  # tmux would swallow the keys
    DIALOG = "dialog"  # a menu or a question: a key would answer it
    OTHER_PROGRAM = "other_program"  # the registered one is alive, but not in the foreground
    UNREACHABLE = "unreachable"  # the tmux server or `tamq run` does not answer in time
    GONE = "gone"  # the pane, its server or the registered process is no more


@dataclass(frozen=True)
class Readiness:
    """`reason` is a stable code for the operator, never content: `draft`, `pane_dead`, …

    `pasted`: nothing of this message has to be written but, perhaps, Enter: the composer holds
    exactly its text (or, `draft_mixed`, more), or the program has got it.
    """

    state: Ready
    reason: str
    pasted: bool = False


class Outcome(enum.StrEnum):
    """What is known of one `inject`; each but the first is a failed attempt."""

    INJECTED = "injected"  # seen: the composer took the text and drained (or the shell shows it)
    NOT_READY = "not_ready"  # nothing was written: it was no longer ready
    GONE = "gone"  # nothing was written: the session is no more
    NOT_SUBMITTED = "not_submitted"  # the text is in the composer, Enter did nothing
    UNKNOWN = "unknown"  # something was written, and what became of it was not seen


@dataclass(frozen=True)
class Injection:
    """`typed`: our text (or part of it) may have reached the session. `enters`: how many were sent.

    `reason` is a stable code, never content.
    """

    outcome: Outcome
    reason: str
    typed: bool = False
    enters: int = 0


class Terminal(ABC):
    """One live session. Calls of one session may overlap: injections wait for each other.

    No method raises for what the session does; the answers say it. Cancelling `inject` leaves
    the outcome unknown.
    """

    @property
    @abstractmethod
    def address(self) -> Address: ...

    @abstractmethod
    async def readiness(self, wake: Wake | None = None) -> Readiness:
        """Whether `wake` (or, without one, anything) could be written now. Writes nothing."""

    @abstractmethod
    async def inject(self, wake: Wake) -> Injection:
        """Write it and see what became of it. Asks for readiness again, under the lock."""

    @abstractmethod
    async def capture(self) -> tuple[str, ...]:
        """The visible lines, for the operator who asks (`OSError` when there are none to see)."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of what the object holds. Never ends the session."""
