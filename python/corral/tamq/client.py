"""The client of TAMQ, synchronous and asynchronous: one connection per request, no state.

    client = Client(Path("/run/user/1000/tamq/tamq.sock"))
    client.request({"op": "send", …})  ->  the fields of the answer, without `ok`

Imports nothing of the server. `UnavailableTamqError` when TAMQ does not listen (nothing was done)
or gives no answer in time (what was asked may have been done: a send is repeated with its key).
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from corral.tamq import host, wire
from corral.tamq.errors import UnavailableTamqError

TIMEOUT_S: Final = 10.0


def default_socket() -> Path:
    """Where TAMQ listens for this user unless told otherwise."""
    given = os.environ.get("TAMQ_SOCKET")
    found = Path(given).absolute() if given else host.socket_of(host.own_name())
    return found or host.runtime_dir() / "tamq.sock"


class Client:
    """Asks and waits."""

    def __init__(self, path: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path or default_socket()
        self.timeout_s = timeout_s

    def request(self, fields: Mapping[str, object]) -> dict[str, Any]:
        """The answer's fields. Raises the `TamqError` that refuses, or for want of an answer."""
        frame = wire.encode({"protocol": wire.PROTOCOL, **fields})
        deadline = time.monotonic() + self.timeout_s
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(self.timeout_s)
            try:
                connection.connect(os.fspath(self.path))
            except OSError as error:
                raise _not_there(self.path, error) from error
            try:
                # A server that refuses early may close before it has read all; its answer counts.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(frame)
                line = _read(connection, deadline)
            except OSError as error:
                raise _no_answer(self.path, self.timeout_s) from error
        return _checked(line, self.path, self.timeout_s)


class AsyncClient:
    """Asks without blocking the event loop."""

    def __init__(self, path: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.path = path or default_socket()
        self.timeout_s = timeout_s

    async def request(self, fields: Mapping[str, object]) -> dict[str, Any]:
        """As `Client.request`."""
        frame = wire.encode({"protocol": wire.PROTOCOL, **fields})
        try:
            async with asyncio.timeout(self.timeout_s):
                try:
                    reader, writer = await asyncio.open_unix_connection(
                        self.path, limit=wire.FRAME_MAX_BYTES
                    )
                except OSError as error:
                    raise _not_there(self.path, error) from error
                try:
                    with suppress(BrokenPipeError, ConnectionResetError):
                        writer.write(frame)
                        await writer.drain()
                    line = await reader.readline()
                finally:
                    writer.close()
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            raise _no_answer(self.path, self.timeout_s) from error
        return _checked(line, self.path, self.timeout_s)


def _read(connection: socket.socket, deadline: float) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n") and len(data) <= wire.FRAME_MAX_BYTES:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        chunk = connection.recv(65_536)
        if not chunk:
            break
        data += chunk
    return bytes(data)


def _checked(line: bytes, path: Path, timeout_s: float) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise _no_answer(path, timeout_s)
    return wire.answer(line)


def _not_there(path: Path, error: OSError) -> UnavailableTamqError:
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return UnavailableTamqError(
            f"no TAMQ listens at {path}", hint="start it: tamq serve; or set TAMQ_SOCKET"
        )
    if isinstance(error, PermissionError):
        return UnavailableTamqError(f"no permission to use {path}", hint="it is another user's")
    if error.errno is None:  # of Python: the path does not fit the address
        return UnavailableTamqError(f"{path} cannot be a socket: {error}", hint="set TAMQ_SOCKET")
    return UnavailableTamqError(
        f"cannot connect to {path}: {error.strerror or error}",
        hint="is that the socket of a TAMQ? See 'tamq doctor'",
    )


def _no_answer(path: Path, timeout_s: float) -> UnavailableTamqError:
    return UnavailableTamqError(
        f"TAMQ at {path} gave no answer within {timeout_s:g} s",
        hint="what was asked may have been done: repeat it with the same idempotency_key",
    )
