"""A homeserver and the intake that it delivers to, for tests of what passes between them."""

import asyncio
import os
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from corral.bridge.events import Invite, Users
from corral.bridge.http import Intake, Options, runner
from corral.bridge.incoming import (
    Admission,
    Admitted,
    Committed,
    Conflict,
    Incoming,
    Mention,
    Replay,
)
from corral.bridge.limits import Policy, Rate
from corral.bridge.matrix.rooms import Options as RoomsOptions
from corral.bridge.mentions import Ghosts
from corral.bridge.registration import Registration
from corral.core.metrics import Metrics
from corral.local import wait
from corral.local.synapse import LOOPBACK, PYTHON_VARIABLE, Synapse, free_port

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER_NAME = "corral.test"
AGENTS = {"scout": "scout", "clerk": "clerk"}  # local part to agent
FREE = Rate(0, 1)
DELIVERED_S = 30.0


def ready_to_start() -> None:
    """Makes the environment that has Synapse, once for each checkout (about a minute)."""
    if PYTHON_VARIABLE in os.environ:
        return
    subprocess.run([ROOT / "corral", "setup", "--synapse"], check=True)


def users() -> Users:
    ghosts = Ghosts.of(SERVER_NAME, AGENTS)
    return Users(ghosts, frozenset([*ghosts.by_user, f"@bridge:{SERVER_NAME}"]))


def registration(port: int) -> Registration:
    return Registration(
        id="corral-bridge",
        url=f"http://{LOOPBACK}:{port}",
        server_name=SERVER_NAME,
        sender_localpart="bridge",
        ghosts=tuple(AGENTS),
        as_token="as-token-of-the-tests",
        hs_token="hs-token-of-the-tests",
    )


def client_options(homeserver: Synapse, port: int, **more: Any) -> RoomsOptions:
    """Of our client of the homeserver."""
    ours = registration(port)
    return RoomsOptions(
        homeserver=homeserver.url,
        server_name=ours.server_name,
        appservice_id=ours.id,
        as_token=ours.as_token,
        ghosts={agent: local for local, agent in AGENTS.items()},
        **more,
    )


async def delivered(homeserver: Synapse) -> None:
    """Waits until a homeserver on SQLite has noted that all it sent was answered."""

    def noted() -> bool:
        with closing(sqlite3.connect(homeserver.directory / "synapse.db")) as database:
            left = database.execute("SELECT count(*) FROM application_services_txns")
            return bool(left.fetchone() == (0,))

    await asyncio.to_thread(wait.until, noted, DELIVERED_S, "the homeserver to note its deliveries")


async def restart_delivered(homeserver: Synapse) -> None:
    """Kills and starts a homeserver on SQLite that has noted its deliveries: the numbers of its
    transactions begin at 1 again. One that died before it noted the last would go on after that.
    """
    await delivered(homeserver)
    homeserver.kill()
    homeserver.start()


@dataclass
class Recording:
    """An admission in memory, by the rules of the ledger's, that shows what came.

    It stands in where a test is about the homeserver's side and the ledger would only slow it down.
    `fail` answers the next transactions with an exception.
    """

    reject_conflicts: bool = False
    came: list[Incoming] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    fail: list[Exception] = field(default_factory=list)
    answers: list[Admitted] = field(default_factory=list)
    _known: dict[str, tuple[bytes, dict[str, bytes]]] = field(default_factory=dict)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    async def admit(self, incoming: Incoming) -> Admitted:
        self.came.append(incoming)
        if self.fail:
            raise self.fail.pop(0)
        self.answers.append(self._decide(incoming))
        return self.answers[-1]

    async def fresh(self, mentions: Sequence[Mention]) -> Sequence[Mention]:
        return [one for one in mentions if (one.event_id, one.ghost) not in self._seen]

    def _decide(self, incoming: Incoming) -> Admitted:
        theirs = {one.event_id: one.digest for one in incoming.events}
        epoch = 0
        if incoming.txn_id in self._known:
            body, known = self._known[incoming.txn_id]
            if body == incoming.body_digest:
                return Replay(exact=True)
            if all(known.get(event) == digest for event, digest in theirs.items()):
                return Replay(exact=False)
            if self.reject_conflicts:
                return Conflict()
            epoch = 1
        self._known[incoming.txn_id] = (incoming.body_digest, theirs)
        return Committed(accepted=self._take(incoming), epoch=epoch)

    def _take(self, incoming: Incoming) -> int:
        accepted = 0
        for one in incoming.classified:
            if isinstance(one, Mention) and (one.event_id, one.ghost) not in self._seen:
                self._seen.add((one.event_id, one.ghost))
                self.mentions.append(one)
                accepted += 1
        return accepted


@dataclass
class Ledgered(Recording):
    """The ledger's own admission, and what came to it."""

    ledger: Admission | None = None

    async def admit(self, incoming: Incoming) -> Admitted:
        self.came.append(incoming)
        assert self.ledger is not None
        self.answers.append(await self.ledger.admit(incoming))
        if isinstance(self.answers[-1], Committed):
            self._take(incoming)
        return self.answers[-1]

    async def fresh(self, mentions: Sequence[Mention]) -> Sequence[Mention]:
        assert self.ledger is not None
        return await self.ledger.fresh(mentions)


async def _always_ready() -> str | None:
    return None


@dataclass
class Endpoint:
    """The intake on a port of its own. `lose` answers that many transactions with a cut line,
    after they were committed."""

    admission: Recording
    port: int = field(default_factory=free_port)
    body_max_bytes: int = 16 * 1024 * 1024
    policy: Policy = field(default_factory=lambda: Policy(FREE, FREE))
    ready: Callable[[], Awaitable[str | None]] = _always_ready
    powerful: Callable[[str, str], Awaitable[bool]] | None = None
    lose: int = 0
    hs_token: str = "hs-token-of-the-tests"
    paths: list[str] = field(default_factory=list)
    invites: list[Invite] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Until left; gives the base address. May be entered again afterwards."""
        self.metrics = Metrics("bridge")
        intake = Intake(
            Options(self.hs_token, self.body_max_bytes, time.monotonic),
            admission=self.admission,
            users=users(),
            policy=self.policy,
            metrics=self.metrics,
            ready=self.ready,
            invited=self._invited,
            powerful=self.powerful,
        )
        self.intake = intake
        app = intake.application()
        app.middlewares.insert(0, self._wire)
        served = runner(app)
        await served.setup()
        site = web.TCPSite(served, LOOPBACK, self.port, reuse_address=True)
        await site.start()
        try:
            yield f"http://{LOOPBACK}:{self.port}"
        finally:
            await served.cleanup()

    def _invited(self, found: Sequence[Invite]) -> None:
        self.invites += found

    @property
    def _wire(self) -> Callable[..., Awaitable[web.StreamResponse]]:
        @web.middleware
        async def note(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            if "/transactions/" not in request.path:
                return await handler(request)
            self.paths.append(request.path)
            response = await handler(request)
            if self.lose and response.status == 200:
                self.lose -= 1
                if request.transport is not None:
                    request.transport.abort()
            return response

        return note
