"""The operator's way to Redis: the host's file, the namespace by name, and who may enter it.

As root with CAP_SYS_ADMIN a real namespace is entered. Elsewhere the refusal itself is tested.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from corral.core.errors import ConfigError, UnavailableError
from corral.core.settings import load
from corral.cowboy import access, netns
from corral.cowboy.settings import CowboySettings
from tests.unit.cowboy_cli.conftest import Host, Run

REPOSITORY = Path(__file__).parents[3]
NOBODY = 65534

ENTER = """
import os, sys
from pathlib import Path
from corral.cowboy import netns
if len(sys.argv) > 2:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
folder = Path(sys.argv[1])
try:
    netns.enter("there", folder)
except netns.NamespaceError as error:
    print(error.code, error, sep=": ")
else:
    print("inside", netns.of_process(os.getpid()) == netns.identity_of(folder / "there"))
"""

# Gives a new namespace the name `there` below the folder ($0), and runs the command outside of it.
HOLD = (
    'touch "$0/there" && mount --bind /proc/self/ns/net "$0/there" '
    '&& exec nsenter --net=/proc/self/fd/9 "$@"'
)


def in_a_new_namespace(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs ENTER outside of a namespace whose name is `there` in the folder."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}
    return subprocess.run(
        [
            *("sh", "-c", 'exec "$0" "$@" 9</proc/self/ns/net'),
            *("unshare", "--net", "--mount", "--propagation", "private"),
            *("sh", "-c", HOLD, str(folder)),
            *(sys.executable, "-c", ENTER, str(folder), *arguments),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def may_make_namespaces() -> bool:
    done = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    return os.geteuid() == 0 and done.returncode == 0


def test_root_enters_a_namespace_by_its_name(tmp_path: Path) -> None:
    done = in_a_new_namespace(tmp_path)
    if may_make_namespaces():
        assert done.stdout == "inside True\n", done.stderr
    else:  # nothing could be made here; what the command then says is tested instead
        assert done.returncode != 0


def test_another_user_is_told_that_only_root_can(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    if not may_make_namespaces():
        (tmp_path / "there").touch()
        with pytest.raises(netns.NamespaceError):
            netns.enter("there", tmp_path)
        return
    done = in_a_new_namespace(tmp_path, str(NOBODY))
    assert done.stdout.startswith(
        "namespace: Redis is in the network namespace there, which only root can enter"
    ), done.stderr


def test_a_namespace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(netns.NamespaceError, match="no network namespace gone") as caught:
        netns.enter("gone", tmp_path)
    assert "COWBOY_REDIS_NETNS" in caught.value.hint


def test_one_is_where_one_is(tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to("/proc/self/ns/net")
    netns.enter("here", tmp_path)


@pytest.mark.parametrize("name", ["cowboy-ns", "a", "x.y_z-1", "n" * 63])
def test_names(name: str) -> None:
    assert load(CowboySettings, redis_netns=name).redis_netns == name


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "n" * 64, "a b"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ConfigError, match="redis_netns: "):
        load(CowboySettings, redis_netns=name)


class TestOperatorEnv:
    TEXT = """\
# made when the server starts
REDIS_URL=redis://operator@127.0.0.1:6380/2
export REDISCLI_AUTH='a "word"'
COWBOY_REDIS_NETNS=cowboy-ns
"""

    def test_it_completes_the_settings(self, host: Host, tmp_path: Path) -> None:
        file = tmp_path / "operator-redis.env"
        file.write_text(self.TEXT)
        settings = load(CowboySettings, operator_env=file)
        assert access.is_set_up(settings)
        completed = access.with_operator_env(settings)
        endpoint = completed.redis_endpoint("unused")
        assert (endpoint.username, endpoint.password) == ("operator", 'a "word"')
        assert (endpoint.host, endpoint.port, endpoint.database) == ("127.0.0.1", 6380, 2)
        assert completed.redis_netns == "cowboy-ns"

    def test_a_setting_wins(self, host: Host, tmp_path: Path) -> None:
        file = tmp_path / "operator-redis.env"
        file.write_text(self.TEXT)
        settings = load(CowboySettings, operator_env=file, redis_url="unix:///r.sock")
        assert access.with_operator_env(settings) == settings
        settings = load(CowboySettings, operator_env=file, redis_netns="other")
        assert access.with_operator_env(settings).redis_netns == "other"

    def test_without_the_file_the_url_is_missing(self, host: Host, tmp_path: Path) -> None:
        settings = load(CowboySettings, operator_env=tmp_path / "none")
        assert not access.is_set_up(settings)
        with pytest.raises(ConfigError, match="redis_url: is missing"):
            access.operator_endpoint(settings)

    def test_a_file_without_a_url(self, host: Host, tmp_path: Path) -> None:
        file = tmp_path / "env"
        file.write_text("REDISCLI_AUTH=x\n'unbalanced\n")
        with pytest.raises(ConfigError, match="does not set REDIS_URL"):
            access.operator_endpoint(load(CowboySettings, operator_env=file))

    def test_who_may_not_read_it_is_told_so(self, host: Host, tmp_path: Path) -> None:
        # A folder cannot be read as a file by anybody, root included.
        settings = load(CowboySettings, operator_env=tmp_path)
        assert access.is_set_up(settings)
        with pytest.raises(UnavailableError, match="cannot be read") as caught:
            access.operator_endpoint(settings)
        assert "as root" in caught.value.hint

    def test_send_in_a_missing_namespace_gives_the_reason(
        self, host: Host, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host.add("scout")
        monkeypatch.setenv("COWBOY_REDIS_URL", "redis://127.0.0.1:1")
        monkeypatch.setenv("COWBOY_REDIS_NETNS", "surely-not-there")
        result = run("send", "scout", "a2a", "--content", "x")
        assert result.exit_code == 69
        assert "there is no network namespace surely-not-there" in result.err

    def test_a_unix_socket_needs_no_namespace(self, host: Host) -> None:
        settings = load(CowboySettings, redis_url="unix:///r.sock", redis_netns="surely-not-there")
        assert access.operator_endpoint(settings).socket == "/r.sock"
