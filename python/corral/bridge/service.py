"""The running bridge: intake, worker and both other sides, put together from the settings."""

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiohttp import web

from corral.bridge import catchup, events, http
from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.a2a.target import Target as AgentTarget
from corral.bridge.a2a.wire import Version
from corral.bridge.admission import LedgerAdmission
from corral.bridge.catchup import CatchUp
from corral.bridge.coordinator import Coordinator, Sides
from corral.bridge.counts import Counts
from corral.bridge.database import Ledger, Target, check_sessions, connection, migrate
from corral.bridge.errors import LedgerError
from corral.bridge.joining import Joining
from corral.bridge.machine import AgentPolicy, Policy
from corral.bridge.matrix.contents import RoomContents
from corral.bridge.matrix.rooms import MatrixRooms, Pinged
from corral.bridge.matrix.rooms import Options as RoomsOptions
from corral.bridge.mentions import Ghosts
from corral.bridge.replica import Replica
from corral.bridge.session import Session
from corral.bridge.settings import BridgeSettings
from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.errors import UnavailableError
from corral.core.ids import new_uuid
from corral.core.metrics import Metrics
from corral.core.notify import Notifier
from corral.core.sqlfiles import load_sql

SQL: Final = load_sql("corral.bridge", "sql/health.sql")
MIGRATE_PAUSE_MAX_S: Final = 5.0
GC_AFTER_OBJECTS: Final = 10_000
POOL_SPARE: Final = 4  # beside one connection for each job in work
POOL_MAX: Final = 24

_log = logs.get("bridge.service")


def users(settings: BridgeSettings) -> events.Users:
    localparts = {settings.localpart(key): key for key in settings.agents}
    ghosts = Ghosts.of(settings.server_name, localparts)
    own = f"@{settings.sender_localpart}:{settings.server_name}"
    return events.Users(ghosts, frozenset([*ghosts.by_user, own]))


def rooms_options(settings: BridgeSettings) -> RoomsOptions:
    return RoomsOptions(
        homeserver=settings.homeserver_url,
        server_name=settings.server_name,
        appservice_id=settings.appservice_id,
        as_token=settings.as_token.get_secret_value(),
        ghosts={key: settings.localpart(key) for key in settings.agents},
        names={key: one.display_name for key, one in settings.agents.items() if one.display_name},
        timeout_s=settings.request_timeout_s,
    )


def agent_targets(settings: BridgeSettings) -> dict[str, AgentTarget]:
    return {
        key: AgentTarget(
            agent=key,
            url=one.url,
            version=Version(one.protocol) if one.protocol else None,
            endpoint=one.endpoint,
            token_file=one.token_file,
            request_timeout_s=one.request_timeout_s or settings.request_timeout_s,
            idempotent=one.idempotent,
        )
        for key, one in settings.agents.items()
    }


def job_policy(settings: BridgeSettings) -> Policy:
    agents = {
        key: AgentPolicy(
            one.task_timeout_s or settings.task_timeout_s, one.reconcile, one.idempotent
        )
        for key, one in settings.agents.items()
    }
    return Policy(
        agents,
        settings.limits,
        lease_s=settings.lease_s,
        retry_initial_s=settings.retry_initial_s,
        retry_max_s=settings.retry_max_s,
        attempts_max=settings.attempts_max,
        input_wait_timeout_s=settings.input_wait_timeout_s,
        reconcile_timeout_s=settings.reconcile_timeout_s,
        placeholder_after_s=settings.placeholder_after_s,
        pin=settings.pin_placeholders,
    )


def _powerful(
    rooms: MatrixRooms, level: int | None
) -> Callable[[str, str], Awaitable[bool]] | None:
    """Whether a user's power level in a room is at least `level`."""
    if level is None:
        return None

    async def ask(room_id: str, user: str) -> bool:
        found = await rooms.power_level(room_id, user)
        return found is not None and found >= level

    return ask


class Bridge:
    """One process. Every stop is safe: what is open goes on at the next start, or elsewhere."""

    def __init__(self, settings: BridgeSettings, *, notifier: Notifier | None = None) -> None:
        self.settings = settings
        self.notifier = notifier or Notifier.from_environment()
        self.target = Target(settings.database.get_secret_value(), settings.database_pooled)
        self.metrics = Metrics("bridge")
        self.counts = Counts(self.metrics)
        self.replica = Replica(self.target, self._told)
        self._ledger: Ledger | None = None
        self._coordinator: Coordinator | None = None

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        serving = asyncio.create_task(self._serve(stop))
        stopping = asyncio.create_task(stop.wait())
        # Before it serves, a wish to stop is obeyed at once; afterwards by draining.
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done() and self._coordinator is None:
            serving.cancel()
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    async def _serve(self, stop: asyncio.Event) -> None:
        settings = self.settings
        await self._migrated()
        admission = LedgerAdmission(
            self.target,
            settings.limits,
            epochs=settings.txn_conflict == "epoch",
            by_power=settings.cancel_power_level is not None,
            denied=self.counts.denied,
        )
        agents = HttpAgents(agent_targets(settings))
        size = min(POOL_MAX, settings.concurrency + POOL_SPARE)
        try:
            async with (
                MatrixRooms(rooms_options(settings)) as rooms,
                Ledger(self.target, size) as ledger,
            ):
                self._ledger = ledger
                self._coordinator = Coordinator(
                    ledger,
                    lambda heard: Session(self.target, heard),
                    Sides(agents, rooms, RoomContents()),
                    job_policy(settings),
                    concurrency=settings.concurrency,
                    claim_interval_s=settings.claim_interval_s,
                    retention_h=settings.tombstone_retention_h,
                    counts=self.counts,
                )
                await self._work(stop, admission, rooms)
        finally:
            await agents.close()
            await admission.close()

    async def _work(
        self, stop: asyncio.Event, admission: LedgerAdmission, rooms: MatrixRooms
    ) -> None:
        coordinator, settings = self._coordinator, self.settings
        if coordinator is None:
            return
        policy = settings.intake_policy()
        joining = Joining(rooms, policy, rooms.options.ghosts)
        intake = http.Intake(
            http.Options(settings.hs_token.get_secret_value(), settings.transaction_max_bytes),
            admission=admission,
            users=users(settings),
            policy=policy,
            metrics=self.metrics,
            ready=self.ready,
            invited=joining.heard,
            accepting=self.replica.active.is_set,
            powerful=_powerful(rooms, settings.cancel_power_level),
        )
        catching = CatchUp(
            rooms,
            list(settings.agents),
            catchup.Options(
                settings.catch_up_interval_s,
                settings.catch_up_age_max_s,
                users(settings).own,
                self.replica.active.is_set,
            ),
            admit=intake.catch_up,
            invited=joining.heard,
        )
        intake.heard = catching.heard
        async with self._listening(intake), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._intake()),
                group.create_task(coordinator.run()),
                group.create_task(self._greet(rooms)),
                group.create_task(joining.run()),
                group.create_task(catching.run()),
                group.create_task(self._watchdog()),
            ]
            # What was loaded stays: the collector need not look at it again, nor at what is new
            # three times in each transaction of a hundred events.
            gc.freeze()
            gc.set_threshold(GC_AFTER_OBJECTS, *gc.get_threshold()[1:])
            await stop.wait()
            self.notifier.stopping()
            _log.info("draining", jobs=coordinator.running)
            await coordinator.drain(settings.shutdown_timeout_s)
            for task in tasks:
                task.cancel()

    @contextlib.asynccontextmanager
    async def _listening(self, intake: http.Intake) -> AsyncIterator[None]:
        runner = http.runner(intake.application())
        await runner.setup()
        try:
            host, port = self.settings.listen_host, self.settings.listen_port
            try:
                await web.TCPSite(runner, host, port, reuse_address=True).start()
            except OSError as error:
                raise UnavailableError(
                    f"listen_port: cannot listen at {host}:{port}: {error.strerror}",
                    hint="is another bridge running here?",
                ) from error
            yield
        finally:
            await runner.cleanup()

    async def _migrated(self) -> None:
        """The schema, as soon as the database answers."""
        backoff = Backoff(0.1, MIGRATE_PAUSE_MAX_S)
        while True:
            try:
                async with connection(self.target) as made:
                    await migrate(made)
                await check_sessions(self.target)
                return
            except LedgerError as error:
                _log.warning("waits for the database", code=error.code)
                await asyncio.sleep(backoff.next_s())

    async def _intake(self) -> None:
        """Takes part in who takes transactions; whom no homeserver reaches must not have them."""
        if self.settings.takes_transactions:
            await self.replica.run()
        else:
            self.notifier.ready("works, and takes no transactions")
            _log.info("ready", takes_transactions=False)

    def _told(self, active: bool) -> None:
        """A replica that waits has started, too: it is ready to take over."""
        status = "takes transactions" if active else "standby: another replica takes transactions"
        self.notifier.ready(status)
        if active:
            _log.info("ready", port=self.settings.listen_port)

    async def _greet(self, rooms: MatrixRooms) -> None:
        """Ghosts are there before anybody mentions them; a queue that is held back is flushed."""
        await self.replica.active.wait()
        backoff = Backoff(0.2, 30.0)
        while True:
            answer = await rooms.ping(new_uuid())
            if isinstance(answer, Pinged):
                _log.info("homeserver answers", duration_ms=answer.duration_ms)
                break
            code = getattr(answer, "code", type(answer).__name__.lower())
            _log.warning("homeserver does not answer as it should", code=code)
            await asyncio.sleep(backoff.next_s())
        for ghost in rooms.options.ghosts:
            while problem := await rooms.prepare(ghost):
                _log.warning(
                    "ghost not ready", ghost=ghost, code=getattr(problem, "code", "limited")
                )
                await asyncio.sleep(backoff.next_s())

    async def _watchdog(self) -> None:
        interval_s = self.notifier.watchdog_interval_s
        while interval_s is not None:
            self.notifier.watchdog()
            await asyncio.sleep(interval_s)

    async def ready(self) -> str | None:
        """Why this process should not be sent work, or None: for `/readyz`."""
        coordinator, ledger = self._coordinator, self._ledger
        if coordinator is None or ledger is None:
            return "starting"
        try:
            writable = await ledger.fetchval(SQL["probe"])
        except LedgerError:
            return "database_unavailable"
        if not writable:
            return "database_read_only"
        if self.settings.takes_transactions and not self.replica.active.is_set():
            return "another_replica_takes_transactions"
        if not coordinator.session.may_claim:
            return "worker_session_lost"
        if failing := coordinator.pauses.failing:
            return "homeserver_refuses_us" if "" in failing else "agent_refuses_us"
        return None if self.settings.takes_transactions else "takes_no_transactions"
