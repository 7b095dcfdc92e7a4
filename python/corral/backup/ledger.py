"""The bridge's ledger, by PostgreSQL's own programs, as the bridge's user: no secret is needed.

What they print may quote rows, so it is looked at and not shown.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from corral.core.errors import ConfigError, StorageError, UnavailableError

TIMEOUT_S: Final = 3_600
EXISTS: Final = b"already exists"
EMPTY: Final = b"DROP OWNED BY CURRENT_USER CASCADE;\n"
SAID_MAX_BYTES: Final = 65_536
THERE: Final = "is PostgreSQL running, with the bridge's database? systemctl start postgresql"


def is_local(address: str) -> bool:
    """Whether it says where a ledger is without a secret. Pure."""
    return bool(address) and urlsplit(address).password is None and "password" not in address


def dump(address: str, user: str, file: BinaryIO) -> None:
    """One moment of it, while others write."""
    argv = ["pg_dump", "--format=custom", "--no-password", f"--dbname={address}"]
    with _popen(argv, subprocess.DEVNULL, file, user=user) as done:
        done.wait(TIMEOUT_S)
    if done.returncode:
        raise UnavailableError(f"pg_dump ended with {done.returncode}", hint=THERE)


def restore(address: str, user: str, source: Path, *, replace: bool) -> None:
    """In one transaction. `StorageError` when something is there that may not be replaced."""
    psql = ["psql", "--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1"]
    with (
        source.open("rb") as archive,
        tempfile.TemporaryFile() as said,
        _popen(
            [*psql, f"--dbname={address}"], subprocess.PIPE, subprocess.DEVNULL, said, user
        ) as server,
        _popen(["pg_restore", "--file=-"], archive, subprocess.PIPE) as script,
    ):
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its status says why
            _feed(server.stdin, script, replace=replace)
        server.wait(TIMEOUT_S)
        script.kill()
        said.seek(0)
        words = said.read(SAID_MAX_BYTES)
    if EXISTS in words and not replace:
        raise StorageError(
            "the bridge's ledger is not empty",
            hint="--replace takes the backup's in its place; what is in it now is lost",
        )
    if server.returncode or script.returncode:
        ended = f"psql ended with {server.returncode}, pg_restore with {script.returncode}"
        raise UnavailableError(ended, hint=THERE)


def _feed(into: Any, script: "subprocess.Popen[bytes]", *, replace: bool) -> None:
    """Half a script is never committed: only who knows that it is whole says so."""
    with into:
        into.write(b"BEGIN;\n" + (EMPTY if replace else b""))
        source: Any = script.stdout
        shutil.copyfileobj(source, into)
        if script.wait(TIMEOUT_S) == 0:
            into.write(b"COMMIT;\n")


def _as(user: str) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"this host has no user {user}") from None
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _popen(
    argv: list[str], source: Any, into: Any, said: Any = subprocess.DEVNULL, user: str = ""
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            argv,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            stdin=source,
            stdout=into,
            stderr=said,
            **(_as(user) if user else {}),
        )
    except OSError as error:
        raise UnavailableError(
            f"{argv[0]} cannot be run: {error.strerror}", hint="is PostgreSQL on PATH?"
        ) from None
