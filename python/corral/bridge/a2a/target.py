"""Where an agent is, and how the bridge shows who it is."""

import os
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.bridge.a2a.wire import Version
from corral.core.errors import ConfigError

TOKEN_MAX_BYTES: Final = 8192

_TOKEN: Final = re.compile(rb"[!-~]+\Z")
_PORTS: Final = {"http": 80, "https": 443}
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104  of cards, nothing listens here


@dataclass(frozen=True, slots=True)
class Address:
    """`origin` is scheme, host and port; over a Unix socket it is only what HTTP needs."""

    origin: str
    path: str  # with the query, begins with "/"
    socket: str | None = None

    @classmethod
    def parse(cls, url: str) -> "Address":
        """`http://…`, `https://…`, or `unix:/path/of/socket:/path/of/url`.

        `ConfigError` when it is none of these, or holds a user, a password or a fragment.
        """
        if any(ord(char) <= 0x20 or 0x7F <= ord(char) <= 0x9F for char in url):
            raise ConfigError("an agent's URL must have no blanks and no control characters")
        if url.startswith("unix:"):
            socket, _, path = url.removeprefix("unix:").partition(":")
            if not socket.startswith("/"):
                raise ConfigError("a socket's URL must be unix:/path/of/socket:/path/of/url")
            return cls("http://localhost", f"/{path.lstrip('/')}", socket)
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = parts = None
        if parts is None or not host or parts.scheme not in _PORTS:
            raise ConfigError("an agent's URL must begin with http://HOST, https://HOST or unix:/")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise ConfigError(
                "an agent's URL must hold no user, password or fragment",
                hint="put a bearer token into the agent's token file",
            )
        name = f"[{host}]" if ":" in host else host
        origin = f"{parts.scheme}://{name}:{port or _PORTS[parts.scheme]}"
        query = f"?{parts.query}" if parts.query else ""
        return cls(origin, f"{parts.path or '/'}{query}")

    @property
    def url(self) -> str:
        return self.origin + self.path

    def at(self, path: str) -> "Address":
        """Another path of the same server."""
        return Address(self.origin, path, self.socket)

    def joined(self, named: str) -> "Address | None":
        """Where a card of this server sends its callers; None when that is another server.

        A card is not trusted with the choice of a server: it would get the bearer token. What is
        reached over a socket stays there, and all names of this machine's loopback are one.
        """
        try:
            there = Address.parse(urllib.parse.urljoin(self.url, named))
        except (ConfigError, ValueError):
            return None
        if self.socket is not None or _same_server(self.origin, there.origin):
            return self.at(there.path)
        return None


def _same_server(one: str, other: str) -> bool:
    if one == other:
        return True
    here, there = urllib.parse.urlsplit(one), urllib.parse.urlsplit(other)
    both_loopback = here.hostname in LOOPBACK and there.hostname in LOOPBACK
    return both_loopback and (here.scheme, here.port) == (there.scheme, there.port)


@dataclass(frozen=True, slots=True)
class Target:
    """One agent as the operator configured it.

    `url` is that of the card when it ends in `.json`, else the one below which the card is looked
    for. `endpoint` replaces what the card says. `request_timeout_s` bounds one HTTP call and has
    nothing to do with how long a task may take. `idempotent` allows what the card may declare.
    """

    agent: str
    url: str
    version: Version | None = None  # None: what the card says
    endpoint: str | None = None
    token_file: Path | None = None
    request_timeout_s: float = 60.0
    connect_timeout_s: float = 10.0
    answer_max_bytes: int = 8 * 1024 * 1024
    idempotent: bool = False


def read_token(path: Path) -> bytes:
    """The bearer token of a file, less the line's end. Blocks: for another thread.

    `ConfigError` when the file cannot be read or holds something else than one token; it never
    quotes what the file holds.
    """
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_MAX_BYTES + 1).rstrip(b"\r\n")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "cannot be read"
        raise ConfigError(f"token file {path}: {reason}", ids={"path": str(path)}) from None
    if len(token) > TOKEN_MAX_BYTES or not _TOKEN.match(token):
        raise ConfigError(
            f"token file {path}: holds no bearer token",
            hint="one line of visible ASCII characters, without the word Bearer",
            ids={"path": str(path)},
        )
    return token
