"""Which TAMQ a command asks, and as whom. As root a command becomes the socket's owner first."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import click

from corral.core.errors import UsageError
from corral.tamq import host
from corral.tamq.client import TIMEOUT_S, Client, default_socket


@dataclass(frozen=True)
class Place:
    """The options of the program that say where TAMQ is."""

    KEY: ClassVar[str] = "corral.tamq.place"

    socket: Path | None
    user: str | None

    @classmethod
    def of(cls, context: click.Context) -> "Place":
        place: Place = context.meta[cls.KEY]
        return place

    @property
    def path(self) -> Path:
        """The socket's path. `UsageError` for an unknown user."""
        if self.socket is not None:
            return self.socket.absolute()
        if self.user is None:
            return default_socket()
        account = _account(self.user)
        found = host.socket_of(account.pw_name)
        return found or host.runtime_dir(account.pw_uid) / "tamq.sock"

    def ask(self, fields: Mapping[str, object], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """The answer's fields. Raises the `TamqError` that refuses."""
        path = self.become_owner()
        return Client(path, timeout_s).request(fields)

    def become_owner(self) -> Path:
        """TAMQ serves its own user only, not even root. For good: commands are short. Its path."""
        path = self.path
        self._become(path)
        return path

    def _become(self, path: Path) -> None:
        if self.user is not None and os.geteuid() != 0:
            if _account(self.user).pw_uid != os.geteuid():
                raise UsageError("--user is for root: TAMQ serves its own user only")
            return
        if os.geteuid() != 0:
            return
        try:
            uid = _account(self.user).pw_uid if self.user else path.lstat().st_uid
            account = pwd.getpwuid(uid)
        except (OSError, KeyError):
            return  # nobody is there to become: asking says what is wrong
        if uid != 0:
            os.initgroups(account.pw_name, account.pw_gid)
            os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
            os.setresuid(uid, uid, uid)


def _account(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"there is no user {name!r}") from None
