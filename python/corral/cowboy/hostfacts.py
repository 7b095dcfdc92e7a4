"""What `doctor` finds out on the host itself: files, disks, the ledger's header, namespaces.

Reads only, and no file's content but the first bytes of the ledger (and of its log), which hold
numbers of SQLite's own.
"""

import json
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from corral.core.errors import CorralError
from corral.cowboy import netns
from corral.cowboy.examined import DiskFact, FileFact, LedgerFile, NamespaceFacts
from corral.cowboy.settings import CowboySettings

EGRESS_TIMEOUT_S: Final = 2.0
WAL_FRAMES_MAX: Final = 200_000
_PRIVATE = 0o077
_NOT_FOR_OTHERS = 0o027
_NOT_WRITABLE = 0o022
_EGRESS = re.compile(r"ip daddr (?P<address>\S+) (?P<protocol>tcp|udp) dport (?P<port>\d+) accept")
# Settings of an agent's units that its operator's environment does not have.
_UNIT_SETTINGS = ("state_dir", "runtime_dir", "runner_dir", "metrics_dir")


def unit_settings(settings: CowboySettings, agent: str) -> CowboySettings:
    """The settings with what the agent's units are given beside `sources.json`, if there is any.

    What the environment of this command sets itself wins. Raises nothing: a file that cannot be
    read changes nothing.
    """
    try:
        text = (settings.config_dir / agent / "settings.json").read_text()
        found: Any = json.loads(text)
        given = {name: Path(found[name]) for name in _UNIT_SETTINGS if found.get(name)}
    except (OSError, ValueError, TypeError, AttributeError):
        return settings
    new = {name: path for name, path in given.items() if name not in settings.model_fields_set}
    return settings.model_copy(update=new)


# ---------------------------------------------------------------- files and disks


def files(settings: CowboySettings, agent: str) -> tuple[FileFact, ...]:
    """Modes of everything that must not be everybody's."""
    return tuple(_fact(*wanted) for wanted in _wanted(settings, agent))


def _wanted(settings: CowboySettings, agent: str) -> Iterator[tuple[Path, int, bool]]:
    """Paths, the bits that they must not have, and whether they may be missing."""
    state, ledger = settings.state_path(agent), settings.ledger_path(agent)
    # Who may write into a folder may put another file in the place of one that is private.
    for folder in (settings.config_dir, settings.state_dir, settings.runtime_dir):
        yield folder, _NOT_WRITABLE, True
    yield settings.sources_path(agent).parent, _NOT_WRITABLE, True
    yield settings.sources_path(agent), _NOT_WRITABLE, False
    yield settings.runtime_path(agent), _NOT_WRITABLE, False
    yield settings.control_socket(agent), _PRIVATE, True
    yield settings.runner_socket(agent).parent, _NOT_WRITABLE, True
    yield settings.runs_path(agent), _NOT_FOR_OTHERS, True
    yield settings.operator_env, _PRIVATE, True
    yield settings.runtime_dir / "redis.acl", _PRIVATE, True
    if credential := os.environ.get("COWBOY_REDIS_PASSWORD_FILE"):
        yield Path(credential), _PRIVATE, False
    secrets = settings.state_dir / "secrets"
    yield secrets, _PRIVATE, True
    yield state, _NOT_FOR_OTHERS, False
    for path in (ledger, Path(f"{ledger}-wal"), Path(f"{ledger}-shm"), settings.lock_path(agent)):
        yield path, _PRIVATE, True
    for folder in (secrets, state / "backups"):
        for path in _inside(folder):
            yield path, _PRIVATE, True


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # its own mode is looked at, and says why


def _fact(path: Path, forbidden: int, optional: bool) -> FileFact:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return FileFact(str(path), forbidden, None, optional=optional, missing=True)
    except OSError as error:
        return FileFact(str(path), forbidden, None, error.strerror or "", optional=optional)
    return FileFact(str(path), forbidden, mode, optional=optional)


def disks(settings: CowboySettings, agent: str) -> tuple[DiskFact, ...]:
    """Room for the ledger, and for the metrics where they are written."""
    folders = [settings.state_path(agent)]
    if settings.metrics_dir is not None:
        folders.append(settings.metrics_dir)
    return tuple(_disk(folder) for folder in folders)


def _disk(folder: Path) -> DiskFact:
    # A folder that another user may not enter is on the file system of one that he may.
    for place in (folder, *folder.parents):
        try:
            found = os.statvfs(place)
        except (FileNotFoundError, PermissionError):
            continue
        except OSError as error:
            return DiskFact(str(folder), None, None, error.strerror or "")
        inodes = found.f_favail if found.f_files else None
        return DiskFact(str(folder), found.f_bavail * found.f_frsize, inodes)
    return DiskFact(str(folder), None, None, "it is not there")


# ---------------------------------------------------------------- the ledger's file


def ledger_file(path: Path) -> LedgerFile:
    """Application id and schema number as SQLite keeps them, the write-ahead log included."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
        newer = _first_page(Path(f"{path}-wal"))
    except FileNotFoundError:
        return LedgerFile(exists=False)
    except OSError as error:
        return LedgerFile(exists=True, error=error.strerror or "")
    header = newer or header
    if len(header) < 100:
        return LedgerFile(exists=True, error="the file is empty")
    if not header.startswith(b"SQLite format 3\0"):
        return LedgerFile(exists=True, application_id=-1)
    (schema,) = struct.unpack_from(">I", header, 60)
    (application_id,) = struct.unpack_from(">I", header, 68)
    return LedgerFile(exists=True, application_id=application_id, schema=schema)


def _first_page(wal: Path) -> bytes | None:
    """The header of the last committed first page in a write-ahead log; None without one."""
    try:
        file = wal.open("rb")
    except FileNotFoundError:
        return None
    with file:
        head = file.read(32)
        if len(head) < 32:
            return None
        page_size = struct.unpack_from(">I", head, 8)[0] or 65_536
        found = waiting = None
        at = 32
        for _ in range(WAL_FRAMES_MAX):
            file.seek(at)
            frame = file.read(24 + 100)
            if len(frame) < 124 or frame[8:16] != head[16:24]:
                break  # the rest is of an older use of the file
            number, committed = struct.unpack_from(">II", frame)
            if number == 1:
                waiting = frame[24:]
            if committed and waiting is not None:
                found, waiting = waiting, None
            at += 24 + page_size
        return found


# ---------------------------------------------------------------- namespaces


def namespace(
    settings: CowboySettings, name: str | None, daemon_pid: int | None, folder: Path | None = None
) -> NamespaceFacts:
    """The namespace of that name, whether the daemon is in it, and what can be reached from it.

    Moves this process into the namespace when destinations are to be tried and root runs it.
    """
    if name is None:
        return NamespaceFacts()
    folder = folder or netns.NAMESPACES
    try:
        wanted = netns.identity_of(folder / name)
    except FileNotFoundError:
        return NamespaceFacts(name, missing=True)
    except OSError as error:
        return NamespaceFacts(name, error=error.strerror or "")
    same, why = _same(wanted, daemon_pid)
    targets = _egress_targets(settings)
    problem = ""
    tried: list[tuple[str, str]] = []
    if targets:
        try:
            netns.enter(name, folder)
            tried = [(f"{address}:{port}/{protocol}", _try(address, protocol, port))
                     for address, protocol, port in targets]  # fmt: skip
        except CorralError as error:
            problem = error.message
    return NamespaceFacts(name, False, same, why, tuple(tried), problem)


def _same(wanted: tuple[int, int], pid: int | None) -> tuple[bool | None, str]:
    if pid is None:
        return None, "the daemon cannot be asked"
    try:
        return netns.of_process(pid) == wanted, ""
    except OSError as error:
        return None, f"/proc/{pid}/ns/net: {error.strerror}"


def _egress_targets(settings: CowboySettings) -> list[tuple[str, str, int]]:
    """Destinations that the rules of the namespace allow, as its unit loads them."""
    try:
        rules = (settings.config_dir / "namespace.nft").read_text()
    except OSError:
        return []
    found = _EGRESS.finditer(rules)
    return [(one["address"].split("/")[0], one["protocol"], int(one["port"])) for one in found]


def _try(address: str, protocol: str, port: int) -> str:
    """Why a destination cannot be reached; empty when it can, a refusal by its host included."""
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, kind) as connection:
        connection.settimeout(EGRESS_TIMEOUT_S)
        try:
            connection.connect((address, port))
        except ConnectionRefusedError:
            return ""
        except TimeoutError:
            return f"no answer within {EGRESS_TIMEOUT_S:g} s"
        except OSError as error:
            return error.strerror or "cannot be reached"
    return ""
