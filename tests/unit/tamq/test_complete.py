"""What the shell offers for arguments of `tamq`, as far as no service is needed."""

from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from corral.tamq.main import cli


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a service; answers the registry."""
    registry = tmp_path / "repos.csv"
    registry.write_text("/src/shop,shop,,\n/src/lib,lib,,\n/src/show,show,,\n")
    monkeypatch.setenv("TAMQ_GITA_REPOS", str(registry))
    monkeypatch.setenv("TAMQ_SOCKET", str(tmp_path / "tamq.sock"))
    return registry


def complete(*words: str) -> list[str]:
    """What is offered for the last of `words`."""
    shell = BashComplete(cli, {}, "tamq", "_TAMQ_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize("command", ["send", "run", "attach", "endpoints", "history"])
def test_names_of_the_registry(command: str) -> None:
    assert complete(command, "--repo", "sho") == ["shop", "show"]


def test_profiles_the_operators_own_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "profiles.toml"
    own.write_text("[corner]\nlayout = 'line'\nprompt = '> '\n")
    monkeypatch.setenv("TAMQ_PROFILES", str(own))
    assert complete("run", "--profile", "c") == ["claude-code", "codex", "corner"]


def test_states() -> None:
    assert complete("history", "--state", "a") == ["awaiting_ack", "acknowledged"]


def test_nothing_where_nothing_answers_or_can_be_read(place: Path) -> None:
    assert complete("ack", "") == []
    assert complete("detach", "") == []
    place.unlink()
    assert complete("send", "--repo", "") == []
    place.mkdir()
    assert complete("send", "--repo", "") == []
