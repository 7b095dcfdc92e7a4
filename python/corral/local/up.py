"""`./corral up [redis|runner|daemon …] [--dir DIR]`: a local deployment until Ctrl-C.

It keeps its directory, credentials included: what was sent while only `redis` was up is answered at
the next `up`. The file `env` in it sets what `./corral cowboy` needs as operator; answers are
printed as they come.
"""

import argparse
import asyncio
import fcntl
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.core.errors import CorralError, UnavailableError
from corral.local import wait
from corral.local.deployment import DAEMON, REDIS, RUNNER, Deployment, Options
from corral.local.evidence import Seen
from corral.local.servers import write_private
from corral.local.supervisor import Supervisor
from corral.local.topology import Topology

PROCESSES = (REDIS, RUNNER, DAEMON)
DEFAULT_DIR = Path(".corral") / "up"
OPERATOR = "operator"
LOOK_S = 0.2


@dataclass(frozen=True)
class Settings:
    """What the command line asks for; Redis is always among the processes."""

    processes: tuple[str, ...]
    directory: Path
    agent: str
    server: str | None


def parse(argv: Sequence[str]) -> Settings:
    parser = argparse.ArgumentParser(prog="./corral up", allow_abbrev=False)
    parser.add_argument(
        "processes", nargs="*", metavar="PROCESS", help="redis, runner, daemon; default: all"
    )
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="kept; default: .corral/up")
    parser.add_argument("--agent", default="scout", help="of examples/demo.nix; default: scout")
    parser.add_argument("--server", choices=["redis", "valkey"], help="default: what is found")
    given = parser.parse_args(argv)
    for name in given.processes:
        if name not in PROCESSES:
            parser.error(f"no process {name}; there are: {' '.join(PROCESSES)}")
    chosen = set(given.processes or PROCESSES) | {REDIS}
    ordered = tuple(name for name in PROCESSES if name in chosen)
    return Settings(ordered, given.dir.resolve(), given.agent, given.server)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Makes the directory (0700) and holds its lock. UnavailableError when another has it."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UnavailableError(
            f"cannot use {directory}: {error.strerror}", hint="choose another one with --dir"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UnavailableError(
            f"another ./corral up uses {directory}", hint="end it, or choose another one with --dir"
        ) from None
    finally:
        os.close(fd)


def operator_variables(deployment: Deployment) -> dict[str, str]:
    """What `cowboy` needs to ask as the operator; no secret is in it."""
    topology = deployment.topology
    credential = topology.rendered["identities"][OPERATOR]["credential"]
    return {
        "COWBOY_CONFIG_DIR": str(topology.config_dir),
        "COWBOY_STATE_DIR": str(topology.state_dir),
        "COWBOY_RUNTIME_DIR": str(topology.runtime_dir),
        "COWBOY_REDIS_URL": f"unix://{topology.redis_socket}",
        "COWBOY_REDIS_USERNAME": OPERATOR,
        "COWBOY_REDIS_PASSWORD_FILE": str(topology.credential_file(credential)),
    }


def write_environment(deployment: Deployment) -> Path:
    """The file to source before `./corral cowboy`: as the operator, no secret in it."""
    values = operator_variables(deployment)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in values.items()]
    path = deployment.base / "env"
    write_private(path, "".join(lines))
    return path


def leave_only(agent: str, topology: Topology) -> None:
    """Takes the configuration of the other agents away: as they do not run here, `cowboy status`
    and `cowboy doctor` of this host would find them down."""
    for other in topology.agents:
        if other != agent:
            shutil.rmtree(topology.config_dir / other)


async def tell(supervisor: Supervisor) -> None:
    """Says on standard error what happens to the processes from now on."""
    told = len(supervisor.timeline)
    while True:
        for event in supervisor.timeline[told:]:
            detail = f" ({event.cause})" if event.cause else ""
            detail = f" (status {event.code})" if event.code is not None else detail
            print(f"up: {event.process} {event.what}{detail}", file=sys.stderr, flush=True)
        told = len(supervisor.timeline)
        await wait.at(time.monotonic() + LOOK_S)


def show(seen: Seen) -> None:
    """One answer on the terminal, with what leads to its turn."""
    print(f"{seen.source}: {seen.outcome} ({seen.turn_id}): {seen.content!r}", flush=True)


async def up(settings: Settings) -> None:
    """Runs the processes until it is cancelled."""
    # No sweep: the shell that sourced our `env` looks like a process of ours.
    deployment = Deployment(
        Options(agent=settings.agent, server=settings.server, base=settings.directory, sweep=False)
    )
    deployment.keep = True
    leave_only(settings.agent, deployment.topology)
    async with deployment:
        environment = write_environment(deployment)
        rest = [name for name in settings.processes if name != REDIS]
        if rest:
            await deployment.start(*rest)
        _say_how(settings, deployment, environment)
        readers = [deployment.reader(source, on_seen=show) for source in deployment.sources]
        try:
            await asyncio.gather(
                *(reader.run() for reader in readers),
                tell(deployment.supervisor),
                deployment.supervisor.failure(),
            )
        finally:
            for reader in readers:
                reader.stop()
            await deployment.stop()


def _say_how(settings: Settings, deployment: Deployment, environment: Path) -> None:
    agent, sources = settings.agent, " ".join(deployment.sources)
    quick = "echo" if "echo" in deployment.sources else next(iter(deployment.sources))
    print(
        f"up: {' '.join(settings.processes)} ({deployment.server_kind}), agent {agent}, "
        f"sources {sources}; logs in {deployment.supervisor.logs}; Ctrl-C ends it\n"
        "in another shell:\n"
        f"  source {shlex.quote(str(environment))}\n"
        f"  ./corral cowboy send {agent} {quick} --content hello\n"
        f"  ./corral cowboy status {agent}",
        flush=True,
    )


async def _until_asked(work: Coroutine[Any, Any, None]) -> None:
    """SIGTERM ends it as Ctrl-C does: everything that was started is ended."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await work


def until_asked(directory: Path, work: Callable[[], Coroutine[Any, Any, None]], see: str) -> int:
    """Runs a deployment in its locked directory until it is asked to end: the exit status.

    `see` says where to look when something does not start in time.
    """
    try:
        with locked(directory):
            asyncio.run(_until_asked(work()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"up: ended; everything is kept in {directory}", file=sys.stderr)
        return 0
    except wait.WaitTimeoutError as error:
        print(f"up: {error}; see {see}", file=sys.stderr)
        return UnavailableError.exit_code
    except CorralError as error:
        print(f"up: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def main(argv: Sequence[str]) -> int:
    if "--bridge" in argv:
        from corral.local import bridge_up  # it needs what the other deployment does not

        return bridge_up.main(argv)
    try:
        settings = parse(argv)
    except SystemExit as error:
        return 64 if error.code else 0
    return until_asked(settings.directory, lambda: up(settings), str(settings.directory / "logs"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
