"""One trial of TAMQ: real sessions, clients that repeat themselves, kills; then the judgement.

Three sessions in tmux: one completes by the write, one by acknowledgement, one has a single attempt
and nobody who acknowledges; and one under `tamq run` whose recipient is slow. Clients send with
keys and repeat until they are answered; a recipient acknowledges what it finds; an operator retries
what failed, once. The service is killed at an armed point, or at random instants, or its tmux
servers are, or `tamq run` is; its wall clock jumps. Then everything must come to its end.
"""

import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from corral.local import session
from corral.local.wait import WaitTimeoutError, until
from corral.tamq.client import Client
from corral.tamq.errors import TamqError
from tests.contract.terminal.panes import Tmux
from tests.harness.armed import read_hits
from tests.harness.tamq_judge import counted, shown_in, violations

QUIET_S: Final = 90.0
DRAFT_SEEN: Final = 15  # in a row, before a person sees to it
QUICK: Final = {
    "TAMQ_RETRY_DELAYS_MS": "[100]",
    "TAMQ_ACK_DEADLINE_MS": "700",
    "TAMQ_LEASE_MS": "2500",
    "TAMQ_IDLE_LOOK_S": "0.5",
}
PANES: Final[Mapping[str, tuple[str, int]]] = {
    "write": ("injected", 9),
    "ack": ("acknowledged", 9),
    "deaf": ("acknowledged", 1),
}
RUN: Final = "run"
SESSIONS: Final = (*PANES, RUN)
ACKS: Final = {"ack": 0.6, RUN: 0.1}  # how likely each look acknowledges what waits for it
JUMPS_MS: Final = (-86_400_000, -5_000, 5_000, 86_400_000)
NEVER: Final = "99"  # the sessions confirm nothing themselves


@dataclass(frozen=True)
class Trial:
    """`arms` are crash points, one for each start in turn; `kills_s` are times of plain kills.

    `jumps`: when the service's wall clock jumps, by how many ms, and whether it is killed for it,
    so that it begins again by another clock.
    """

    name: str
    seed: int
    arms: tuple[str, ...] = ()
    kills_s: tuple[float, ...] = ()
    tmux_killed_s: float | None = None
    messages: int = 5  # to each session
    jumps: tuple[tuple[float, int, bool], ...] = ()
    run_killed_s: float | None = None

    def __str__(self) -> str:
        tmux = "" if self.tmux_killed_s is None else f", tmux killed at {self.tmux_killed_s:.2f} s"
        kills = ", ".join(f"{at:.2f}" for at in self.kills_s)
        run = "" if self.run_killed_s is None else f", tamq run killed at {self.run_killed_s:.2f} s"
        jumps = "".join(
            f", clock {ms / 1000:+.0f} s at {at:.2f} s{' (down)' if down else ''}"
            for at, ms, down in self.jumps
        )
        return f"{self.name}: arms {self.arms}, kills at [{kills}] s{tmux}{run}{jumps}"


@dataclass
class Result:
    trial: Trial
    violations: list[str]
    kills: int
    killed_at: list[str]
    messages: int = 0
    attempts: int = 0
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.violations


def draw(seed: int, points: list[str]) -> Trial:
    """A trial by chance: kills, perhaps at points, perhaps of sessions, too; jumps of the clock."""
    rng = random.Random(f"tamq:{seed}")
    kills = tuple(sorted(rng.uniform(0.8, 5.0) for _ in range(rng.randint(1, 3))))
    arms = tuple(f"{rng.choice(points)}:{rng.randint(1, 3)}" for _ in range(rng.randint(0, 3)))
    tmux_s = rng.uniform(1.0, 4.0) if rng.random() < 0.3 else None
    messages = rng.randint(2, 6)
    jumps = tuple(
        (rng.uniform(0.8, 5.0), rng.choice(JUMPS_MS), rng.random() < 0.5)
        for _ in range(rng.choice((0, 1, 2)))
    )
    run_s = rng.uniform(1.0, 4.0) if rng.random() < 0.3 else None
    return Trial(f"seed-{seed}", seed, arms, kills, tmux_s, messages, jumps, run_s)


@dataclass
class Run:
    """A trial while it runs."""

    trial: Trial
    folder: Path
    sent: dict[str, dict[str, Any]] = field(default_factory=dict)  # the first answer by key
    trouble: list[str] = field(default_factory=list)
    kills: int = 0
    quiet: threading.Event = field(default_factory=threading.Event)
    retried: set[str] = field(default_factory=set)
    drafts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.trial.seed)
        (self.folder / "r").mkdir(mode=0o700)
        self.socket = self.folder / "r" / "tamq.sock"
        (self.folder / "repos.csv").write_text("".join(f"/s/{r},{r},,\n" for r in SESSIONS))
        self.client = Client(self.socket, 10.0)
        self.clock = self.folder / "clock"
        self.jump(0)
        self.tmux = self._tmux()
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()
        self.hosted = self._hosted()

    def _tmux(self) -> list[Tmux]:
        made = []
        for name in PANES:
            place = self.folder / f"{name}-{time.monotonic_ns()}"
            place.mkdir()
            command = f"exec {shlex.join(self.program(name))}"
            made.append(Tmux(place, command, width=180, height=50))
        return made

    def program(self, name: str) -> list[str]:
        """What runs in a session: it writes down what it is shown."""
        code, log = str(Path(session.__file__)), str(self.folder / f"{name}.shown")
        return [sys.executable, "-S", "-E", "-I", code, log, str(self.socket), NEVER]

    def _hosted(self) -> "subprocess.Popen[bytes]":
        """`tamq run`, without a person: it registers itself, and again with every service."""
        argv = [sys.executable, "-m", "corral.tamq.main", "run", "--repo", RUN]
        argv += ["--max-attempts", "9", "--", *self.program(RUN)]
        with (self.folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                argv, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    # ---- the service

    def start(self) -> None:
        arms = self.trial.arms[self.kills : self.kills + 1]
        hits = self.folder / "hits"
        hits.mkdir(exist_ok=True)
        argv = [sys.executable, "-m", "tests.crash.armed_tamq", str(self.clock)]
        argv += ["--hits", str(hits / f"{self.kills}.hits"), *arms, "--", "serve"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                argv, env=self.environ, stdout=log, stderr=log, start_new_session=True
            )  # what interrupts the harness is not for it

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": str(self.folder),
            "TAMQ_SOCKET": str(self.socket),
            "TAMQ_STATE_DIR": str(self.folder / "state"),
            "TAMQ_GITA_REPOS": str(self.folder / "repos.csv"),
            **QUICK,
        }

    def jump(self, ms: int) -> None:
        """Set the wall clock of the service, and of those to come, so far from the real one."""
        with self.clock.open("r+b" if self.clock.exists() else "xb") as file:  # never truncated
            file.write(ms.to_bytes(8, "little", signed=True))

    def dead(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def kill(self, jump_ms: int | None = None) -> None:
        with self.lock:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait(30)
            if jump_ms is not None:
                self.jump(jump_ms)

    def supervise(self) -> None:
        """Start it again whenever it is dead."""
        while not self.quiet.wait(0.05):
            with self.lock:
                if self.dead():
                    assert self.process is not None
                    if self.process.returncode != -signal.SIGKILL:
                        self.trouble.append(f"it ended with {self.process.returncode}")
                    self.kills += 1
                    self.start()

    # ---- who uses it

    def ask(self, fields: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None when there is none now. Refusals that cannot be right are trouble."""
        try:
            return self.client.request(fields)
        except TamqError as error:
            if not error.retryable and error.code not in {"not_found", "invalid_state"}:
                self.trouble.append(f"{fields['op']}: {error.code}: {error.message}")
            return None

    def reported(self, work: Callable[[], None]) -> None:
        """A thread's work; what ends it is trouble, not silence."""
        try:
            work()
        except Exception as error:
            self.trouble.append(f"{work.__name__} ended: {error!r}")

    def register(self) -> None:
        """Attach each session until its endpoint is there; again when it is gone."""
        found = self.ask({"op": "endpoints"})
        if found is None:
            return
        for one in found["endpoints"]:
            self.finish_draft(one)
        live = {one["repos"][0] for one in found["endpoints"]}
        for place, (name, (mode, attempts)) in enumerate(PANES.items()):
            if name not in live:
                policy = {"delivery_max_attempts": attempts, "delivery_ack_mode": mode}
                terminal = address_of(self.tmux[place])
                if terminal is not None:
                    self.ask({
                        "op": "register", "repos": [name], "terminal": terminal,
                        "profile": "plain", "policy": policy,
                    })  # fmt: skip

    def finish_draft(self, endpoint: dict[str, Any]) -> None:
        """What a kill left in a composer is a draft, for ever: a person presses Enter."""
        name = endpoint["repos"][0]
        seen = self.drafts[name] + 1 if endpoint["ready"] == "draft" else 0
        self.drafts[name] = seen
        if name in PANES and seen >= DRAFT_SEEN:
            self.drafts[name] = 0
            self.tmux[list(PANES).index(name)].type("Enter")

    def send(self) -> None:
        """Each message until it is answered, some a second time; then what is not over, again.

        A message whose session is gone is bound to another only when its wake is repeated.
        """
        keys = [(name, f"{name}-{n}") for n in range(self.trial.messages) for name in SESSIONS]
        todo = [*keys, *self.rng.sample(keys, len(keys) // 2)]
        began, last_kill_s = time.monotonic(), max(self.trial.kills_s, default=0.0)
        for place, key in enumerate(todo, 1):
            # Spread until the last kill, so that on no machine all is over before it.
            self.quiet.wait(max(0.0, began + last_kill_s * place / len(todo) - time.monotonic()))
            while not self.quiet.is_set() and not self.send_one(*key):
                self.quiet.wait(0.05)
        while not self.quiet.wait(0.5):
            found = self.ask({"op": "history", "state": "pending", "limit": 100})
            for one in [] if found is None else found["messages"]:
                self.send_one(one["target_repo"], one["idempotency_key"])

    def send_one(self, name: str, key: str) -> bool:
        """Whether it was answered."""
        answer = self.ask({
            "op": "send", "client_id": "harness", "idempotency_key": key,
            "sender_repo": "local", "target_repo": name, "body": f"body of {key}",
        })  # fmt: skip
        if answer is None:
            return False
        first = self.sent.setdefault(key, answer)
        if first["message_id"] != answer["message_id"]:
            self.trouble.append(f"{key} is two messages")
        return True

    def receive(self) -> None:
        """Acknowledge what waits for it in the session that listens, and retry one failure."""
        while not self.quiet.wait(0.1):
            with suppress(subprocess.SubprocessError):  # tmux, on a machine that is too busy
                self.register()
            waiting = self.ask({"op": "history", "state": "awaiting_ack", "limit": 100})
            for one in [] if waiting is None else waiting["messages"]:
                if self.rng.random() < ACKS.get(one["target_repo"], 0.0):
                    self.ask({"op": "ack", "message_id": one["message_id"]})
            failed = self.ask({"op": "history", "state": "failed", "limit": 100})
            for one in [] if failed is None else failed["messages"]:
                self.retry(one)

    def retry(self, message: dict[str, Any]) -> None:
        """One failed message is retried; later one of them is acknowledged late."""
        ident = message["message_id"]
        if not self.retried:
            self.retried.add(ident)
            self.ask({"op": "retry", "message_id": ident, "actor": "harness", "why": "once"})
        elif ident in self.retried:
            self.ask({"op": "ack", "message_id": ident})

    def all_over(self) -> bool:
        found = self.ask({"op": "history", "limit": 100})
        wanted = self.trial.messages * len(SESSIONS)
        if found is None or len(found["messages"]) < wanted or len(self.sent) < wanted:
            return False
        return all(one["terminal"] for one in found["messages"])

    def disturb(self) -> None:
        """Faults at their instants; a session that is killed is replaced by another."""
        began = time.monotonic()
        faults: list[tuple[float, Callable[[], None]]] = [
            (at, self.kill) for at in self.trial.kills_s
        ]
        for at, ms, down in self.trial.jumps:
            faults.append((at, partial(self.kill if down else self.jump, ms)))
        if self.trial.tmux_killed_s is not None:
            faults.append((self.trial.tmux_killed_s, self.replace_tmux))
        if self.trial.run_killed_s is not None:
            faults.append((self.trial.run_killed_s, self.replace_run))
        for at, fault in sorted(faults, key=lambda one: one[0]):
            if self.quiet.wait(max(0.0, began + at - time.monotonic())):
                return
            fault()

    def replace_tmux(self) -> None:
        old, self.tmux = self.tmux, self._tmux()
        for one in old:
            one.close()

    def replace_run(self) -> None:
        self.hosted.kill()
        self.hosted.wait(30)
        self.hosted = self._hosted()


def address_of(tmux: Tmux) -> dict[str, object] | None:
    """Of the program in the pane, as `tamq attach` finds it; None while it is not there."""
    from corral.core.errors import CorralError
    from corral.tamq.terminal import address
    from corral.tamq.terminal.attach import discover

    try:
        import asyncio

        return address.as_dict(asyncio.run(discover(tmux.socket, tmux.pane)))
    except CorralError:
        return None


def run_trial(trial: Trial) -> Result:
    """Play a trial and judge it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="corral-tamq-") as name:
        run = Run(trial, Path(name))
        threads = [
            threading.Thread(target=run.reported, args=(work,), daemon=True)
            for work in (run.supervise, run.send, run.receive, run.disturb)
        ]
        try:
            run.start()
            for thread in threads:
                thread.start()
            try:
                until(run.all_over, QUIET_S, "every message to come to its end")
            except WaitTimeoutError as error:
                left = run.ask({"op": "history", "limit": 100}) or {"messages": []}
                shown = [
                    {name: one[name] for name in ("idempotency_key", "state", "waiting_reason")}
                    for one in left["messages"]
                    if not one["terminal"]
                ]
                run.trouble.append(f"{error}: {shown}")
        finally:
            run.quiet.set()
            for thread in threads:
                thread.join(30)
            run.kill()
            run.hosted.kill()
            run.hosted.wait(30)
            for tmux in run.tmux:
                tmux.close()
        _, hits = read_hits(run.folder / "hits")
        result = Result(trial, run.trouble, run.kills, [point for point, _ in hits])
        database = run.folder / "state" / "queue.db"
        result.violations += violations(database, run.sent, shown_in(run.folder.glob("*.shown")))
        result.messages, result.attempts = counted(database)
    result.took_s = time.monotonic() - began
    return result
