"""Structured logs to standard error: JSON under systemd, readable on a terminal.

An event is a short constant text; what it is about follows as keys (`turn_id`, `source`). Logs
carry ids, never content: keys that could hold any are withheld here, as the last line of defence.
"""

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, Final


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
_NAME: Final = "_logger_name"  # "logger" is an argument of structlog's own
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(service: str, *, json: bool | None = None, level: str = "info") -> None:
    """Set up logging for the process; may be called again.

    `json=None` decides by the surroundings: JSON when the journal reads us or standard error is
    not a terminal. `level` is one of debug, info, warning, error (else `ValueError`).
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    as_json = ("JOURNAL_STREAM" in os.environ or not _on_terminal()) if json is None else json
    shared = _shared_processors(service)
    final = _json_renderers() if as_json else _terminal_renderers()
    _configure_structlog([*shared, *final], level)
    _configure_libraries(shared, final)


def get(name: str) -> FilteringBoundLogger:
    """The logger of one module; `name` appears as `logger`."""
    logger: FilteringBoundLogger = structlog.get_logger(**{_NAME: name})
    return logger


def withhold(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Processor: replace what may be content or a secret, at any depth."""
    return {key: _cleaned(key, value) for key, value in event.items()}


def _cleaned(key: object, value: object) -> object:
    name = str(key).lower()
    if name in CONTENT_KEYS or name.replace("-", "_").rpartition("_")[2] in SECRET_WORDS:
        return WITHHELD
    if isinstance(value, Mapping):
        return {inner: _cleaned(inner, item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned("", item) for item in value]
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
        withhold,
    ]


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
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _terminal_renderers() -> list[Processor]:
    # The default traceback formatter prints local variables, and with them content.
    return [
        structlog.dev.ConsoleRenderer(
            colors=_on_terminal(),
            timestamp_key="time",
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]


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
