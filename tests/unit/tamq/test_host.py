"""Where commands and clients find the TAMQ that the host's configuration runs for a user."""

import json
import os
import pwd
from pathlib import Path

import pytest
from click.testing import CliRunner

from corral.core.settings import load
from corral.tamq import client, host
from corral.tamq.ask import Place
from corral.tamq.main import cli
from corral.tamq.settings import TamqSettings

ME = pwd.getpwuid(os.geteuid()).pw_name
OTHER = "daemon"  # a user of every Debian
SOCKET = "/run/tamq/somebody/tamq.sock"


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of /etc/tamq, and an environment that says nothing of TAMQ."""
    monkeypatch.setattr(host, "FOLDER", tmp_path)
    for name in [name for name in os.environ if name.startswith("TAMQ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    return tmp_path


def configured(etc: Path, user: str, text: str = "") -> Path:
    file = etc / user / "settings.json"
    file.parent.mkdir()
    file.write_text(text or json.dumps({"socket": SOCKET, "state_dir": "/var/lib/tamq/somebody"}))
    return file


def test_without_a_file_of_the_host_it_is_the_user_s_own(etc: Path) -> None:
    configured(etc, OTHER)
    assert client.default_socket() == Path("/run/user/7/tamq/tamq.sock")
    host.adopt(None)
    assert host.CONFIG not in os.environ


def test_the_host_s_file_says_where(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(etc, ME)
    assert client.default_socket() == Path(SOCKET)
    assert Place(None, None).path == Path(SOCKET)
    monkeypatch.setenv("TAMQ_SOCKET", "/run/s")
    assert client.default_socket() == Path("/run/s")


def test_another_user_s_place_is_the_host_s_or_that_user_s_runtime_directory(etc: Path) -> None:
    uid = pwd.getpwnam(OTHER).pw_uid
    assert Place(None, OTHER).path == Path(f"/run/user/{uid}/tamq/tamq.sock")
    configured(etc, OTHER)
    assert Place(None, OTHER).path == Path(SOCKET)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"socket": 7}', "\0"])
def test_a_file_that_says_nothing_is_none(etc: Path, text: str) -> None:
    configured(etc, ME, text)
    assert client.default_socket() == Path("/run/user/7/tamq/tamq.sock")


@pytest.mark.parametrize("name", ["", "..", ".", "../etc", "a/b", None])
def test_no_name_leads_out_of_the_folder(etc: Path, name: str | None) -> None:
    (etc / "settings.json").write_text("{}")
    (etc.parent / "settings.json").write_text("{}")
    assert host.settings_file(name) is None


def test_settings_come_from_it_unless_the_environment_names_another(
    etc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(host.CONFIG, "")  # so that it is put back
    monkeypatch.delenv(host.CONFIG)
    configured(etc, ME)
    host.adopt(None)
    assert load(TamqSettings).state_dir == Path("/var/lib/tamq/somebody")
    other = etc / "mine.json"
    other.write_text('{"state_dir": "/srv/mine"}')
    monkeypatch.setenv(host.CONFIG, str(other))
    host.adopt(None)
    assert load(TamqSettings).state_dir == Path("/srv/mine")


def check(file: Path) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(host.CONFIG, "/nowhere")
        patch.setenv("TAMQ_STATE_DIR", "relative")
        done = CliRunner().invoke(cli, ["check-config", str(file)])
    return done.exit_code, done.output


def test_check_config_reads_what_the_service_would(etc: Path) -> None:
    status, said = check(configured(etc, ME))
    assert (status, said) == (0, f"ok: {SOCKET}, profiles claude-code, codex, plain, shell\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sockett": "/x"}, "sockett: there is no such setting"),
        ({"lease_ms": 1}, "lease_ms: Input should be greater than or equal to 100"),
        ({"socket": f"/{'s' * 107}"}, "has a path of 108 bytes, the system takes 107"),
    ],
)
def test_check_config_names_the_key(etc: Path, change: dict[str, object], said: str) -> None:
    file = configured(etc, ME, json.dumps({"socket": SOCKET} | change))
    status, output = check(file)
    assert status == 78
    assert said in output


def test_check_config_says_what_is_wrong_with_the_file_itself(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    assert check(missing) == (78, f"tamq: {missing} cannot be read: No such file or directory\n")
    missing.write_text("[]")
    status, said = check(missing)
    assert (status, "TAMQ_CONFIG" in said, str(missing) in said) == (78, False, True)


def test_check_config_reads_profiles_that_are_here(etc: Path) -> None:
    profiles = etc / "profiles.toml"
    file = configured(etc, ME, json.dumps({"socket": SOCKET, "profiles": str(profiles)}))
    assert check(file)[0] == 0
    profiles.write_text("nonsense = 1\n")
    status, output = check(file)
    assert (status, "nonsense" in output) == (78, True)
