"""What this host's own configuration says of a user's TAMQ: `/etc/tamq/USER/settings.json`.

The NixOS module makes that file for the unit of the user. Commands and clients of the user read it
where the environment says nothing else, so that they ask the service that the host runs.
"""

import json
import os
import pwd
from pathlib import Path
from typing import Final

FOLDER: Final = Path("/etc/tamq")
CONFIG: Final = "TAMQ_CONFIG"


def runtime_dir(uid: int | None = None) -> Path:
    """Where a TAMQ listens that a person started: this process's user, or the one of a number."""
    given = os.environ.get("XDG_RUNTIME_DIR") if uid is None else None
    uid = os.getuid() if uid is None else uid
    return Path(given or f"/run/user/{uid}") / "tamq"


def own_name() -> str | None:
    """Of the user that this process is; `None` for a number without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def settings_file(user: str | None) -> Path | None:
    """The host's file for a user, if there is one."""
    if not user or "/" in user or user.startswith("."):
        return None
    found = FOLDER / user / "settings.json"
    return found if found.is_file() else None


def socket_of(user: str | None) -> Path | None:
    """Where the host's TAMQ of a user listens; `None` when the host runs none."""
    file = settings_file(user)
    if file is None:
        return None
    try:
        return Path(json.loads(file.read_text(encoding="utf-8"))["socket"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the service itself says what is wrong with its file


def adopt(user: str | None) -> None:
    """Read the settings from the host's file for the user, unless the environment names another."""
    file = settings_file(user or own_name())
    if file is not None:
        os.environ.setdefault(CONFIG, str(file))
