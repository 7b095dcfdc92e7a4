"""Settings of cowboy: where they come from, the paths they give, and what is refused."""

import json
from pathlib import Path

import pytest

from corral.core.errors import ConfigError, UsageError
from corral.core.settings import load
from corral.cowboy.settings import (
    SOCKET_PATH_MAX_BYTES,
    CowboySettings,
    RedisEndpoint,
    agent_username,
)
from tests.unit.cowboy_config import samples
from tests.unit.cowboy_config.samples import HOSTILE_NAMES


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CowboySettings.model_fields:
        monkeypatch.delenv(f"COWBOY_{name.upper()}", raising=False)
        monkeypatch.delenv(f"COWBOY_{name.upper()}_FILE", raising=False)
    monkeypatch.delenv("COWBOY_CONFIG", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)


def endpoint(url: str) -> RedisEndpoint:
    return load(CowboySettings, redis_url=url).redis_endpoint("operator")


def test_paths_of_an_installed_cowboy() -> None:
    settings = load(CowboySettings)
    assert settings.sources_path("scout") == Path("/etc/cowboy/scout/sources.json")
    assert settings.ledger_path("scout") == Path("/var/lib/cowboy/scout/ledger.db")
    assert settings.lock_path("scout") == Path("/var/lib/cowboy/scout/lock")
    assert settings.control_socket("scout") == Path("/run/cowboy/scout/control.sock")
    assert settings.runner_socket("scout") == Path("/run/cowboy/scout/runner.sock")
    assert settings.runs_path("scout") == Path("/run/cowboy/scout/runs")
    assert settings.metrics_path("scout") is None
    assert load(CowboySettings, metrics_dir=Path("/m")).metrics_path("scout") == Path(
        "/m/cowboy-scout.prom"
    )


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "../scout", "scout\n"])
def test_a_hostile_agent_reaches_no_path(name: str) -> None:
    settings = load(CowboySettings)
    for path in (
        settings.sources_path,
        settings.state_path,
        settings.lock_path,
        settings.control_socket,
        settings.runner_socket,
        settings.runs_path,
        agent_username,
    ):
        with pytest.raises(UsageError, match="is not the name of an agent"):
            path(name)


def test_socket_paths_are_taken_at_the_limit_and_refused_one_past() -> None:
    room = SOCKET_PATH_MAX_BYTES - len("/scout/control.sock")
    fits, too_long = Path("/" + "r" * (room - 1)), Path("/" + "r" * room)
    path = load(CowboySettings, runtime_dir=fits).control_socket("scout")
    assert len(str(path)) == SOCKET_PATH_MAX_BYTES == 107
    with pytest.raises(ConfigError, match=r"^runtime_dir: the socket .* of 108 bytes"):
        load(CowboySettings, runtime_dir=too_long).control_socket("scout")
    # Bytes count, not characters.
    wide = Path("/" + "é" * (room // 2 + 1))
    with pytest.raises(ConfigError, match=r"^runtime_dir: "):
        load(CowboySettings, runtime_dir=wide).runner_socket("scout")


def test_a_runner_of_another_user_has_its_own_directory() -> None:
    settings = load(CowboySettings, runner_dir=Path("/run/cowboy-runner"))
    assert settings.runner_socket("scout") == Path("/run/cowboy-runner/scout/runner.sock")
    assert settings.runs_path("scout") == Path("/run/cowboy-runner/scout/runs")
    assert settings.control_socket("scout") == Path("/run/cowboy/scout/control.sock")
    with pytest.raises(ConfigError, match=r"^runner_dir: the socket"):
        load(CowboySettings, runner_dir=Path("/" + "r" * 107)).runner_socket("scout")


def test_the_daemons_user_is_found_by_name() -> None:
    assert load(CowboySettings).daemon_uid() is None
    assert load(CowboySettings, daemon_user="root").daemon_uid() == 0
    with pytest.raises(ConfigError, match=r"^daemon_user: .* no user 'nobody-here'"):
        load(CowboySettings, daemon_user="nobody-here").daemon_uid()


def test_environment_and_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "redis-password").write_text("from-systemd\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("COWBOY_REDIS_URL", "unix:///run/redis.sock")
    monkeypatch.setenv("COWBOY_REDIS_PROTOCOL", "2")
    settings = load(CowboySettings)
    assert "from-systemd" not in repr(settings)
    found = settings.redis_endpoint(agent_username("scout"))
    assert (found.username, found.password, found.protocol) == ("agent-scout", "from-systemd", 2)
    assert "from-systemd" not in repr(found)
    monkeypatch.setenv("COWBOY_REDIS_USERNAME", "operator")
    assert load(CowboySettings).redis_endpoint("agent-scout").username == "operator"


@pytest.mark.parametrize(
    ("url", "where", "database", "tls"),
    [
        ("unix:///run/redis/redis.sock", "/run/redis/redis.sock", 0, False),
        ("unix:///run/a%20b.sock?db=3", "/run/a b.sock", 3, False),
        ("redis://localhost", "localhost:6379", 0, False),
        ("redis://localhost:7000/2", "localhost:7000", 2, False),
        ("rediss://[::1]:7000", "::1:7000", 0, True),
    ],
)
def test_redis_urls(url: str, where: str, database: int, tls: bool) -> None:
    found = endpoint(url)
    assert (found.where, found.database, found.tls) == (where, database, tls)
    assert (found.socket is None) == url.startswith("redis")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/run/redis.sock",
        "http://localhost",
        "unix://run/redis.sock",
        "unix://",
        "redis://",
        "redis://localhost:x",
        "redis://localhost:99999",
        "redis://localhost/x",
        "redis://localhost/-1",
        "redis://localhost/²",
        "redis://localhost?db=1",
        "unix:///run/redis.sock?password=hunter2",
        "redis://localhost#hunter2",
        "redis://user:hunter2@localhost",
        "redis://hunter2@localhost",
    ],
)
def test_refused_redis_urls_are_named_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^redis_url: ") as caught:
        endpoint(url)
    assert "hunter2" not in str(caught.value)


def test_redis_url_is_asked_for_only_when_needed() -> None:
    settings = load(CowboySettings)
    with pytest.raises(ConfigError, match=r"^redis_url: is missing"):
        settings.redis_endpoint("operator")


@pytest.mark.parametrize("protocol", ["1", "4", "x", ""])
def test_other_protocols_are_refused(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COWBOY_REDIS_PROTOCOL", protocol)
    with pytest.raises(ConfigError, match=r"^redis_protocol: "):
        load(CowboySettings)


def test_agents_are_the_folders_with_a_file(tmp_path: Path) -> None:
    for name in ("scout", "a", "no-file", "Upper"):
        (tmp_path / name).mkdir()
    for name in ("scout", "a", "Upper"):
        (tmp_path / name / "sources.json").write_text("{}")
    assert load(CowboySettings, config_dir=tmp_path).agents() == ["a", "scout"]
    with pytest.raises(ConfigError, match=r"^config_dir: .*No such file"):
        load(CowboySettings, config_dir=tmp_path / "none").agents()


def test_sources_of_an_agent(tmp_path: Path) -> None:
    settings = load(CowboySettings, config_dir=tmp_path)
    path = settings.sources_path("scout")
    path.parent.mkdir()
    path.write_text(json.dumps(samples.document()))
    assert settings.load_sources("scout").agent == "scout"
    other = settings.sources_path("other")
    other.parent.mkdir()
    other.write_text(json.dumps(samples.document()))
    with pytest.raises(ConfigError, match=r"^agent: the file is for 'scout'"):
        settings.load_sources("other")
