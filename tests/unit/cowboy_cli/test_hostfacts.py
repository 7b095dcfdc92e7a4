"""What `doctor` finds on the host: real files, real SQLite headers, sockets and namespaces."""

import json
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from corral.core.settings import load
from corral.cowboy import access, hostfacts
from corral.cowboy.examined import FileFact
from corral.cowboy.settings import CowboySettings
from tests.unit.cowboy_cli.conftest import Host


@pytest.fixture
def settings(host: Host) -> CowboySettings:
    host.add("scout")
    state = host.config.parent / "state" / "scout"
    state.mkdir(mode=0o700)
    (host.runtime / "scout").chmod(0o755)
    (host.config / "scout" / "sources.json").chmod(0o644)
    return load(CowboySettings, operator_env=host.config / "none")


def bad(facts: tuple[FileFact, ...]) -> dict[str, int | None]:
    return {
        Path(one.path).name: one.mode
        for one in facts
        if one.error or (one.mode or 0) & one.forbidden or (one.missing and not one.optional)
    }


def test_files_as_they_should_be(settings: CowboySettings) -> None:
    ledger = settings.ledger_path("scout")
    ledger.touch(0o600)
    assert bad(hostfacts.files(settings, "scout")) == {}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("ledger.db", 0o644),
        ("ledger.db-wal", 0o640),
        ("lock", 0o606),
        ("backups/ledger-1.db", 0o604),
    ],
)
def test_what_others_may_read(name: str, mode: int, settings: CowboySettings) -> None:
    path = settings.state_path("scout") / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    path.chmod(mode)
    assert bad(hostfacts.files(settings, "scout")) == {path.name: mode}


@pytest.mark.parametrize(("folder", "mode"), [("state", 0o750), ("state", 0o701)])
def test_the_state_folder(folder: str, mode: int, settings: CowboySettings) -> None:
    settings.state_path("scout").chmod(mode)
    found = bad(hostfacts.files(settings, "scout"))
    assert found == ({} if mode == 0o750 else {"scout": mode})


def test_what_others_may_write(settings: CowboySettings) -> None:
    settings.sources_path("scout").chmod(0o666)
    settings.runtime_path("scout").chmod(0o777)
    found = bad(hostfacts.files(settings, "scout"))
    assert found == {"sources.json": 0o666, "scout": 0o777}


def test_credentials_and_what_is_missing(
    settings: CowboySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.touch()
    secret.chmod(0o640)
    monkeypatch.setenv("COWBOY_REDIS_PASSWORD_FILE", str(secret))
    env = tmp_path / "operator-redis.env"
    env.touch()
    env.chmod(0o644)
    settings = settings.model_copy(update={"operator_env": env})
    folder = settings.state_dir / "secrets"
    folder.mkdir(mode=0o700)
    (folder / "redis-operator").touch(0o600)
    (folder / "redis-metrics").touch()
    (folder / "redis-metrics").chmod(0o444)
    settings.state_path("scout").rmdir()
    assert bad(hostfacts.files(settings, "scout")) == {
        "secret": 0o640,
        "operator-redis.env": 0o644,
        "redis-metrics": 0o444,
        "scout": None,
    }


def test_disks(settings: CowboySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = hostfacts.disks(settings, "scout")
    assert one.free_bytes is not None
    # A folder that is not there yet is on the file system of the one above.
    settings = settings.model_copy(update={"metrics_dir": tmp_path / "not" / "there"})
    assert [disk.free_bytes is not None for disk in hostfacts.disks(settings, "scout")] == [
        True
    ] * 2

    class Full:
        f_bavail, f_frsize, f_files, f_favail = 1, 4096, 10, 0

    monkeypatch.setattr(os, "statvfs", lambda _: Full)  # no test can fill the disk it runs on
    full = hostfacts.disks(settings, "scout")[0]
    assert (full.free_bytes, full.free_inodes) == (4096, 0)
    monkeypatch.setattr(Full, "f_files", 0)
    assert hostfacts.disks(settings, "scout")[0].free_inodes is None


class TestLedgerFile:
    def make(self, path: Path, *, wal: bool) -> sqlite3.Connection:
        conn = sqlite3.connect(path, isolation_level=None)
        if wal:
            conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("PRAGMA application_id = 1234")
        conn.execute("PRAGMA user_version = 3")
        conn.execute("CREATE TABLE t (x)")
        return conn

    def test_at_rest(self, tmp_path: Path) -> None:
        self.make(tmp_path / "l.db", wal=False).close()
        found = hostfacts.ledger_file(tmp_path / "l.db")
        assert (found.exists, found.application_id, found.schema) == (True, 1234, 3)

    def test_the_log_is_newer_than_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "l.db"
        with closing(self.make(path, wal=True)) as conn:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert hostfacts.ledger_file(path).schema == 3
            conn.execute("PRAGMA user_version = 4")
            before = path.read_bytes()
            assert hostfacts.ledger_file(path).schema == 4
            conn.execute("BEGIN IMMEDIATE")
            conn.execute("PRAGMA user_version = 5")  # not committed
            assert hostfacts.ledger_file(path).schema == 4
            conn.execute("ROLLBACK")
            conn.execute("PRAGMA wal_checkpoint(PASSIVE)")
            conn.execute("PRAGMA user_version = 6")  # begins the log anew over older frames
            assert hostfacts.ledger_file(path).schema == 6
            assert path.read_bytes()[:60] != b""
            assert before[:16] == b"SQLite format 3\0"

    def test_what_is_none(self, tmp_path: Path) -> None:
        assert not hostfacts.ledger_file(tmp_path / "none").exists
        (tmp_path / "empty").touch()
        assert hostfacts.ledger_file(tmp_path / "empty").error == "the file is empty"
        (tmp_path / "other").write_bytes(b"x" * 200)
        assert hostfacts.ledger_file(tmp_path / "other").application_id == -1
        assert "directory" in hostfacts.ledger_file(tmp_path).error


class TestNamespace:
    def test_none_is_configured(self, settings: CowboySettings) -> None:
        assert access.configured_namespace(settings) is None
        assert hostfacts.namespace(settings, None, 1).name is None

    def test_where_its_name_comes_from(self, settings: CowboySettings) -> None:
        (settings.config_dir / "namespace.json").write_text('{"version": 1, "name": "from-file"}')
        assert access.configured_namespace(settings) == "from-file"
        named = settings.model_copy(update={"redis_netns": "from-setting"})
        assert access.configured_namespace(named) == "from-setting"
        (settings.config_dir / "namespace.json").write_text("[]")
        assert access.configured_namespace(settings) is None

    def test_the_daemon_inside_and_outside(self, settings: CowboySettings, tmp_path: Path) -> None:
        (tmp_path / "here").symlink_to("/proc/self/ns/net")
        (tmp_path / "elsewhere").touch()
        inside = hostfacts.namespace(settings, "here", os.getpid(), tmp_path)
        assert (inside.same, inside.missing) == (True, False)
        assert hostfacts.namespace(settings, "elsewhere", os.getpid(), tmp_path).same is False
        assert hostfacts.namespace(settings, "gone", os.getpid(), tmp_path).missing
        unasked = hostfacts.namespace(settings, "here", None, tmp_path)
        assert (unasked.same, unasked.error) == (None, "the daemon cannot be asked")
        nobody = hostfacts.namespace(settings, "here", 2**22 + 1, tmp_path)
        assert (nobody.same, "No such file" in nobody.error) == (None, True)

    def test_egress(self, settings: CowboySettings, tmp_path: Path) -> None:
        (tmp_path / "here").symlink_to("/proc/self/ns/net")
        with socket.socket() as listener, socket.socket() as closed:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            closed.bind(("127.0.0.1", 0))  # not listening: its host refuses, so it is reached
            ports = [one.getsockname()[1] for one in (listener, closed)]
            rules = "".join(f"ip daddr 127.0.0.1 tcp dport {port} accept\n" for port in ports)
            rules += "ip daddr 255.255.255.255 udp dport 9 accept\n"  # needs a privilege
            (settings.config_dir / "namespace.nft").write_text(rules)
            found = hostfacts.namespace(settings, "here", os.getpid(), tmp_path).egress
        assert [problem for _, problem in found] == ["", "", "Permission denied"]
        assert found[0][0] == f"127.0.0.1:{ports[0]}/tcp"

    def test_egress_from_a_namespace_that_cannot_be_entered(
        self, settings: CowboySettings, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").touch()  # no namespace at all
        (settings.config_dir / "namespace.nft").write_text("ip daddr 1.1.1.1 tcp dport 9 accept")
        found = hostfacts.namespace(settings, "elsewhere", os.getpid(), tmp_path)
        assert found.egress == ()
        assert "elsewhere" in found.egress_error


def test_the_settings_of_the_units_complete_those_of_the_command(
    settings: CowboySettings, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = settings.config_dir / "scout" / "settings.json"
    file.write_text(json.dumps({"runner_dir": "/r", "state_dir": "/elsewhere", "redis_url": "x"}))
    found = hostfacts.unit_settings(settings, "scout")
    assert found.runner_dir == Path("/r")
    assert found.state_dir == settings.state_dir  # the environment has it
    assert found.redis_url is None
    monkeypatch.delenv("COWBOY_STATE_DIR")
    assert hostfacts.unit_settings(load(CowboySettings), "scout").state_dir == Path("/elsewhere")
    for text in ("[]", "not JSON", '{"runner_dir": 5}'):
        file.write_text(text)
        assert hostfacts.unit_settings(settings, "scout") == settings
