"""The topology is joined with secrets, made absolute, and otherwise left as it was rendered."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import ConfigError, UnavailableError
from corral.local.servers import SOCKET_PATH_MAX_BYTES, check_socket_path
from corral.local.topology import Topology, base_environment, load_rendered, private_base
from tests.unit.local.rendered import rendered


def test_files_are_private_and_joined(tmp_path: Path) -> None:
    topology = Topology.materialise(rendered(), tmp_path)
    for path in [p for p in tmp_path.rglob("*") if p.is_file()]:
        assert path.stat().st_mode & 0o777 == 0o600, path
    for path in [p for p in tmp_path.rglob("*") if p.is_dir()]:
        assert path.stat().st_mode & 0o777 == 0o700, path
    login = topology.source_login("scout", "a2a")
    digest = hashlib.sha256(login.password.encode()).hexdigest()
    assert any(f"user source.scout.a2a on #{digest} ~scout:*" in line for line in topology.acl())
    assert not any("@redis-" in line for line in topology.acl())
    assert login.password not in "".join(topology.acl())
    assert login.password not in repr(topology) + repr(login)
    assert len(set(topology.secret_words())) == 3


def test_secrets_of_an_earlier_start_are_kept(tmp_path: Path) -> None:
    first = Topology.materialise(rendered(), tmp_path)
    spoilt, kept = (
        first.credential_file(name) for name in sorted(first.rendered["credentials"])[:2]
    )
    spoilt.write_text("not one of ours\n")
    before = kept.read_text()
    second = Topology.materialise(rendered(), tmp_path)
    assert kept.read_text() == before
    assert len(set(first.secret_words()) & set(second.secret_words())) == 2
    assert spoilt.read_text().strip() in second.secret_words()


def test_acl_lines_are_the_rendered_ones(tmp_path: Path) -> None:
    shape = rendered()
    shape["redis"]["acl"] = ["user default off", "user x on nopass ~a:* +@all -@dangerous"]
    assert Topology.materialise(shape, tmp_path).acl() == shape["redis"]["acl"]


def test_an_unknown_placeholder_is_refused(tmp_path: Path) -> None:
    shape = rendered()
    shape["redis"]["acl"].append("user y on #@redis-nobody@")
    topology = Topology.materialise(shape, tmp_path)
    with pytest.raises(ConfigError, match=r"^redis\.acl: unknown credential redis-nobody"):
        topology.acl()


def test_environment_of_each_process(tmp_path: Path) -> None:
    topology = Topology.materialise(rendered(), tmp_path)
    daemon = topology.environment("scout", redis=True, protocol=2)
    assert daemon["COWBOY_REDIS_URL"] == f"unix://{tmp_path}/run/redis/redis.sock"
    assert daemon["COWBOY_REDIS_PROTOCOL"] == "2"
    secret = Path(daemon["COWBOY_REDIS_PASSWORD_FILE"]).read_text()
    assert secret.strip() == topology.login("agent-scout").password
    assert secret.strip() not in "".join(daemon.values())
    runner = topology.environment("scout", redis=False)
    assert not [name for name in runner if "REDIS" in name]


def test_environment_inherits_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMETHING_PRIVATE", "sesame")
    assert "sesame" not in base_environment().values()


def test_edits_change_a_copy(tmp_path: Path) -> None:
    shape = rendered()
    before = json.dumps(shape)

    def edit(sources: dict[str, Any]) -> None:
        sources["sources"]["a2a"]["backlog_max"] = 3

    topology = Topology.materialise(shape, tmp_path, edits={"scout": edit})
    written = json.loads((tmp_path / "config/scout/sources.json").read_text())
    assert written["sources"]["a2a"]["backlog_max"] == 3
    assert topology.sources["scout"] == written
    assert json.dumps(shape) == before
    with pytest.raises(ConfigError, match=r"^agents\.nobody: "):
        Topology.materialise(shape, tmp_path, edits={"nobody": edit})


def test_socket_paths_have_a_limit(tmp_path: Path) -> None:
    fits = tmp_path / ("x" * (SOCKET_PATH_MAX_BYTES - len(str(tmp_path)) - 1))
    check_socket_path(fits)
    with pytest.raises(UnavailableError, match="TMPDIR"):
        check_socket_path(fits.with_name(fits.name + "x"))
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    with pytest.raises(UnavailableError, match=r"more than 107.*TMPDIR"):
        Topology.materialise(rendered(), deep)


def test_private_base_respects_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    base = private_base()
    assert base.parent == tmp_path.resolve()
    assert base.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(UnavailableError, match="TMPDIR"):
        private_base()


def test_missing_rendering_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rendered topology"):
        load_rendered(tmp_path / "nothing.json")
