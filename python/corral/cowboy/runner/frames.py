"""Frames: one JSON object on a line of bounded length, and typed access to its keys. Pure."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, TypeVar

from corral.core.errors import CorralError

_Member = TypeVar("_Member", bound=StrEnum)


class FrameError(CorralError):
    """A frame is too long, is not JSON, or does not have the fields of its kind."""

    code: ClassVar[str] = "runner_frame_invalid"


def dump(fields: Mapping[str, object], max_bytes: int) -> bytes:
    """The frame of ``fields``, newline included. Raises `FrameError` when it is too long."""
    line = json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
    if len(line) > max_bytes:
        raise FrameError(f"the frame has {len(line)} bytes, at most {max_bytes} are allowed")
    return line


def load(line: bytes, max_bytes: int) -> "Fields":
    """The object in one line. Raises `FrameError`."""
    if len(line) > max_bytes:
        raise FrameError(f"the frame has {len(line)} bytes, at most {max_bytes} are allowed")
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FrameError("the frame is not JSON") from error
    if not isinstance(value, dict):
        raise FrameError("the frame is not an object")
    return Fields(value)


def base64_text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


class Fields:
    """Typed access to a decoded object; every error names its key, never its value."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def text(self, key: str) -> str:
        value = self._fields.get(key)
        if not isinstance(value, str):
            raise FrameError(f"{key}: expected a string")
        return value

    def number(self, key: str) -> int:
        value = self._fields.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise FrameError(f"{key}: expected a number that is not negative")
        return value

    def flag(self, key: str) -> bool:
        value = self._fields.get(key)
        if not isinstance(value, bool):
            raise FrameError(f"{key}: expected true or false")
        return value

    def octets(self, key: str) -> bytes:
        try:
            return base64.b64decode(self.text(key), validate=True)
        except (binascii.Error, ValueError) as error:
            raise FrameError(f"{key}: expected base64") from error

    def octets_or_none(self, key: str) -> bytes | None:
        return None if self._fields.get(key) is None else self.octets(key)

    def inner(self, key: str) -> "Fields":
        value = self._fields.get(key)
        if not isinstance(value, dict):
            raise FrameError(f"{key}: expected an object")
        return Fields(value)

    def member(self, key: str, kind: type[_Member]) -> _Member:
        try:
            return kind(self.text(key))
        except ValueError as error:
            raise FrameError(f"{key}: not a value of this protocol") from error

    def raw(self, key: str) -> object:
        return self._fields.get(key)

    def pairs(self, key: str, max_pairs: int) -> list[tuple[object, object]]:
        value = self._fields.get(key)
        if not isinstance(value, list) or len(value) > max_pairs:
            raise FrameError(f"{key}: expected a list of at most {max_pairs} pairs")
        if any(not isinstance(pair, list) or len(pair) != 2 for pair in value):
            raise FrameError(f"{key}: expected pairs")
        return [(pair[0], pair[1]) for pair in value]


class FrameSplitter:
    """Feeds bytes in, gives whole lines without their newline.

    A line of more than ``max_bytes``, its newline included, raises `FrameError` before more of
    it is kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._check(end - start + 1)
            line = data[start:end]
            if self._parts:
                line = b"".join([*self._parts, line])
                self._parts.clear()
                self._held_bytes = 0
            start = end + 1
            yield line
        if start < len(data):
            self._check(len(data) - start + 1)
            self._parts.append(data[start:])
            self._held_bytes += len(data) - start

    def _check(self, more_bytes: int) -> None:
        if self._held_bytes + more_bytes > self._max_bytes:
            raise FrameError(f"a frame has more than {self._max_bytes} bytes")
