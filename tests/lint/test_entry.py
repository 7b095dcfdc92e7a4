"""The entry script, without a network: its texts, and what it does about what is missing."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import corral
from tests import stages
from tests.lint.repository import ROOT

USED = (
    "bash cat cut dirname env grep ln mkdir mktemp mv readlink rm sed setpriv sha256sum sort tail"
)
NOBODY = 65534

FAKE_APT = """#!/bin/sh
echo "$@" >>"$APT_LOG"
case "$*" in *python3-venv*) ln -s "$REAL_PYTHON" "$BIN/python3" ;; esac
"""


def corral_entry(*arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [ROOT / "corral", *arguments], capture_output=True, text=True, env=env, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_version_is_that_of_the_package() -> None:
    assert corral_entry("--version") == (0, f"corral {corral.__version__}\n", "")


def test_help_and_completions_list_the_stages() -> None:
    folders = " ".join(dict.fromkeys(stage.folder for stage in stages.STAGES))
    for arguments in (["--help"], ["completions", "bash"], ["completions", "zsh"]):
        status, out, _ = corral_entry(*arguments)
        assert status == 0
        assert folders in out


def test_bash_completes_commands_and_stages() -> None:
    probe = (
        'source <("$0" completions bash); COMP_WORDS=(corral test con); COMP_CWORD=2; _corral;'
        ' echo "${COMPREPLY[@]}"; COMP_WORDS=(corral de); COMP_CWORD=1; _corral;'
        ' echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", probe, ROOT / "corral"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["contract", "demo"]


def test_bash_completes_what_a_program_takes() -> None:
    probe = (
        'source <("$0" completions bash); COMP_WORDS=("$0" tamq se); COMP_CWORD=2; _corral;'
        ' echo "${COMPREPLY[@]}"; COMP_WORDS=("$0" tamq run --profile cl); COMP_CWORD=4; _corral;'
        ' echo "${COMPREPLY[@]}"; COMP_WORDS=("$0" a2a-bridge doc); COMP_CWORD=2; _corral;'
        ' echo "${COMPREPLY[@]}"; COMP_WORDS=("$0" say d); COMP_CWORD=2; _corral;'
        ' echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", probe, ROOT / "corral"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["send serve", "claude-code", "doctor", ""]


def test_completing_a_line_makes_no_environment(bare: "Bare") -> None:
    bare.add("apt-get", "#!/bin/sh\nexit 1\n")
    status, err = bare.run(
        "tamq", _TAMQ_COMPLETE="bash_complete", COMP_WORDS="tamq s", COMP_CWORD="1"
    )
    assert (status, err) == (0, "")
    assert not (bare.root / ".venv").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["chaos"], ["completions", "fish"], ["setup", "--nonsense"]]
)
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    status, out, err = corral_entry(*arguments)
    assert (status, out) == (64, "")
    assert err


def test_an_unsuitable_interpreter_is_named() -> None:
    env = os.environ | {"CORRAL_PYTHON": "/bin/false", "CORRAL_VENV": "/nonexistent/venv"}
    assert corral_entry("setup", env=env) == (
        69,
        "",
        "corral: CORRAL_PYTHON=/bin/false is not Python 3.11 or newer with venv\n",
    )


class Bare:
    """A machine with the shell's usual tools and nothing else on PATH, readable by everyone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        for tool in USED.split():
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        shutil.copy(ROOT / "corral", root)
        shutil.copytree(ROOT / "python" / "requirements", root / "python" / "requirements")
        root.chmod(0o755)

    def add(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, *arguments: str, as_root: bool = False, **env: str) -> tuple[int, str]:
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        argv = [] if as_root or os.geteuid() != 0 else drop
        done = subprocess.run(
            [*argv, "bash", self.root / "corral", *arguments],
            env={"PATH": str(self.bin), **env},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr


@pytest.fixture
def bare() -> Iterator[Bare]:
    with tempfile.TemporaryDirectory() as root:
        yield Bare(Path(root))


def test_without_root_one_line_names_the_command_that_installs(bare: Bare) -> None:
    bare.add("apt-get", "#!/bin/sh\nexit 1\n")
    install = "apt-get update && apt-get install -y --no-install-recommends"
    assert bare.run("demo") == (
        69,
        f"corral: missing: python tmux; install as root with: {install} python3-venv tmux\n",
    )
    status, err = bare.run("test")
    assert status == 69
    tools = "git gita python3-pkg-resources nix-bin redis-tools socat systemd tmux"
    for_machines = "qemu-system-x86 qemu-utils mmdebstrap e2fsprogs busybox-static zstd lz4 python3"
    assert err.endswith(f"{install} python3-venv {tools} {for_machines}\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    ["demo", "up redis", "test contract", "chaos", "chaos tamq", "bench inbound",
     "bench bridge", "vm run", "docs", "setup", "completions"],
)  # fmt: skip
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_of_the_entry_needs_nothing_and_makes_nothing(
    words: str, option: str, bare: Bare
) -> None:
    status, err = bare.run(*words.split(), option)
    assert (status, err) == (0, "")
    assert not (bare.root / ".venv").exists()


def test_help_of_the_entry_is_the_programs_own_where_that_can_run() -> None:
    status, out, err = corral_entry("test", "--help")
    assert (status, err) == (0, "")
    assert "only tests whose name matches" in out


def test_random_kills_of_the_inbound_path_need_no_terminal(bare: Bare) -> None:
    bare.add("apt-get", "#!/bin/sh\nexit 1\n")
    assert "tmux" not in bare.run("chaos", "inbound", "--seeds", "1")[1]
    assert "tmux" in bare.run("chaos", "tamq", "--seeds", "1")[1]


def test_one_stage_needs_only_its_own_packages(bare: Bare) -> None:
    bare.add("apt-get", "#!/bin/sh\nexit 1\n")
    assert "python3-venv" in bare.run("test", "unit")[1]
    assert "nix-bin" not in bare.run("test", "unit")[1]
    assert "nix-bin" in bare.run("test", "nix", "-k", "contract")[1]
    assert "redis-tools" not in bare.run("test", "nix", "-k", "contract")[1]


def test_without_apt_one_line_says_what_is_missing(bare: Bare) -> None:
    status, err = bare.run("demo")
    assert status == 69
    assert err.startswith("corral: missing on PATH: python")
    assert err.count("\n") == 1


if os.geteuid() == 0:

    def test_root_installs_what_is_missing(bare: Bare) -> None:
        """The fake apt-get brings a python that is none: it is asked, and its word not taken."""
        bare.add("apt-get", FAKE_APT)
        log = bare.root / "apt.log"
        status, err = bare.run(
            "demo", as_root=True, APT_LOG=str(log), REAL_PYTHON="/bin/false", BIN=str(bare.bin)
        )
        assert "install --no-install-recommends python3-venv tmux" in log.read_text()
        assert "install the Debian packages python3-venv tmux: done in" in err
        assert err.endswith(
            "still no usable python after installing python3-venv (Debian 12 or newer is needed)\n"
        )
        assert status == 69
