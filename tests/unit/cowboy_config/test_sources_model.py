"""The model of `sources.json`: what it takes, what it refuses, and that it names the key."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from corral.core.errors import ConfigError
from corral.cowboy.config import (
    AckPolicy,
    EchoRunner,
    ExecRunner,
    OnInterrupt,
    SourceConfig,
    load_sources,
    parse_sources,
)
from corral.cowboy.strictjson import RefusedError
from tests.unit.cowboy_config import samples
from tests.unit.cowboy_config.samples import BAD, GOOD, HOSTILE_NAMES, Bad, Document

LESS = {"content_max_bytes": 100}


def refusal(file: Document) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_sources(json.dumps(file))
    return caught.value


def test_every_value_arrives_typed() -> None:
    file = parse_sources(json.dumps(samples.document()))
    source = file.sources["a2a"]
    assert (file.version, file.agent, list(file.sources)) == (1, "scout", ["a2a"])
    assert (source.agent, source.source) == ("scout", "a2a")
    assert (source.ack, source.on_interrupt) == (AckPolicy.DISPATCH, OnInterrupt.NOTIFY)
    assert isinstance(source.runner, ExecRunner)
    assert source.runner.command == ("/bin/cat",)
    assert (source.runner.turn_timeout_s, source.runner.reply_max_bytes) == (600, 65_536)


def test_defaults_are_those_of_the_reference() -> None:
    source = parse_sources(json.dumps(samples.document())).sources["a2a"]
    assert source.model_dump(exclude=set(samples.source())) == {
        "block_ms": 2000,
        "backlog_max": 1000,
        "channel_backlog_max": 100,
        "turns_concurrent_max": 4,
        "dispatch_attempts_max": 3,
        "ack_attempts_max": 5,
        "outbox_attempts_max": 10,
        "content_max_bytes": 1_048_576,
        "metadata_max_bytes": 1024,
        "trim_interval_ms": 1000,
        "retention_h": 24,
    }


def test_names_beside_the_streams_are_derived() -> None:
    source = parse_sources(json.dumps(samples.document())).sources["a2a"]
    assert source.replies_key == "scout:a2a:replies"
    assert source.ledger_key == "scout:a2a:ledger"
    assert source.fence_key == "scout:a2a:fence"
    assert source.sent_key == "scout:a2a:sent"
    assert source.dead_stream == "scout:a2a:inbox:dead"


def test_echo_needs_nothing_but_its_kind() -> None:
    file = samples.edited(samples.in_source(runner={"kind": "echo"}))
    assert parse_sources(json.dumps(file)).sources["a2a"].runner == EchoRunner(kind="echo")


def test_a_live_session_takes_no_more_than_a_wake_carries() -> None:
    runner = {"kind": "tamq", "repo": "shop", "socket": "/run/tamq.sock"}
    for given, limit in (({}, 7168), ({"content_max_bytes": 7168}, 7168), (LESS, 100)):
        file = samples.edited(samples.in_source(runner=runner, **given))
        assert parse_sources(json.dumps(file)).sources["a2a"].content_limit_bytes == limit
    more = samples.edited(samples.in_source(runner=runner, content_max_bytes=7169))
    assert refusal(more).message == (
        "sources.a2a.content_max_bytes: 7169 is more than a wake carries, 7168"
    )
    for key, bad in (("socket", "tamq.sock"), ("socket", "/" + "s" * 107), ("repo", "")):
        file = samples.edited(samples.in_source(runner={**runner, key: bad}))
        assert refusal(file).message.startswith(f"sources.a2a.runner.{key}: ")


def test_nothing_can_be_assigned() -> None:
    source = parse_sources(json.dumps(samples.document())).sources["a2a"]
    with pytest.raises(ValidationError, match="frozen"):
        source.read_count = 11  # type: ignore[misc]


@pytest.mark.parametrize("edit", GOOD.values(), ids=GOOD.keys())
def test_good_files_are_taken(edit: samples.Edit) -> None:
    parse_sources(json.dumps(samples.edited(edit)))


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.id)
def test_bad_files_are_refused_with_the_path_of_the_key(bad: Bad) -> None:
    error = refusal(samples.edited(bad.edit))
    assert error.message.startswith(f"{bad.path}: ")
    assert bad.says in error.message
    assert error.exit_code == 78


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_refused_with_the_path_of_the_key(name: str) -> None:
    shown = name if name.isascii() and name and " " not in name else json.dumps(name)
    assert refusal(samples.edited(samples.named(name))).message.startswith(f"sources.{shown}: ")
    assert refusal(samples.edited(samples.for_agent(name))).message.startswith("agent: ")


def test_a_stream_in_two_sources_is_refused() -> None:
    sources = {"a2a": samples.source(), "b": samples.source(name="b", stream="scout:a2a:inbox")}
    error = refusal(samples.document(sources=sources))
    assert error.message == "sources.b.stream: the same stream as sources.a2a.stream"


def bounds() -> list[tuple[str, int, int]]:
    """(key, least, most) of every number of a source."""
    found = []
    for key, schema in SourceConfig.model_json_schema()["properties"].items():
        if schema.get("type") == "integer":
            found.append((key, schema["minimum"], schema["maximum"]))
    return found


@pytest.mark.parametrize(("key", "least", "most"), bounds())
def test_each_limit_is_taken_at_its_bounds_and_refused_one_past(
    key: str, least: int, most: int
) -> None:
    room: Document = {"backlog_max": 100_000, "channel_backlog_max": 1, "read_count": 1}
    for value in (least, most):
        file = samples.edited(samples.in_source(**{**room, key: value}))
        assert getattr(parse_sources(json.dumps(file)).sources["a2a"], key) == value
    for value in (least - 1, most + 1):
        error = refusal(samples.edited(samples.in_source(**{**room, key: value})))
        assert error.message.startswith(f"sources.a2a.{key}: must be ")


@pytest.mark.parametrize(("key", "unit"), [(key, key.rsplit("_", 1)[1]) for key, _, _ in bounds()])
def test_each_number_has_its_unit_in_its_name(key: str, unit: str) -> None:
    assert unit in {"ms", "s", "h", "bytes", "count", "max"}


def test_all_faults_are_found_at_once() -> None:
    file = samples.edited(samples.in_source(read_count="x", ack="y", other=1))
    with pytest.raises(RefusedError) as caught:
        parse_sources(json.dumps(file))
    assert [problem.path for problem in caught.value.problems] == [
        "sources.a2a.read_count",
        "sources.a2a.ack",
        "sources.a2a.other",
    ]
    assert caught.value.message.endswith("(and 2 more)")


def test_values_are_not_repeated_in_errors() -> None:
    for edit in (
        samples.in_runner(environment={"TOKEN": 12345678}),
        samples.in_runner(environment={"TOKEN": "12345678\0"}),
        samples.in_runner(command=["/bin/x", "12345678\0"]),
        samples.in_source(ack="12345678"),
    ):
        assert "12345678" not in str(refusal(samples.edited(edit)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON: Expecting value, line 1 column 1"),
        ('{"version": 1,}', "not JSON"),
        ("[]", "must be a JSON object"),
        ("1", "must be a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"version": NaN}', "NaN"),
        ('{"version": ' + "9" * 5000 + "}", "not JSON"),
        ('{"version": 1, "version": 1}', "version: is there twice"),
        ('{"sources": {"a": {"ack": 1, "ack": 1}}}', "sources.a.ack: is there twice"),
        ('{"sources": {"a": {}, "a": {}}}', "sources.a: is there twice"),
        ('{"x": [{"k": 1, "k": 2}]}', "x.0.k: is there twice"),
        ('{"agent": "\\ud800"}', "agent: must not contain a lone surrogate"),
        ('{"x": ["", {"\\udc00": 1}]}', 'x.1."\\udc00": must not contain a lone surrogate'),
        ('{"\\ud83d\\ude00": 1, "version": 1, "version": 1}', "version: is there twice"),
    ],
)
def test_text_that_is_no_strict_json_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sources(text)
    assert says in caught.value.message


class TestFiles:
    def write(self, folder: Path, data: bytes) -> Path:
        path = folder / "sources.json"
        path.write_bytes(data)
        return path

    def test_a_good_file_is_loaded(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, json.dumps(samples.document()).encode())
        assert load_sources(path).agent == "scout"
        assert load_sources(path, agent="scout").agent == "scout"

    def test_the_key_comes_first_and_the_file_is_in_the_hint(self, tmp_path: Path) -> None:
        file = samples.edited(samples.in_source(read_count=0))
        path = self.write(tmp_path, json.dumps(file).encode())
        with pytest.raises(ConfigError) as caught:
            load_sources(path)
        assert caught.value.message.startswith("sources.a2a.read_count: ")
        assert str(path) in caught.value.hint

    @pytest.mark.parametrize(
        ("data", "says"),
        [(b"", "not JSON"), (b"\xff\xfe", "not UTF-8 at byte 0"), (b"[]", "JSON object")],
    )
    def test_a_fault_of_the_whole_file_begins_with_its_path(
        self, tmp_path: Path, data: bytes, says: str
    ) -> None:
        path = self.write(tmp_path, data)
        with pytest.raises(ConfigError) as caught:
            load_sources(path)
        assert caught.value.message.startswith(f"{path}: ")
        assert says in caught.value.message

    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
            load_sources(tmp_path / "sources.json")

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
            load_sources(tmp_path)

    def test_the_file_of_another_agent_is_refused(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, json.dumps(samples.document()).encode())
        with pytest.raises(ConfigError, match=r"^agent: the file is for 'scout', not for 'other'"):
            load_sources(path, agent="other")

    def test_the_size_is_limited(self, tmp_path: Path) -> None:
        text = json.dumps(samples.document()).encode()
        path = self.write(tmp_path, text.ljust(1024 * 1024))
        assert load_sources(path).agent == "scout"
        self.write(tmp_path, text.ljust(1024 * 1024 + 1))
        with pytest.raises(ConfigError, match=r"longer than 1048576 bytes"):
            load_sources(path)
