"""The gateway as a service, from its lock to its last answer."""

import asyncio
import contextlib
import os
import signal
from typing import NoReturn

from corral.core import logs, sockets
from corral.core.errors import StorageError, UnavailableError
from corral.core.notify import Notifier
from corral.gateway import tokens
from corral.gateway.figures import Figures
from corral.gateway.http import Server, listening
from corral.gateway.service import Gateway
from corral.gateway.settings import GatewaySettings
from corral.gateway.stream import Carrier

SWEEP_EVERY_S = 30.0
METRICS_EVERY_S = 5.0
METRICS_FILE = "gateway.prom"

_log = logs.get(__name__)


async def run(settings: GatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT. Every stop is safe: what is open goes on at the start.

    `ConfigError`, `StorageError`, `UnavailableError` (another gateway has the state or the socket).
    Whatever else ends a part of it ends all of it, and is raised.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    clients = await asyncio.to_thread(tokens.read, settings.clients)
    with contextlib.ExitStack() as held:
        await asyncio.to_thread(_lock, settings, held)
        async with Gateway(settings.database, limits=settings.limits) as gateway:
            figures = await asyncio.to_thread(
                Figures, list(settings.agents), list(clients), settings.limits
            )
            await Daemon(settings, gateway, clients, figures).serve(stop)


class Daemon:
    """What runs beside each other: the server, both legs of each agent, upkeep, metrics."""

    def __init__(
        self,
        settings: GatewaySettings,
        gateway: Gateway,
        clients: dict[str, str],
        figures: Figures,
    ) -> None:
        self._settings = settings
        self._gateway = gateway
        self._clients = clients
        self._notifier = Notifier.from_environment()
        self._figures = figures
        self._carriers = [Carrier(gateway, settings.stream(agent)) for agent in settings.agents]

    async def serve(self, stop: asyncio.Event) -> None:
        settings = self._settings
        listener, inode = await asyncio.to_thread(
            sockets.listen, settings.socket, "socket", mode=settings.socket_mode
        )
        server = Server(
            self._gateway,
            agents={name: one.description for name, one in settings.agents.items()},
            clients=self._clients,
            base_url=settings.base_url,
            trouble=self.trouble,
            figures=self._figures,
        )
        try:
            async with listening(server, listener), asyncio.TaskGroup() as group:
                parts = [*(one.run() for one in self._carriers), self._upkeep(), self._watchdog()]
                if settings.metrics_dir is not None:
                    parts.append(self._metrics())
                tasks = [group.create_task(part) for part in parts]
                told = f"{len(settings.agents)} agents, {len(self._clients)} clients"
                self._notifier.ready(told)
                _log.info("serving", socket=str(settings.socket), agents=len(settings.agents))
                await stop.wait()
                self._notifier.stopping()
                for task in tasks:
                    task.cancel()
        finally:
            await asyncio.to_thread(sockets.unlink_own, settings.socket, inode)

    def trouble(self) -> dict[str, str]:
        """A word for each leg that does not work, by `agent.leg`."""
        return {
            f"{one.agent}.{leg}": word
            for one in self._carriers
            for leg, word in one.trouble.items()
            if word
        }

    async def _upkeep(self) -> NoReturn:
        while True:
            try:
                done = await self._gateway.sweep()
            except StorageError as error:
                _log.warning("upkeep waits for the disk", code=error.code)
            else:
                self._figures.swept(done)
                if done.ended:
                    _log.info("overdue tasks have ended", tasks=len(done.ended))
            await asyncio.sleep(SWEEP_EVERY_S)

    async def _watchdog(self) -> NoReturn:
        interval_s = self._notifier.watchdog_interval_s or 3600.0
        while True:
            self._notifier.watchdog()
            await asyncio.sleep(interval_s)

    async def _metrics(self) -> NoReturn:
        folder = self._settings.metrics_dir
        while True:
            try:
                now = await self._gateway.standing()
                self._figures.update(
                    now,
                    self._carriers,
                    wal_bytes=self._gateway.wal_bytes(),
                    now_ms=self._gateway.clock.wall_ms(),
                )
                if folder is not None:
                    path = folder / METRICS_FILE
                    await asyncio.to_thread(self._figures.metrics.write_textfile, path)
            except (OSError, StorageError) as error:
                _log.warning("no metrics", kind=type(error).__name__)
            await asyncio.sleep(METRICS_EVERY_S)


def _lock(settings: GatewaySettings, held: contextlib.ExitStack) -> None:
    """The state's and the socket's lock, for as long as `held` is open. Blocks."""
    sockets.check_path(settings.socket, "socket")
    beside = settings.socket.with_name(settings.socket.name + ".lock")
    for path, what in (
        (settings.state_dir / "lock", settings.state_dir),
        (beside, settings.socket),
    ):
        try:
            handle = sockets.lock(path)
        except OSError as error:
            raise StorageError(
                f"{path}: {error.strerror}", hint="is its folder there, and ours?"
            ) from error
        if handle is None:
            raise UnavailableError(f"another gateway serves {what}", hint="stop it first")
        held.callback(os.close, handle)
