"""Structured logs to standard error: JSON under systemd, readable on a terminal.

An event is a short constant text; what it is about follows as keys (`turn_id`, `source`). Logs
carry ids, never content: keys that could hold any are withheld here, as the last line of defence.
"""

import contextlib
import functools
import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from json import JSONEncoder
from pathlib import Path
from typing import Any, Final

from corral.core.errors import CorralError


@contextmanager
def _without_rich() -> Iterator[None]:
    """structlog imports rich where it is installed: a fifth of a service's start, never used."""
    hidden = "rich" not in sys.modules
    if hidden:
        sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules["rich"]


with _without_rich():
    import structlog
    from structlog.typing import FilteringBoundLogger, Processor

WITHHELD: Final = "[withheld]"
# The last word of a key decides for secrets (redis_password), the whole key for content, because
# reply_bytes and prompt_bytes are sizes.
CONTENT_KEYS: Final = frozenset({"content", "body", "reply", "prompt"})
SECRET_WORDS: Final = frozenset({"password", "secret", "token"})
_JSON: Final = JSONEncoder(ensure_ascii=False, default=repr)
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
FRAMES_MAX: Final = 8
SYSTEM_LOG = "/dev/log"
SYSTEM_LOG_PRIORITY: Final = 4 << 3 | 6  # auth, info: RFC 3164
_NAME: Final = "_logger_name"  # "logger" is an argument of structlog's own
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(
    service: str, *, json: bool | None = None, level: str = "info", system_log: str = ""
) -> None:
    """Set up logging for the process; may be called again.

    `json=None` decides by the surroundings: JSON when the journal reads us or standard error is
    not a terminal. `level` is one of debug, info, warning, error (else `ValueError`). With
    `system_log`, a program's name, each line goes to the system's log as well, for what must
    outlive the terminal that it was typed at.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    as_json = ("JOURNAL_STREAM" in os.environ or not _on_terminal()) if json is None else json
    shared = _shared_processors(service)
    final = _json_renderers() if as_json else _terminal_renderers()
    beside = [_copied(system_log)] if system_log and "JOURNAL_STREAM" not in os.environ else []
    _configure_structlog([*shared, *beside, *final], level)
    _configure_libraries(shared, final)


def get(name: str) -> FilteringBoundLogger:
    """The logger of one module; `name` appears as `logger`."""
    logger: FilteringBoundLogger = structlog.get_logger(**{_NAME: name})
    return logger


def fault(error: BaseException) -> dict[str, str]:
    """What may be told of an unforeseen exception: its kind, and where it was (innermost first).

    Its text may quote content: a database's, for one, has the row that it refused.
    """
    places = [f"{Path(file).name}:{line} {name}" for file, line, name in _frames(error)]
    return {"kind": type(error).__name__, "at": " < ".join(places[: -FRAMES_MAX - 1 : -1])}


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    """File, line and function, the innermost last; no source is read, which would block a loop."""
    walked = traceback.walk_tb(error.__traceback__)
    return [(one.f_code.co_filename, line, one.f_code.co_qualname) for one, line in walked]


def withhold(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Processor: replace what may be content or a secret, at any depth."""
    return _safe(event)


def _safe(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: WITHHELD if _withheld(key) else value if type(value) in _PLAIN else _cleaned(value)
        for key, value in fields.items()
    }


@functools.lru_cache(maxsize=1024)  # the keys of a program's lines are few, and said all the time
def _withheld(key: object) -> bool:
    name = str(key).lower()
    return name in CONTENT_KEYS or name.replace("-", "_").rpartition("_")[2] in SECRET_WORDS


def _cleaned(value: object) -> object:
    if isinstance(value, Mapping):
        return _safe(value)
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    return value


def _shared_processors(service: str) -> list[Processor]:
    def origin(
        _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event["service"] = service
        if _NAME in event:
            event["logger"] = event.pop(_NAME)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        origin,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _traced,
        withhold,
    ]


def _copied(program: str) -> Processor:
    """Processor: the line as JSON for the system's log, where there is one. Blocks for a moment."""
    import socket

    def copied(
        _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        head = f"<{SYSTEM_LOG_PRIORITY}>{program}[{os.getpid()}]"
        line = f"{head}: {_JSON.encode(event)}".encode(errors="replace")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(line, SYSTEM_LOG)
        return event

    return copied


def _traced(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Processor: an exception as text, the last line of defence for what it may quote."""
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["exception"] = "\n".join(_lines(error))
    return event


def _lines(error: BaseException) -> list[str]:
    """Frames of the whole chain, without local variables; the text of our own errors only."""
    lines = []
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        lines = [*_lines(before), "", "then:", ""]
    lines += [f'File "{file}", line {line}, in {name}' for file, line, name in _frames(error)]
    told = str(error) if isinstance(error, CorralError | OSError) else WITHHELD
    lines.append(f"{type(error).__qualname__}: {told}")
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        lines += [f"  {line}" for line in _lines(inner)]
    return lines


class _Stream(io.StringIO):
    """Standard error as it is at each line. What cannot be written is dropped: a full disk under
    the log, or a closed standard error, must not end the service that tells of it.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()
        return len(text)


_STREAM: Final = _Stream()


def _on_terminal() -> bool:
    with contextlib.suppress(ValueError, AttributeError):
        return sys.stderr.isatty()
    return False


def _json_renderers() -> list[Processor]:
    return [_as_json]


def _as_json(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    return _JSON.encode(event)


def _terminal_renderers() -> list[Processor]:
    return [structlog.dev.ConsoleRenderer(colors=_on_terminal(), timestamp_key="time")]


def _configure_structlog(processors: list[Processor], level: str) -> None:
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: structlog.WriteLogger(_STREAM),
        cache_logger_on_first_use=False,
    )


def _configure_libraries(shared: list[Processor], final: list[Processor]) -> None:
    """What libraries log goes the same way. From warning on: below, some log their arguments."""
    handler = logging.StreamHandler(_STREAM)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


# Until a process configures its logs: nothing on standard output, and only what went wrong.
_configure_structlog([*_shared_processors(""), *_terminal_renderers()], "warning")
