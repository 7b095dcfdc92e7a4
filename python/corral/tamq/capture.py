"""The capture: requests with their answers, and attempts, as lines of JSON in files that rotate.

    {"at": "…", "kind": "exchange", "uid": 1000, "pid": 42, "request": {…}, "answer": {…}}
    {"at": "…", "kind": "attempt", "message_id": "…", "attempt": 1, "outcome": "injected", …}

Bodies and metadata are left out unless that was asked for. `tamq replay` reads the files. What the
disk does not take is dropped and counted: nobody waits for the capture.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from corral.core import logs
from corral.core.clock import wall_ms
from corral.core.errors import CorralError
from corral.tamq import rows, wire
from corral.tamq.errors import TamqError
from corral.tamq.settings import TamqSettings
from corral.tamq.store import Peer

FILE_NAME: Final = "capture.jsonl"
QUEUE_MAX_LINES: Final = 10_000
_CONTENT: Final = ("body", "metadata")

Handle = Callable[[dict[str, Any], Peer], Awaitable[Mapping[str, object]]]

_log = logs.get("tamq.capture")


class Capture:
    """Writes lines in a thread. Without a folder it does nothing."""

    def __init__(
        self, folder: Path | None, *, bodies: bool, file_max_bytes: int, files: int
    ) -> None:
        self.enabled = folder is not None
        self.dropped = 0
        self.written = 0  # lines
        self._folder = folder or Path()
        self._bodies = bodies
        self._file_max_bytes = file_max_bytes
        self._files = files
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_MAX_LINES)
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def from_settings(cls, settings: TamqSettings) -> Self:
        return cls(
            settings.capture_dir,
            bodies=settings.capture_bodies,
            file_max_bytes=settings.capture_file_max_bytes,
            files=settings.capture_files,
        )

    async def __aenter__(self) -> Self:
        if self.enabled:
            self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            await self._lines.put(None)
            await self._task
            self._task = None

    def note(self, fields: Mapping[str, object]) -> None:
        """One line more, with the time."""
        if not self.enabled:
            return
        line = wire.compact({"at": rows.moment(wall_ms()), **fields}).encode() + b"\n"
        try:
            self._lines.put_nowait(line)
        except asyncio.QueueFull:
            self.dropped += 1

    async def around(
        self, handle: Handle, fields: dict[str, Any], peer: Peer
    ) -> Mapping[str, object]:
        """Handle a request and note it with its answer, or with the error that refused it."""
        try:
            answer = await handle(fields, peer)
        except CorralError as error:
            wired = error.wire() if isinstance(error, TamqError) else error.as_dict()
            self._exchange(fields, peer, {"ok": False, "error": wired})
            raise
        self._exchange(fields, peer, {"ok": True, **answer})
        return answer

    def _exchange(self, request: dict[str, Any], peer: Peer, answer: Mapping[str, object]) -> None:
        self.note({
            "kind": "exchange",
            "uid": peer.uid,
            "pid": peer.pid,
            "request": self._shown(request),
            "answer": self._shown(answer),
        })  # fmt: skip

    def _shown(self, fields: Mapping[str, object]) -> dict[str, object]:
        if self._bodies:
            return dict(fields)
        shown = {key: value for key, value in fields.items() if key not in _CONTENT}
        listed = shown.get("messages")
        if isinstance(listed, list):
            shown["messages"] = [self._shown(one) for one in listed]
        return shown

    async def _write(self) -> None:
        last = False
        while not last:
            lines = [await self._lines.get()]
            while not self._lines.empty():
                lines.append(self._lines.get_nowait())
            last = None in lines
            taken = [line for line in lines if line is not None]
            try:
                await asyncio.to_thread(self._append, b"".join(taken))
                self.written += len(taken)
            except OSError as error:
                self.dropped += len(taken)
                _log.warning("capture failed", error=error.strerror, dropped=self.dropped)

    def _append(self, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / FILE_NAME
        if path.exists() and path.stat().st_size + len(data) > self._file_max_bytes:
            self._rotate(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def _rotate(self, path: Path) -> None:
        for number in range(self._files - 1, 0, -1):
            older = path.with_name(f"{FILE_NAME}.{number}")
            newer = path.with_name(f"{FILE_NAME}.{number - 1}") if number > 1 else path
            if newer.exists():
                newer.replace(older)
        if self._files == 1:
            path.unlink()
