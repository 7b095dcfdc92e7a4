import json
import os
from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from corral.core import settings
from corral.core.errors import ConfigError
from corral.core.settings import ServiceSettings, load


class Sample(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="SAMPLE_")

    redis_url: str = "redis://default"
    redis_password: SecretStr = SecretStr("")
    redis_protocol: Literal[2, 3] = 3
    limits: dict[str, int] = Field(default_factory=dict)


class Required(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="SAMPLE_")

    agent: str


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith("SAMPLE_") or name == "CREDENTIALS_DIRECTORY":
            monkeypatch.delenv(name)


class Sources:
    """Sets one field in one of the five sources."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monkeypatch = monkeypatch
        self.overrides: dict[str, str] = {}

    def argument(self, field: str, value: str) -> None:
        self.overrides[field] = value

    def environment(self, field: str, value: str) -> None:
        self.monkeypatch.setenv(f"SAMPLE_{field.upper()}", value)

    def named_file(self, field: str, value: str) -> None:
        path = self.directory / f"file-{field}"
        path.write_text(value)
        self.monkeypatch.setenv(f"SAMPLE_{field.upper()}_FILE", str(path))

    def credential(self, field: str, value: str) -> None:
        path = self.directory / "credentials" / field.replace("_", "-")
        path.parent.mkdir(exist_ok=True)
        path.write_text(value)
        self.monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(path.parent))

    def config(self, field: str, value: object) -> None:
        self.config_text(json.dumps({field: value}))

    def config_text(self, text: str, name: str = "sample.json") -> Path:
        path = self.directory / name
        path.write_text(text)
        self.monkeypatch.setenv("SAMPLE_CONFIG", str(path))
        return path

    def load(self) -> Sample:
        return load(Sample, **self.overrides)


ORDER = ("argument", "environment", "named_file", "credential", "config")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    return Sources(tmp_path, monkeypatch)


def refused(sources: Sources) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        sources.load()
    return caught.value


def test_without_any_source_the_defaults_hold() -> None:
    sample = load(Sample, redis_url=None)
    assert (sample.redis_url, sample.redis_protocol) == ("redis://default", 3)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_source_that_has_a_value_wins(sources: Sources, first: int) -> None:
    for name in ORDER[first:]:
        getattr(sources, name)("redis_url", f"redis://{name}")
    assert sources.load().redis_url == f"redis://{ORDER[first]}"


@pytest.mark.parametrize("source", ORDER[2:4])
@pytest.mark.parametrize(
    ("content", "value"),
    [("hush\n", "hush"), ("hush\n\n", "hush\n"), ("hush", "hush"), (" h ", " h "), ("\n", "")],
)
def test_a_file_with_one_value_loses_one_trailing_newline(
    sources: Sources, source: str, content: str, value: str
) -> None:
    getattr(sources, source)("redis_password", content)
    assert sources.load().redis_password.get_secret_value() == value


def test_settings_neither_show_a_secret_nor_change(sources: Sources) -> None:
    sources.credential("redis_password", "hush")
    sample = sources.load()
    assert "hush" not in repr(sample)
    with pytest.raises(ValueError, match="frozen"):
        sample.redis_url = "redis://other"  # type: ignore[misc]


@pytest.mark.parametrize("source", ["environment", "named_file", "credential"])
def test_an_object_is_json_outside_of_the_configuration_file(sources: Sources, source: str) -> None:
    getattr(sources, source)("limits", '{"turns": 4}')
    assert sources.load().limits == {"turns": 4}


@pytest.mark.parametrize("source", ["environment", "named_file", "credential"])
def test_broken_json_is_refused_by_its_key(sources: Sources, source: str) -> None:
    getattr(sources, source)("limits", '{"hush')
    error = refused(sources)
    assert error.message == "limits: not valid JSON"
    assert "set by" in error.hint
    assert "hush" not in str(error)


def test_a_toml_file_is_read_by_its_name(sources: Sources) -> None:
    sources.config_text('redis_url = "redis://toml"\n[limits]\nturns = 3\n', "sample.toml")
    sample = sources.load()
    assert (sample.redis_url, sample.limits) == ("redis://toml", {"turns": 3})


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("argument", "given as an argument"),
        ("environment", "set by the environment variable SAMPLE_REDIS_PROTOCOL"),
        ("named_file", "set by the file "),
        ("credential", "set by the credential "),
        ("config", "set in, or missing from, "),
    ],
)
def test_a_wrong_value_is_refused_by_key_and_source(
    sources: Sources, source: str, hint: str
) -> None:
    getattr(sources, source)("redis_protocol", "hush")
    error = refused(sources)
    assert error.message == "redis_protocol: Input should be 2 or 3"
    assert error.hint.startswith(hint)
    assert error.ids == {"key": "redis_protocol"}
    assert "hush" not in str(error)
    assert error.__cause__ is None


def test_every_wrong_key_is_named_with_its_path(sources: Sources) -> None:
    sources.config_text('{"limits": {"turns": "many"}, "redis_protocol": 4, "redis_urI": "x"}')
    message = refused(sources).message
    assert message.startswith("redis_protocol: ")
    assert "; limits.turns: " in message
    assert "; redis_urI: there is no such setting" in message


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^redis_uri: there is no such setting") as caught:
        load(Sample, redis_uri="x")
    assert caught.value.hint == "given as an argument"


def test_a_missing_value_says_where_to_set_it() -> None:
    with pytest.raises(ConfigError, match=r"^agent: Field required") as caught:
        load(Required)
    assert caught.value.hint == "set SAMPLE_AGENT, or name a file in SAMPLE_CONFIG"
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.json", '{"redis_url": }', "not valid JSON: Expecting value at line 1, column 15"),
        ("a.json", "[]", "must be an object"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.toml", "redis_url =", "not valid TOML"),
    ],
)
def test_a_broken_configuration_file_is_named(
    sources: Sources, name: str, text: str, problem: str
) -> None:
    path = sources.config_text(text, name)
    assert refused(sources).message.startswith(f"SAMPLE_CONFIG: {path}: {problem}")


def test_a_key_that_appears_twice_is_refused(sources: Sources) -> None:
    path = sources.config_text('{"limits": {"turns": 1, "turns": 2}}')
    error = refused(sources)
    assert (error.message, error.hint) == ("turns: appears twice", f"in {path}")


@pytest.mark.parametrize("variable", ["SAMPLE_CONFIG", "SAMPLE_REDIS_PASSWORD_FILE"])
def test_a_file_that_is_missing_or_not_text_is_named(
    sources: Sources, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    path = sources.directory / "absent"
    monkeypatch.setenv(variable, str(path))
    key = "redis_password" if variable.endswith("_FILE") else variable
    error = refused(sources)
    assert error.message == f"{key}: {path} cannot be read: No such file or directory"
    assert error.hint == f"named by {variable}"
    path.write_bytes(b"\xff\xfe")
    assert refused(sources).message == f"{key}: {path} is not UTF-8 text"


def test_a_file_with_a_value_may_have_the_largest_size_and_no_byte_more(sources: Sources) -> None:
    sources.credential("redis_password", "a" * settings.FILE_MAX_BYTES)
    assert len(sources.load().redis_password.get_secret_value()) == settings.FILE_MAX_BYTES
    sources.credential("redis_password", "a" * (settings.FILE_MAX_BYTES + 1))
    error = refused(sources)
    assert error.message.startswith("redis_password: ")
    assert error.message.endswith("is longer than 1048576 bytes")


def test_a_field_that_ends_in_file_keeps_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithFile(ServiceSettings):
        model_config = SettingsConfigDict(env_prefix="SAMPLE_")

        key: str = "unset"
        key_file: str = ""

    monkeypatch.setenv("SAMPLE_KEY_FILE", "/is/not/read")
    assert load(WithFile).key == "unset"
    assert load(WithFile).key_file == "/is/not/read"


def test_credentials_of_other_names_are_left_alone(sources: Sources) -> None:
    sources.credential("redis_password", "hush")
    sources.credential("another", "x")
    assert sources.load().redis_password.get_secret_value() == "hush"


def test_key_paths() -> None:
    assert settings.key_path(("sources", "a2a", "command", 0)) == "sources.a2a.command.0"
    assert settings.key_path(()) == "settings"
