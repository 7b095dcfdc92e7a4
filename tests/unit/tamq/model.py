"""The contract's table as a model: what must come of sends, results, acknowledgements and time.

Written from the contract, not from the code. Time is in milliseconds; `wall` may jump, `mono` not.
"""

from dataclasses import dataclass, field

DELAYS = (5_000, 15_000, 60_000, 300_000)
ACK_MS = LEASE_MS = 30_000


class Refused(Exception):
    """The code with which a request is refused."""


@dataclass
class Session:
    """A live endpoint. `holds`: an injection that has not come back: (key, serial)."""

    name: str
    max_attempts: int
    mode: str
    ready: bool = True
    result: str = "injected"
    holding: bool = False
    holds: tuple[str, int] | None = None
    live: bool = True


@dataclass
class Entry:
    key: str
    body: str
    session: Session
    max_attempts: int
    mode: str
    state: str = "pending"
    attempts: int = 0
    serial: int = 0
    kind: str = "attempt"  # what it waits for, while it is open
    wait: int = 0  # how long it had to wait when that began
    due_mono: int = 0
    due_wall: int = 0
    reason: str | None = None
    former: set[str] = field(default_factory=set)
    written: int = 0

    @property
    def open(self) -> bool:
        return self.state in {"pending", "awaiting_ack"}


class Model:
    def __init__(self, wall: int) -> None:
        self.mono, self.wall = 0, wall
        self.sessions: dict[str, Session] = {}
        self.entries: dict[str, Entry] = {}

    def live(self) -> list[Session]:
        return [one for one in self.sessions.values() if one.live]

    # ---- what clients and operators do

    def send(self, key: str, body: str, name: str | None) -> tuple[bool, bool]:
        """Whether it was there before, and whether it was bound anew."""
        entry = self.entries.get(key)
        if entry is None:
            session = self._resolve(name)
            entry = Entry(key, body, session, session.max_attempts, session.mode)
            self.entries[key] = entry
            self._wait(entry, "attempt", 0)
            self.work()
            return False, False
        if entry.body != body:
            raise Refused("idempotency_conflict")
        if name is not None and name in {entry.session.name, *entry.former}:
            return True, False
        if entry.session.live:
            if name is not None:
                raise Refused("idempotency_conflict")
            return True, False
        if not entry.open:
            return True, False
        try:
            session = self._resolve(name)
        except Refused as error:
            if name is None and str(error) == "unavailable":
                return True, False
            raise
        self._rebind(entry, session)
        self.work()
        return True, True

    def _resolve(self, name: str | None) -> Session:
        live = self.live()
        if name is not None:
            live = [one for one in live if one.name == name]
        if not live:
            raise Refused("unavailable")
        if len(live) > 1:
            raise Refused("ambiguous_endpoint")
        return live[0]

    def _rebind(self, entry: Entry, session: Session) -> None:
        entry.former.add(entry.session.name)
        entry.session = session
        entry.max_attempts, entry.mode = session.max_attempts, session.mode
        if entry.state == "pending" and entry.attempts >= entry.max_attempts:
            entry.state = "failed"

    def ack(self, key: str) -> None:
        self.entries[key].state = "acknowledged"

    def retry(self, key: str) -> None:
        entry = self.entries[key]
        if entry.state != "failed":
            raise Refused("invalid_state")
        entry.state, entry.attempts = "pending", 0
        self._wait(entry, "attempt", 0)
        self.work()

    def gone(self, name: str) -> None:
        session = self.sessions[name]
        session.live, session.holds = False, None
        for entry in self.entries.values():
            if entry.session is session and entry.state == "pending" and entry.kind == "lease":
                self._fail(entry, "endpoint_gone")

    # ---- what time does

    def advance(self, ms: int) -> None:
        self.mono += ms
        self.wall += ms
        for entry in self.entries.values():
            if entry.open and entry.due_mono <= self.mono:
                if entry.kind == "lease":
                    self._fail(entry, "lease_expired")
                elif entry.kind == "ack":
                    self._again(entry, "ack_timeout", 0)
        self.work()

    def jump(self, ms: int) -> None:
        self.wall += ms

    def restart(self) -> None:
        """What was being written is lost; deadlines are what is left of them by the wall clock."""
        for session in self.sessions.values():
            session.holds, session.holding = None, False
        for entry in self.entries.values():
            left = min(max(entry.due_wall - self.wall, 0), entry.wait)
            entry.due_mono = self.mono + left
        self.advance(0)

    def release(self, name: str) -> None:
        session = self.sessions[name]
        session.holding = False
        if session.holds is not None:
            key, serial = session.holds
            session.holds = None
            entry = self.entries[key]
            if entry.state == "pending" and entry.kind == "lease" and entry.serial == serial:
                self._result(entry, session.result)
        self.work()

    # ---- what the deliverer does

    def work(self) -> None:
        """Every attempt that can be made now is made; the oldest message of a session first."""
        while any(self._attempt(session) for session in self.live()):
            pass

    def _attempt(self, session: Session) -> bool:
        if not session.ready or session.holds is not None:
            return False
        for entry in self.entries.values():
            if entry.session is not session or entry.state != "pending":
                continue
            if entry.kind == "attempt" and entry.due_mono <= self.mono:
                entry.attempts += 1
                entry.serial += 1
                entry.written += 1
                self._wait(entry, "lease", LEASE_MS)
                if session.holding:
                    session.holds = (entry.key, entry.serial)
                else:
                    self._result(entry, session.result)
                return True
        return False

    def _result(self, entry: Entry, result: str) -> None:
        if result != "injected":
            self._fail(entry, result)
        elif entry.mode == "injected":
            entry.state = "injected"
        else:
            entry.state = "awaiting_ack"
            self._wait(entry, "ack", ACK_MS)

    def _fail(self, entry: Entry, reason: str) -> None:
        self._again(entry, reason, DELAYS[min(entry.attempts, 4) - 1])

    def _again(self, entry: Entry, reason: str, delay: int) -> None:
        entry.reason = reason
        entry.state = "pending" if entry.attempts < entry.max_attempts else "failed"
        self._wait(entry, "attempt", delay)

    def _wait(self, entry: Entry, kind: str, ms: int) -> None:
        entry.kind, entry.wait = kind, ms
        entry.due_mono, entry.due_wall = self.mono + ms, self.wall + ms
