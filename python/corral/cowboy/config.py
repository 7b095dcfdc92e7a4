"""`sources.json`: the sources of one agent, their limits and runners, and every name derived.

The file is generated, and read-only for cowboy. It is read strictly: an unknown or repeated key, a
value of another type or out of range is refused, and the error begins with the key's path
(`sources.a2a.read_count: …`). Models are immutable. Names of Redis keys come from here only.
"""

import json
import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from corral.core import sockets
from corral.cowboy.strictjson import KeyPathError, Problem, RefusedError, parse, read_text

FILE_NAME = "sources.json"
FILE_MAX_BYTES = 1024 * 1024
VERSION = 1
GROUP = "cowboy"
OUTBOX_GROUP = "source"  # of the one who reads an outbox; no setting changes it
SOURCES_MAX = 64
# A prompt or a reply travels base64-encoded in one runner frame of at most 16 MiB.
PAYLOAD_CEILING_BYTES = 8 * 1024 * 1024
ENVIRONMENT_MAX = 128
ARGUMENTS_MAX = 256
ARGUMENT_MAX_CHARS = 32_000  # at most 128,000 bytes: Linux takes 128 KiB per string
# TAMQ takes 8 KiB; what says which turn it is and how to answer needs the rest.
WAKE_CONTENT_MAX_BYTES = 7 * 1024
# A session's answer travels base64-encoded in one control frame of at most 1 MiB.
SESSION_REPLY_MAX_BYTES = 512 * 1024

_NAME_PART = r"[a-z][a-z0-9-]{0,30}"
NAME_PATTERN = f"^{_NAME_PART}$"
# What the runner sets itself cannot be configured.
_ENVIRONMENT_PATTERN = r"^(?!CORRAL_|TRACEPARENT$)[A-Za-z_][A-Za-z0-9_]{0,127}$"
_PROGRAM_PATTERN = r"^(/|[^/]+$)"
_NO_NUL_PATTERN = r"^[^\u0000]*$"


def is_name(text: str) -> bool:
    """Whether `text` may name an agent or a source; ACL patterns, users and paths carry it."""
    return re.fullmatch(_NAME_PART, text) is not None


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError("a name is 1 to 31 of a-z, 0-9 and '-', and begins with a letter")
    return value


def _version(value: int) -> int:
    if value != VERSION:
        raise ValueError(f"the file has version {value}, this cowboy reads version {VERSION}")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain a NUL character")
    return value


def _environment_name(value: str) -> str:
    if re.fullmatch(_ENVIRONMENT_PATTERN, value) is None or value.endswith("\n"):
        raise ValueError("not a name that a run's environment can have (the runner sets CORRAL_*)")
    return value


def _socket_path(value: str) -> str:
    if not value.startswith("/") or len(os.fsencode(value)) > sockets.PATH_MAX_BYTES:
        raise ValueError(f"must be an absolute path of at most {sockets.PATH_MAX_BYTES} bytes")
    return value


def _command(value: tuple[str, ...]) -> tuple[str, ...]:
    if re.match(_PROGRAM_PATTERN, value[0]) is None:
        raise KeyPathError(("0",), "must be an absolute path, or a name to look up in PATH")
    return value


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": NAME_PATTERN})]
Text = Annotated[
    str,
    Field(max_length=ARGUMENT_MAX_CHARS, json_schema_extra={"pattern": _NO_NUL_PATTERN}),
    AfterValidator(_no_nul),
]
EnvironmentName = Annotated[str, AfterValidator(_environment_name)]


class AckPolicy(StrEnum):
    """When an inbox entry is acknowledged: at the hand-over, or with its answer."""

    DISPATCH = "dispatch"
    REPLY = "reply"


class OnInterrupt(StrEnum):
    """What becomes of a turn whose run is over with an unknown outcome."""

    NOTIFY = "notify"
    RESUME = "resume"
    HOLD = "hold"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ExecRunner(_Model):
    """Runs a program per turn: prompt on standard input, reply on standard output, no shell."""

    kind: Literal["exec"]
    command: Annotated[
        tuple[Text, ...],
        Field(min_length=1, max_length=ARGUMENTS_MAX, description="Program and arguments."),
        AfterValidator(_command),
    ]
    output: Literal["text", "json"] = Field(
        default="text", description="Whether the output is the reply, or a JSON envelope of it."
    )
    environment: dict[EnvironmentName, Text] = Field(
        default_factory=dict,
        max_length=ENVIRONMENT_MAX,
        description="Added to the environment of a run. Not for secrets: the file is readable.",
    )
    turn_timeout_s: int = Field(
        default=600, ge=1, le=604_800, description="A run that takes longer is killed."
    )
    reply_max_bytes: int = Field(
        default=65_536, ge=1, le=PAYLOAD_CEILING_BYTES, description="Longest output of a run."
    )


class EchoRunner(_Model):
    """Answers with the prompt; for trying things out."""

    kind: Literal["echo"]
    reply_max_bytes: int = Field(
        default=65_536, ge=1, le=PAYLOAD_CEILING_BYTES, description="Longest reply."
    )


class TamqRunner(_Model):
    """Wakes a live session through TAMQ; what that says with `cowboy reply` is the answer."""

    kind: Literal["tamq"]
    repo: Text = Field(
        min_length=1, description="The repository of the session, as the gita registry names it."
    )
    socket: Annotated[Text, AfterValidator(_socket_path)] = Field(
        description="Where the TAMQ of the runner's user listens.",
        json_schema_extra={"pattern": r"^/[^\u0000]*$"},
    )
    turn_timeout_s: int = Field(
        default=3600, ge=1, le=604_800, description="How long the session has for its answer."
    )
    reply_max_bytes: int = Field(
        default=65_536, ge=1, le=SESSION_REPLY_MAX_BYTES, description="Longest answer."
    )


Runner = ExecRunner | TamqRunner | EchoRunner


class AgentLimits(_Model):
    """Limits over all sources of the agent together."""

    turns_concurrent_max: int = Field(
        default=16, ge=1, le=1024, description="Runs at one time, over all sources."
    )


class SourceConfig(_Model):
    """One source: its two streams, how turns run, and limits with their unit in the name."""

    stream: str = Field(
        description="The inbox: `<agent>:<source>:inbox`.",
        json_schema_extra={"pattern": f"^{_NAME_PART}:{_NAME_PART}:inbox$"},
    )
    outbox: str = Field(
        description="Where answers go: `<agent>:<source>:outbox`.",
        json_schema_extra={"pattern": f"^{_NAME_PART}:{_NAME_PART}:outbox$"},
    )
    group: Literal["cowboy"] = Field(description="Consumer group of the inbox.")
    consumer: str = Field(
        description="Consumer in that group: `harness-<source>`.",
        json_schema_extra={"pattern": f"^harness-{_NAME_PART}$"},
    )
    reclaim_idle_ms: int = Field(
        ge=100, le=86_400_000, description="An entry pending for longer is claimed again."
    )
    read_count: int = Field(ge=1, le=1000, description="Most entries taken by one read.")
    ack: AckPolicy = Field(description="Acknowledge at the hand-over, or with the answer.")
    on_interrupt: OnInterrupt = Field(
        description="For a turn whose run is over with unknown outcome: tell the sender, "
        "run it again as a resumed turn, or hold it for the operator."
    )
    runner: Annotated[Runner, Field(discriminator="kind")] = Field(
        description="What answers the entries."
    )
    block_ms: int = Field(
        default=2000, ge=10, le=30_000, description="How long an idle read waits for an entry."
    )
    backlog_max: int = Field(
        default=1000, ge=1, le=100_000, description="Open turns; at this many nothing is read."
    )
    channel_backlog_max: int = Field(
        default=100, ge=1, le=100_000, description="Open turns of one channel among them."
    )
    turns_concurrent_max: int = Field(
        default=4, ge=1, le=256, description="Runs at one time; one per channel."
    )
    dispatch_attempts_max: int = Field(
        default=3, ge=1, le=100, description="Starts of one turn before it is given up."
    )
    ack_attempts_max: int = Field(
        default=5, ge=1, le=1000, description="Failed acknowledgements before one is forgotten."
    )
    outbox_attempts_max: int = Field(
        default=10, ge=1, le=1000, description="Refusals by the outbox before a reply is dead."
    )
    content_max_bytes: int = Field(
        default=1_048_576,
        ge=1,
        le=PAYLOAD_CEILING_BYTES,
        description=f"Longest `content`; with `tamq` {WAKE_CONTENT_MAX_BYTES} unless it is less.",
    )
    metadata_max_bytes: int = Field(
        default=1024, ge=64, le=65_536, description="Longest value of any other field."
    )
    trim_interval_ms: int = Field(
        default=1000, ge=10, le=3_600_000, description="Between trims of the inbox."
    )
    retention_h: int = Field(
        default=24, ge=24, le=8760, description="How long the row of a finished turn is kept."
    )

    @property
    def agent(self) -> str:
        return self.stream.split(":")[0]

    @property
    def source(self) -> str:
        return self.stream.split(":")[1]

    @property
    def content_limit_bytes(self) -> int:
        """Longest content that is taken."""
        wakes = isinstance(self.runner, TamqRunner)
        return min(self.content_max_bytes, WAKE_CONTENT_MAX_BYTES if wakes else sys.maxsize)

    @property
    def replies_key(self) -> str:
        """Hash `turn id:slot -> outbox id` of replies that are not recorded yet."""
        return self._beside("replies")

    @property
    def ledger_key(self) -> str:
        """Identity and commit sequence of the ledger that serves this source."""
        return self._beside("ledger")

    @property
    def fence_key(self) -> str:
        """Counter of connections; bytes of an older connection are refused."""
        return self._beside("fence")

    @property
    def sent_key(self) -> str:
        """Hash of the producer's markers."""
        return self._beside("sent")

    @property
    def dead_stream(self) -> str:
        """Stream of the entries that were given up."""
        return f"{self.stream}:dead"

    def _beside(self, what: str) -> str:
        return f"{self.stream.removesuffix(':inbox')}:{what}"

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        if self.content_limit_bytes < self.content_max_bytes and (
            "content_max_bytes" in self.model_fields_set
        ):
            more = f"{self.content_max_bytes} is more than a wake carries"
            raise KeyPathError(("content_max_bytes",), f"{more}, {self.content_limit_bytes}")
        for lower, upper in (
            ("read_count", "backlog_max"),
            ("channel_backlog_max", "backlog_max"),
        ):
            low, high = getattr(self, lower), getattr(self, upper)
            if low > high:
                default = "" if lower in self.model_fields_set else " (the default)"
                raise KeyPathError((lower,), f"{low}{default} is more than {upper}, {high}")
        return self


class SourcesFile(_Model):
    """The whole file. `sources` maps the source's name to its settings."""

    version: Annotated[
        int, AfterValidator(_version), Field(json_schema_extra={"const": VERSION})
    ] = Field(description="Version of this format.")
    agent: Name = Field(description="The agent that the file belongs to.")
    limits: AgentLimits = Field(
        default_factory=AgentLimits, description="Limits over all sources together."
    )
    sources: dict[Name, SourceConfig] = Field(
        min_length=1, max_length=SOURCES_MAX, description="Settings of each source, by its name."
    )

    @model_validator(mode="after")
    def _names_are_derived(self) -> Self:
        owners: dict[str, str] = {}
        for name, source in self.sources.items():
            for key, stream in (("stream", source.stream), ("outbox", source.outbox)):
                if stream in owners:
                    message = f"the same stream as {owners[stream]}"
                    raise KeyPathError(("sources", name, key), message)
                owners[stream] = f"sources.{name}.{key}"
        for name, source in self.sources.items():
            for key, value, derived in (
                ("stream", source.stream, f"{self.agent}:{name}:inbox"),
                ("outbox", source.outbox, f"{self.agent}:{name}:outbox"),
                ("consumer", source.consumer, f"harness-{name}"),
            ):
                if value != derived:
                    raise KeyPathError(("sources", name, key), f"must be {derived!r}")
        return self


def load_sources(path: Path, *, agent: str | None = None) -> SourcesFile:
    """Reads and checks a `sources.json`; with `agent`, it must be the file of that agent.

    Raises RefusedError (a ConfigError) whose message begins with the path of the key at fault, or
    with the file's path when it cannot be read at all.
    """
    text = read_text(path, max_bytes=FILE_MAX_BYTES)
    hint = f"in {path}; 'cowboy check-config {path}' lists every fault"
    try:
        sources = parse_sources(text)
    except RefusedError as error:
        problems = [Problem(fault.path or str(path), fault.message) for fault in error.problems]
        raise RefusedError(problems, hint=hint) from None
    if agent is not None and sources.agent != agent:
        message = f"the file is for {sources.agent!r}, not for {agent!r}"
        raise RefusedError([Problem("agent", message)], hint=hint)
    return sources


def parse_sources(text: str) -> SourcesFile:
    """Checks the text of a `sources.json`; errors as `load_sources`, without the file's name."""
    return parse(SourcesFile, text, unions=(("sources", "*", "runner"),))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file, as published in docs/reference/sources.schema.json.

    It cannot say what relates two keys: derived stream and consumer names, limits below limits.
    """
    schema = SourcesFile.model_json_schema()
    _close_keys(schema["properties"]["sources"], NAME_PATTERN)
    runner = schema["$defs"]["ExecRunner"]["properties"]
    _close_keys(runner["environment"], _ENVIRONMENT_PATTERN)
    runner["command"]["prefixItems"] = [{"pattern": _PROGRAM_PATTERN}]
    untitled: dict[str, Any] = _without_titles(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sources.json of cowboy",
        **untitled,
    }


def schema_text() -> str:
    """The published text of `json_schema`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _close_keys(table: dict[str, Any], pattern: str) -> None:
    """Says of a table's keys that they match `pattern`; versions of pydantic differ in how."""
    for values in table.pop("patternProperties", {}).values():
        table["additionalProperties"] = values
    table["propertyNames"] = {"pattern": pattern}


def _without_titles(part: Any) -> Any:
    """Drops the titles that pydantic makes of the keys' names: they say nothing."""
    if isinstance(part, dict):
        return {
            key: _without_titles(value)
            for key, value in part.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_without_titles(item) for item in part] if isinstance(part, list) else part
