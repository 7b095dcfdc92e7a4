"""The bridge's ledger, by PostgreSQL's own programs, as the bridge's user: no secret is needed.

What they print may quote rows, so it is looked at and not shown.
"""

import os
import subprocess
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from corral.core.errors import StorageError, UnavailableError

TIMEOUT_S: Final = 3_600
EXISTS: Final = b"already exists"
EMPTY: Final = "DROP OWNED BY CURRENT_USER CASCADE"
THERE: Final = "is PostgreSQL running, with the bridge's database? systemctl start postgresql"


def is_local(address: str) -> bool:
    """Whether it says where a ledger is without a secret. Pure."""
    return bool(address) and urlsplit(address).password is None and "password" not in address


def dump(address: str, user: str, file: BinaryIO) -> None:
    """One moment of it, while others write."""
    argv = ["pg_dump", "--format=custom", "--no-password", f"--dbname={address}"]
    done = _run(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, **_as(user))
    if done.returncode:
        raise UnavailableError(f"pg_dump ended with {done.returncode}", hint=THERE)


def restore(address: str, user: str, source: Path, *, replace: bool) -> None:
    """In one transaction. `StorageError` when something is there that may not be replaced."""
    psql = ["psql", "--no-psqlrc", "--quiet", "--no-password", "--single-transaction"]
    psql += ["--set=ON_ERROR_STOP=1", f"--dbname={address}"]
    psql += [f"--command={EMPTY}"] if replace else []
    with source.open("rb") as archive:
        script = _popen(["pg_restore", "--file=-"], stdin=archive, stdout=subprocess.PIPE)
        with script:
            done = _run(
                [*psql, "--file=-"],
                stdin=script.stdout,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                **_as(user),
            )
    if EXISTS in done.stderr and not replace:
        raise StorageError(
            "the bridge's ledger is not empty",
            hint="--replace takes the backup's in its place; what is in it now is lost",
        )
    if done.returncode or script.returncode:
        ended = f"psql ended with {done.returncode}, pg_restore with {script.returncode}"
        raise UnavailableError(ended, hint=THERE)


def _as(user: str) -> dict[str, Any]:
    return {"user": user, "group": user, "extra_groups": []} if os.geteuid() == 0 else {}


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _run(argv: list[str], **more: Any) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            argv, cwd="/", env=_environment(), timeout=TIMEOUT_S, check=False, **more
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(
            f"{argv[0]} cannot be run: {type(error).__name__}", hint="is PostgreSQL on PATH?"
        ) from None


def _popen(argv: list[str], **more: Any) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            argv, cwd="/", env=_environment(), stderr=subprocess.DEVNULL, **more
        )
    except OSError as error:
        raise UnavailableError(
            f"{argv[0]} cannot be run: {error.strerror}", hint="is PostgreSQL on PATH?"
        ) from None
