"""The base of every error that an operator may see.

`code` and `exit_code` are stable API: scripts match on them, so a code is never reused or
renamed. A message says what happened and to which id, `hint` says what to do next. Neither ever
holds message content or a secret.
"""

from collections.abc import Mapping
from typing import ClassVar


class CorralError(Exception):
    """Base of all errors. `ids` names what was hit, for example `{"turn_id": "…"}`."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, hint: str = "", ids: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.ids: dict[str, str] = dict(ids or {})

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def as_dict(self) -> dict[str, object]:
        """The shape in which errors leave a service: `code`, `message`, `hint`, `ids`."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "ids": dict(self.ids),
        }


class ConfigError(CorralError):
    """A setting is missing, unknown or wrong. The message begins with the path of the key."""

    code: ClassVar[str] = "config_invalid"
    exit_code: ClassVar[int] = 78


class UsageError(CorralError):
    """The caller asked for something that makes no sense (arguments, not configuration)."""

    code: ClassVar[str] = "usage"
    exit_code: ClassVar[int] = 64


class UnavailableError(CorralError):
    """Something that is needed does not answer. Trying again later may help."""

    code: ClassVar[str] = "unavailable"
    exit_code: ClassVar[int] = 69


class StorageError(CorralError):
    """Disk full, I/O error, locked or closed database: nothing was acknowledged."""

    code: ClassVar[str] = "storage"
    exit_code: ClassVar[int] = 74


class ForeignDatabaseError(StorageError):
    """The database belongs to another program, or to another version of this one."""

    code: ClassVar[str] = "foreign_database"


class GuardError(CorralError):
    """A guarded UPDATE touched another number of rows than 1: the state was not what we knew."""

    code: ClassVar[str] = "guard_failed"
    exit_code: ClassVar[int] = 70
