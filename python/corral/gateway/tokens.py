"""The bearer tokens of the clients, a file each. Blocks. No message quotes what a file holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from corral.core.errors import ConfigError

TOKEN_MAX_BYTES: Final = 4_096


def read(files: Mapping[str, Path]) -> dict[str, str]:
    """`ConfigError` for the first that is none, or that another client has, too."""
    found: dict[str, str] = {}
    for name, path in files.items():
        token = one(name, path)
        if token in found.values():
            raise ConfigError(
                f"clients.{name}: another client has the same token", ids={"client": name}
            )
        found[name] = token
    return found


def one(name: str, path: Path) -> str:
    """`ConfigError` for a file that cannot be read, or that holds no token."""
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_MAX_BYTES).decode("ascii").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"clients.{name}: {path} cannot be read ({type(error).__name__})",
            ids={"client": name},
        ) from None
    if not token or not token.isprintable() or " " in token:
        raise ConfigError(
            f"clients.{name}: {path} holds no token",
            hint="one line of visible characters",
            ids={"client": name},
        )
    return token
