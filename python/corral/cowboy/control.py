"""The control socket: one JSON line asks, one JSON line answers, then the connection closes.

    {"op": "status"}  ->  {"ok": true, …}  |  {"ok": false, "error": {"code", "message", "hint"}}

The socket has mode 0600 from its first instant, and the kernel says who connects: root and the
server's own user are served. (The one that takes answers, `reply.sock`, serves the agent's user,
too; it has no other command.) A connection that talks garbage, too much or too slowly is answered
with an error and closed; it disturbs no other. A request that was read is carried out, even when
its client is gone by then.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from corral.core import logs, sockets
from corral.core.errors import CorralError, UnavailableError, UsageError

FRAME_MAX_BYTES: Final = 1024 * 1024  # of a request and of an answer, newline included
READ_TIMEOUT_S: Final = 10.0
CONNECTIONS_MAX: Final = 64
STOP_TIMEOUT_S: Final = 10.0

Request = Mapping[str, object]
Handler = Callable[[Request], Awaitable[Mapping[str, object]]]


class PeerDeniedError(UnavailableError):
    """The user who connected may not give commands to this daemon."""

    code: ClassVar[str] = "peer_denied"


class FrameError(UsageError):
    """A request or an answer that is no JSON object on one line within the limits."""

    code: ClassVar[str] = "frame_invalid"


class RemoteError(CorralError):
    """The daemon refused; code, exit code and text are those that it sent."""

    def __init__(self, error: object) -> None:
        fields = error if isinstance(error, dict) else {}
        ids, exit_code = fields.get("ids"), fields.get("exit_code")
        super().__init__(
            str(fields.get("message", "the daemon gave no reason")),
            hint=str(fields.get("hint", "")),
            ids=ids if isinstance(ids, dict) else {},
        )
        self.code = str(fields.get("code", CorralError.code))  # type: ignore[misc]
        self.exit_code = exit_code if isinstance(exit_code, int) else 70  # type: ignore[misc]


class ControlServer:
    """Serves `handlers`, a table from `op` to coroutine, at the path of a Unix socket.

    A handler gets the request, answers the fields beside `ok`, and raises CorralError to refuse.
    Whoever starts it holds the agent's lock: a dead server's socket is replaced, a live one's not.
    """

    def __init__(
        self,
        path: Path,
        handlers: Mapping[str, Handler],
        *,
        frame_max_bytes: int = FRAME_MAX_BYTES,
        read_timeout_s: float = READ_TIMEOUT_S,
        connections_max: int = CONNECTIONS_MAX,
        also: int | None = None,
    ) -> None:
        """`also` is one more user who is served; then the peer alone decides, not the mode."""
        self._also = also if also != os.getuid() else None
        self._path = path
        self._handlers = dict(handlers)
        self._frame_max_bytes = frame_max_bytes
        self._read_timeout_s = read_timeout_s
        self._connections_max = connections_max
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._connections: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()  # of those, the ones whose request was read
        self._log = logs.get("corral.cowboy.control")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens. Raises UnavailableError when another process does, ConfigError for the path."""
        mode = 0o600 if self._also is None else 0o666
        listener, self._inode = await asyncio.to_thread(_listen, self._path, mode)
        # The limit counts what comes before the newline.
        self._server = await asyncio.start_unix_server(
            self._connected, sock=listener, limit=self._frame_max_bytes - 1
        )

    async def stop(self) -> None:
        """Takes no new request, lets those that were read finish, and removes the socket."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections - self._busy:
            task.cancel()
        if self._connections:
            _, late = await asyncio.wait(set(self._connections), timeout=STOP_TIMEOUT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._server = None
        await asyncio.to_thread(sockets.unlink_own, self._path, self._inode)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(self._busy.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                self._admit(writer)
                frame = await self._answer(await self._read(reader))
            except CorralError as error:
                frame = _refusal(error)
            async with asyncio.timeout(self._read_timeout_s):
                writer.write(frame)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # the client went away, or does not take its answer: nobody is left to tell
        finally:
            writer.transport.abort()

    async def _answer(self, request: Request) -> bytes:
        if task := asyncio.current_task():
            self._busy.add(task)
        op = request.get("op")
        handler = self._handlers.get(op) if isinstance(op, str) else None
        if handler is None:
            known = ", ".join(sorted(self._handlers))
            raise UsageError("no such command", hint=f"op is one of {known}")
        try:
            frame = _encode({"ok": True, **await handler(request)})
        except CorralError:
            raise
        except Exception as error:
            # The text of an unforeseen exception may quote content, so it is left out.
            self._log.error("control request failed", op=op, error=type(error).__name__)
            raise CorralError(f"{op} failed: {type(error).__name__}", hint="see the log") from error
        if len(frame) > self._frame_max_bytes:
            raise FrameError(
                f"the answer is longer than {self._frame_max_bytes} bytes", hint="ask for less"
            )
        return frame

    def _admit(self, writer: asyncio.StreamWriter) -> None:
        uid = sockets.credentials(writer.get_extra_info("socket")).uid
        if uid != self._also and not peer_allowed(uid, os.getuid()):
            self._log.warning("control peer denied", uid=uid)
            raise PeerDeniedError(
                f"user {uid} may not command this daemon", hint="run it as root or as its user"
            )
        if len(self._connections) > self._connections_max:
            raise UnavailableError(
                f"more than {self._connections_max} commands at once", hint="try again"
            )

    async def _read(self, reader: asyncio.StreamReader) -> dict[str, object]:
        try:
            async with asyncio.timeout(self._read_timeout_s):
                line = await reader.readuntil(b"\n")
        except TimeoutError:
            raise FrameError(f"no whole line within {self._read_timeout_s:g} s") from None
        except asyncio.LimitOverrunError:
            raise FrameError(f"a line is at most {self._frame_max_bytes} bytes") from None
        except asyncio.IncompleteReadError:
            raise FrameError("the connection ended within a line") from None
        return _json_object(line)


def peer_allowed(uid: int, own_uid: int) -> bool:
    """Whether a user may give commands: root, and the user that the daemon runs as."""
    return uid in {0, own_uid}


def ask(path: Path, request: Request, timeout_s: float = 10.0) -> dict[str, Any]:
    """Asks the daemon whose control socket is at `path`; the answer's fields, without `ok`.

    Raises UnavailableError when no daemon listens or none answers within `timeout_s`, and the
    daemon's own error (same code, message and hint) when it refuses.
    """
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        _connect(connection, path)
        try:
            # A server that refuses early may close before it has read all; its answer counts.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(_encode(request))
            answer = _json_object(_read_line(connection, deadline))
        except (TimeoutError, OSError, FrameError) as error:
            late = isinstance(error, TimeoutError)
            what = f"did not answer within {timeout_s:g} s" if late else "gave no answer"
            raise UnavailableError(
                f"the daemon at {path} {what}",
                hint="what was asked may have been done: look with 'cowboy status'",
            ) from error
    if answer.pop("ok", False) is True:
        return answer
    raise RemoteError(answer.get("error"))


def _connect(connection: socket.socket, path: Path) -> None:
    try:
        connection.connect(os.fspath(path))
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise UnavailableError(
            f"no daemon listens at {path}",
            hint="start 'cowboy run AGENT', or check COWBOY_RUNTIME_DIR",
        ) from error
    except PermissionError as error:
        raise UnavailableError(
            f"no permission to use {path}", hint="run this as root or as the daemon's user"
        ) from error
    except OSError as error:
        raise UnavailableError(f"cannot connect to {path}: {error}") from error


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        chunk = connection.recv(65_536)
        if not chunk or len(data) > FRAME_MAX_BYTES:
            raise FrameError("no whole line")
        data += chunk
    return bytes(data)


def _json_object(line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise FrameError("a line must be JSON") from None
    if not isinstance(value, dict):
        raise FrameError("a line must be a JSON object")
    return value


def _refusal(error: CorralError) -> bytes:
    fields = {**error.as_dict(), "exit_code": 70 if error.code == "internal" else error.exit_code}
    return _encode({"ok": False, "error": fields})


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(dict(value), separators=(",", ":")).encode() + b"\n"


def _listen(path: Path, mode: int) -> tuple[socket.socket, int]:
    with suppress(OSError):  # what is wrong is told by listening
        path.parent.mkdir(mode=0o700)  # the runner may come later, or live elsewhere
    return sockets.listen(path, "runtime_dir", mode=mode)
