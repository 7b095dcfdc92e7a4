"""Every example and every machine of the VM tests, as it would be installed."""

import json
import re
from pathlib import Path

import pytest

from tests.nix import golden_host, nix, render, rendered_hosts, verify
from tests.nix.render import derivations
from tests.nix.render.outputs import BuildError
from tests.nix.rendered_hosts import rendered

HOSTS = rendered_hosts.paths()
STANDARD = nix.EXAMPLES / "single-host.nix"

each = pytest.mark.parametrize("path", HOSTS, ids=rendered_hosts.name)


def values(rendered: render.Rendered, key: str) -> dict[str, list[str]]:
    """What a key is set to, in each unit that has it."""
    line = re.compile(rf"^{key}=(.*)$", re.MULTILINE)
    found = {unit: line.findall(text) for unit, text in rendered.units.items()}
    return {unit: words for unit, words in found.items() if words}


def test_the_examples_are_among_them() -> None:
    assert STANDARD in HOSTS
    assert len(HOSTS) >= 5


@each
def test_systemd_has_nothing_to_say(path: Path) -> None:
    assert verify.problems(rendered(path)) == []


@each
def test_every_unit_that_is_referred_to_exists(path: Path) -> None:
    assert verify.dangling(rendered(path)) == []


@each
def test_every_user_and_group_is_declared(path: Path) -> None:
    host = rendered(path)
    users = {name for names in values(host, "User").values() for name in names}
    groups = {name for names in values(host, "Group").values() for name in names}
    assert users
    assert users <= set(host.users)
    assert groups <= set(host.groups)
    assert {user.group for user in host.users.values()} <= set(host.groups)
    words = [line.split("'")[7] for line in host.tmpfiles if line.startswith("'")]
    assert set(words) <= {*host.users, "-"}


@each
def test_no_credential_comes_from_the_store(path: Path) -> None:
    host = rendered(path)
    given = values(host, "LoadCredential") | values(host, "EnvironmentFile")
    assert given or not any(unit.startswith("cowboy-") for unit in host.units)
    assert not any(derivations.references(word) for words in given.values() for word in words)


@each
def test_what_the_daemon_reads_was_checked_by_the_daemon(path: Path) -> None:
    """`cowboy check-config` ran while the file was made; the planted fault is below."""
    host = rendered(path)
    files = {name: file for name, file in host.etc.items() if name.endswith("/sources.json")}
    assert bool(files) == any("cowboy" in unit for unit in host.units)
    for name, file in files.items():
        assert json.loads(file.text)["agent"] == name.split("/")[1]


def test_a_file_that_the_daemon_refuses_fails_the_build(tmp_path: Path) -> None:
    host = tmp_path / "host.nix"
    host.write_text(
        f"{{ pkgs, lib, ... }}: {{ imports = [ {STANDARD} ]; services.cowboy.package ="
        ' lib.mkForce (pkgs.writeShellScriptBin "cowboy" "echo refused >&2; exit 3"); }'
    )
    with pytest.raises(BuildError, match=r"sources.*refused"):
        render.host(host)


def test_the_example_is_as_it_was() -> None:
    """After a change that is meant: `python -m tests.nix.golden_host`, and read the difference."""
    assert golden_host.KEPT.read_text(encoding="utf-8") == golden_host.text()


# ---- secrets --------------------------------------------------------------------------------

PLANTED = "sesame-open-5d1f0c"


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a secret, as a host would have it."""
    path = tmp_path_factory.mktemp("secrets") / "planted"
    path.write_text(f"{PLANTED}\n")
    return path


def holding(rendered: render.Rendered) -> list[str]:
    """Where the planted word is in what is rendered."""
    found = rendered.as_json()
    return [part for part, value in found.items() if PLANTED in json.dumps(value)]


def with_secret(folder: Path, secret: Path, more: str) -> render.Rendered:
    host = folder / "host.nix"
    host.write_text(f"""{{ lib, pkgs, ... }}: {{
      services.cowboy = {{
        enable = true;
        secrets.files = {{
          redis-agent-scout = "{secret}";
          redis-operator = "{secret}";
          redis-metrics = "{secret}";
        }};
        agents.scout = {{
          sources.a2a.runner.kind = "echo";
          environmentFiles = [ "{secret}" ];
          credentials.api-key = "{secret}";
        }};
      }};
      {more}
    }}""")
    return render.host(host)


def test_no_secret_is_in_what_is_rendered(tmp_path: Path, secret: Path) -> None:
    host = with_secret(tmp_path, secret, "")
    assert str(secret) in json.dumps(host.as_json()), "its path is, so it was used"
    assert holding(host) == []


def test_a_secret_that_a_module_reads_would_be_found(tmp_path: Path, secret: Path) -> None:
    """The control of the test above, at each place where a careless module could put it."""
    word = f"builtins.readFile {secret}"
    careless = f"""
      environment.etc."planted".text = {word};
      systemd.services.planted = {{ script = {word}; environment.PLANTED =
        lib.removeSuffix "\\n" ({word}); }};
    """
    assert {"etc", "units", "files"} <= set(holding(with_secret(tmp_path, secret, careless)))


def test_a_secret_in_the_store_is_refused(tmp_path: Path, secret: Path) -> None:
    """A path literal would be copied into the store, where everybody may read."""
    literal = f"services.cowboy.secrets.files.planted = lib.mkForce {secret};"
    copied = 'services.cowboy.secrets.files.planted = lib.mkForce "${pkgs.bash}";'
    for more in (literal, copied):
        with pytest.raises((nix.NixError, render.HostError), match=r"services\.cowboy\.secrets\."):
            with_secret(tmp_path, secret, more)
