"""The demo's other half: TAMQ wakes a session in tmux and one on a pty, and is killed meanwhile.

The session in tmux confirms what it is shown. The one under `tamq run` confirms nothing before a
second attempt, so each of its messages is delivered again. The service is killed right after a
first delivery, and at seeded instants; clients repeat themselves until they are answered.
"""

import asyncio
import json
import os
import random
import shlex
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from corral.core.errors import UnavailableError
from corral.local import wait
from corral.local.servers import check_socket_path
from corral.local.supervisor import Service, Supervisor
from corral.local.topology import base_environment
from corral.local.wakes_model import ACKNOWLEDGED, Receipt, Shown, Wake, WakeEvidence
from corral.tamq.adapter import CLIENT_ID, AsyncCoordinationEngineAdapter, WakeRequest
from corral.tamq.client import AsyncClient
from corral.tamq.errors import TamqError

TAMQ, TMUX, RUN = "tamq", "tmux", "tamq run"  # the processes
PANE, PTY = "shop", "docs"  # the repositories, and which session serves each
CONFIRM_FROM: Final[Mapping[str, int]] = {PANE: 1, PTY: 2}  # the attempt that is confirmed
WAKES_EACH: Final = 4
SENDING_S: Final = 6.0
KILLS_S: Final = ((2.5, 5.0), (5.5, 8.0))  # besides the one right after a first delivery
START_S: Final = 60.0
QUIET_S: Final = 25.0
LOOK_S: Final = 0.1
LONGEST_DRAFT_S: Final = 4.0
BODIES: Final = ("look at issue {};", "-run the tests of {}", "is “{}” ready?", "C:\\{} & $HOME")
SETTINGS: Final = {
    "TAMQ_ACK_DEADLINE_MS": "1500",
    "TAMQ_RETRY_DELAYS_MS": "[200]",
    "TAMQ_LEASE_MS": "4000",
    "TAMQ_IDLE_LOOK_S": "1",
}


@dataclass(frozen=True)
class Planned:
    """A wake to come, `at_s` seconds after the start."""

    at_s: float
    repo: str
    key: str
    body: str


def plan(rng: random.Random) -> tuple[list[Planned], list[float]]:
    """The wakes, in order of their time (the first go out at once), and when to kill."""
    planned = []
    for repo in (PANE, PTY):
        for number in range(WAKES_EACH):
            at_s = rng.uniform(0.5, SENDING_S) if number else 0.0
            body = BODIES[number % len(BODIES)].format(rng.randrange(100, 1_000))
            planned.append(Planned(at_s, repo, f"{repo}-{number}", body))
    planned.sort(key=lambda one: one.at_s)
    return planned, [rng.uniform(*between) for between in KILLS_S]


class Wakes:
    """TAMQ and its two sessions, in a new folder. An async context manager: leaving ends all of it.

    `repos`: those that sessions of others serve. Raises UnavailableError where there is no tmux.
    """

    def __init__(self, folder: Path, rng: random.Random, repos: Sequence[str] = ()) -> None:
        if shutil.which("tmux") is None:
            raise UnavailableError("tmux is missing", hint="install it: apt-get install tmux")
        self.folder = folder
        self.planned, self.kills_s = plan(rng)
        for part in ("run", "state", "seen"):
            (folder / part).mkdir(mode=0o700, parents=True)
        self.socket, self.tmux_socket = socket_in(folder), folder / "run" / "tmux.sock"
        check_socket_path(folder / "run" / f"pty-{2**22}.sock")
        rows = "".join(f"/src/{name},{name},,\n" for name in (PANE, PTY, CLIENT_ID, *repos))
        (folder / "repos.csv").write_text(rows, encoding="utf-8")
        self.environment = base_environment() | SETTINGS | {
            "TAMQ_SOCKET": str(self.socket),
            "TAMQ_STATE_DIR": str(folder / "state"),
            "TAMQ_GITA_REPOS": str(folder / "repos.csv"),
            "SHELL": "/bin/sh",
            "TERM": "xterm",
        }  # fmt: skip
        self.client = AsyncClient(self.socket)
        self.adapter = AsyncCoordinationEngineAdapter(self.socket)
        self.ids: dict[str, list[str]] = defaultdict(list)  # what each key was answered with
        self.over: set[str] = set()  # ids that are acknowledged
        self.trouble: list[str] = []
        self.supervisor = Supervisor(folder, in_flight=self._in_flight)
        self._add_services()
        self._pane = ""
        self._sessions: dict[str, Mapping[str, Any]] = {}

    def _add_services(self) -> None:
        silent = ["-f", os.devnull]
        commands = {
            TAMQ: _tamq("serve"),
            TMUX: ["tmux", "-D", "-u", "-S", str(self.tmux_socket), *silent],
            RUN: _tamq("run", "--repo", PTY, "--max-attempts", "9", "--", *self._session(PTY)),
        }
        for name, argv in commands.items():

            def line(start: int, argv: Sequence[str] = argv) -> Sequence[str]:
                del start
                return argv

            self.supervisor.add(Service(name, line, self.environment, self.folder))
        self.supervisor.services[TAMQ].ready = self._answers

    def _session(self, repo: str) -> list[str]:
        code = str(Path(__file__).with_name("session.py"))
        log = str(self.folder / "seen" / repo)
        confirm_from = str(CONFIRM_FROM[repo])
        return [sys.executable, "-S", "-E", "-I", code, log, str(self.socket), confirm_from]

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        try:
            await self.supervisor.start(TAMQ, TMUX, RUN, timeout_s=START_S)
            await wait.until_async(self._made_pane, START_S, "a pane of tmux")
            where = ("--pane", self._pane, "--tmux-socket", str(self.tmux_socket))
            await self._told(_tamq("attach", "--repo", PANE, "--max-attempts", "9", *where))
            await wait.until_async(self._both_live, START_S, "both sessions to be registered")
        except BaseException:
            await self.supervisor.abandon()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The programs of the sessions are hung up when tmux and `tamq run` are ended."""
        await self.supervisor.abandon()
        pids = [one["terminal"]["process"]["pid"] for one in self._sessions.values()]
        await wait.until_true(lambda: not any(map(_exists, pids)), START_S, "the sessions' end")

    async def _made_pane(self) -> bool:
        size = ("-x", "200", "-y", "50")
        command = f"exec {shlex.join(self._session(PANE))}"
        with suppress(UnavailableError):
            self._pane = await self._tmux(
                "new-session", "-d", "-P", "-F", "#{pane_id}", *size, command
            )
        return bool(self._pane)

    async def _both_live(self) -> bool:
        live = await self._live()
        if set(live) == {PANE, PTY}:
            self._sessions = live
        return bool(self._sessions)

    async def _live(self) -> dict[str, Mapping[str, Any]]:
        answer = await self._ask({"op": "endpoints"})
        return {one["repos"][0]: one for one in answer["endpoints"]}

    async def _answers(self) -> bool:
        with suppress(TamqError):
            return bool(await self.client.request({"op": "ping"}))
        return False

    async def _tmux(self, *arguments: str) -> str:
        return await self._told(["tmux", "-N", "-u", "-S", str(self.tmux_socket), *arguments])

    async def _told(self, argv: Sequence[str]) -> str:
        """What a command prints; UnavailableError, with what it says, when it fails."""
        process = await asyncio.create_subprocess_exec(
            *argv, env=self.environment, cwd=self.folder, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, problem = await process.communicate()
        if process.returncode:
            said = problem.decode(errors="replace").strip()
            raise UnavailableError(f"{Path(argv[0]).name} failed: {said}")
        return output.decode().strip()

    async def _ask(self, fields: Mapping[str, object]) -> dict[str, Any]:
        """Asked until there is an answer; TAMQ is killed now and then."""
        answers: list[dict[str, Any]] = []

        async def answered() -> bool:
            try:
                answers.append(await self.client.request(fields))
            except TamqError as error:
                if not error.retryable:
                    raise
            return bool(answers)

        await wait.until_async(answered, START_S, f"an answer to {fields['op']}")
        return answers[0]

    # ------------------------------------------------------------ the run

    async def play(self) -> None:
        """Sends, kills, and waits until every wake is acknowledged, or too long for that."""
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._be_a_person())
            work = [group.create_task(self._send(one, start_s)) for one in self.planned]
            work += [group.create_task(self._kill(start_s + at_s)) for at_s in self.kills_s]
            work.append(group.create_task(self._kill_after_a_delivery()))
            try:
                await wait.until_async(self._all_over, QUIET_S, "every wake to be acknowledged")
                await asyncio.wait(work)
            except wait.WaitTimeoutError as error:
                self.trouble.append(str(error))
            for one in self.planned:  # once more: the same keys are the same messages
                await self._send(one, start_s)
            watching.cancel()

    async def _send(self, planned: Planned, start_s: float) -> None:
        """Until it is answered, as a coordination engine does it."""
        await wait.at(start_s + planned.at_s)
        request = WakeRequest(planned.key, "demo", planned.repo, planned.body)

        async def answered() -> bool:
            try:
                receipt = await self.adapter.wake(request)
            except TamqError as error:
                if not error.retryable:
                    self.trouble.append(f"{planned.key}: {error}")
                return not error.retryable
            self.ids[planned.key].append(receipt.message_id)
            return True

        await wait.until_async(answered, START_S, f"an answer to the wake {planned.key}")

    async def _kill(self, at_s: float) -> None:
        await wait.at(at_s)
        self.supervisor.kill(TAMQ)

    async def _kill_after_a_delivery(self) -> None:
        """The session on the pty saw its first wake and confirms nothing: now."""
        seen = self.folder / "seen" / PTY
        await wait.until_true(lambda: seen.exists() and seen.stat().st_size, START_S, "a delivery")
        self.supervisor.kill(TAMQ)

    async def _all_over(self) -> bool:
        for ids in list(self.ids.values()):
            if ids[0] not in self.over:
                receipt = await self._ask({"op": "message", "message_id": ids[0]})
                if receipt["state"] == ACKNOWLEDGED:
                    self.over.add(ids[0])
        return len(self.over) == len(self.planned)

    async def _be_a_person(self) -> None:
        """What a kill leaves in the input of a pane is a draft to TAMQ: somebody presses Enter."""
        since_s = time.monotonic()
        while True:
            await wait.at(time.monotonic() + LOOK_S)
            with suppress(TamqError, wait.WaitTimeoutError, UnavailableError):
                live = await self._live()
                if PANE not in live or live[PANE]["ready"] != "draft":
                    since_s = time.monotonic()
                elif time.monotonic() - since_s > LONGEST_DRAFT_S:
                    await self._tmux("send-keys", "-t", self._pane, "Enter")
                    since_s = time.monotonic()

    # ------------------------------------------------------------ what became of it

    async def evidence(self) -> WakeEvidence:
        """For the model; before the sessions are ended."""
        evidence = WakeEvidence(planned=len(self.planned), trouble=self.trouble)
        for planned in self.planned:
            if ids := tuple(self.ids[planned.key]):
                evidence.wakes.append(Wake(planned.key, planned.repo, planned.body, ids))
        found = await self._ask({"op": "history", "client_id": CLIENT_ID, "limit": 100})
        for one in found["messages"]:
            known = await self._ask({"op": "message", "message_id": one["message_id"]})
            evidence.receipts.append(_receipt(known))
        evidence.shown = [one for repo in (PANE, PTY) for one in self._seen(repo)]
        happened = self.supervisor.timeline
        evidence.kills_ms = [one.at_ms for one in happened if one.process == TAMQ and one.lethal]
        live = await self._live()
        for repo, was in self._sessions.items():
            same = repo in live and live[repo]["endpoint_id"] == was["endpoint_id"]
            evidence.sessions[repo] = same and _exists(was["terminal"]["process"]["pid"])
        return evidence

    def _seen(self, repo: str) -> list[Shown]:
        file = self.folder / "seen" / repo
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [Shown(repo=repo, **json.loads(line)) for line in lines]

    def keep(self, evidence: WakeEvidence, folder: Path) -> None:
        """What explains a failure: the logs, and what everybody saw. Blocks."""
        shutil.copytree(self.folder / "logs", folder, dirs_exist_ok=True)
        told = json.dumps(asdict(evidence), indent=2)
        (folder / "evidence.json").write_text(told, encoding="utf-8")

    def _in_flight(self) -> int:
        return len(self.ids) - len(self.over)

    def counts(self) -> str:
        """For whoever watches."""
        sent = sum(map(bool, self.ids.values()))
        return f"wakes sent {sent} of {len(self.planned)}, acknowledged {len(self.over)}"


def socket_in(folder: Path) -> Path:
    """Where the TAMQ of a folder listens."""
    return folder / "run" / "tamq.sock"


def _receipt(known: Mapping[str, Any]) -> Receipt:
    return Receipt(
        message_id=known["message_id"],
        key=known["idempotency_key"],
        state=known["state"],
        attempt_count=known["attempt_count"],
        attempts_max=known["delivery_max_attempts"],
        attempts=tuple(one["attempt"] for one in known["attempts"]),
    )


def _tamq(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "corral.tamq.main", *arguments]


def _exists(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
