"""Profiles of the operator's own: what is taken, and how a wrong one is refused."""

from pathlib import Path

import pytest

from corral.core.errors import ConfigError
from corral.tamq.terminal.profiles import (
    BUILT_IN,
    FILE_MAX_BYTES,
    PATTERN_MAX_CHARS,
    SUBMIT_DELAY_MAX_MS,
    Layout,
    load,
    usual,
)

MINE = """
[mine]
layout = "line"
prompt = 'mine> ?'
submits = false
submit_delay_ms = 2000
"""


def test_the_built_in_ones() -> None:
    assert sorted(BUILT_IN) == ["claude-code", "codex", "plain", "shell"]
    assert not BUILT_IN["shell"].submits


@pytest.mark.parametrize(
    ("program", "profile"),
    [
        ("bash", "shell"), ("-zsh", "shell"), ("/usr/bin/fish", "shell"), ("sh", "shell"),
        ("claude", "claude-code"), ("/opt/node/bin/codex", "codex"),
        ("cat", "plain"), ("python3", "plain"), ("", "plain"), ("bashful", "plain"),
    ],
)  # fmt: skip
def test_a_program_has_a_usual_profile(program: str, profile: str) -> None:
    assert usual(program) == profile


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(MINE)
    profiles = load(file)
    assert profiles.keys() == {*BUILT_IN, "mine"}
    mine = profiles["mine"]
    assert (mine.layout, mine.submits, mine.submit_delay_ms) == (Layout.LINE, False, 2000)
    assert mine.prompt.match("mine> ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[mine]\nprompt = "x"', "mine.layout: is missing"),
        ('[mine]\nlayout = "line"', "mine.prompt: is missing"),
        ('[mine]\nlayout = "round"\nprompt = "x"', "mine.layout: must be one of line, box, tail"),
        ('[mine]\nlayout = "box"\nprompt = "x"', "mine.rule: is missing"),
        ('[mine]\nlayout = "line"\nprompt = "("', "mine.prompt: not a regular expression"),
        ('[mine]\nlayout = "line"\nprompt = 1', "mine.prompt: must be a text"),
        ('[mine]\nlayout = "line"\nprompt = "x"\nsubmits = 1', "mine.submits: must be true"),
        (
            f'[mine]\nlayout = "line"\nprompt = "x"\nsubmit_delay_ms = {SUBMIT_DELAY_MAX_MS + 1}',
            f"mine.submit_delay_ms: must be 0 to {SUBMIT_DELAY_MAX_MS}",
        ),
        ('[mine]\nlayout = "line"\nprompt = "x"\ncolour = "x"', "mine.colour: unknown key"),
        ('[shell]\nlayout = "line"\nprompt = "x"', "shell: is a built-in profile"),
        ('mine = "x"', "mine: must be a table"),
        ("[mine", "not valid TOML"),
        (
            f'[mine]\nlayout = "line"\nprompt = "{"x" * (PATTERN_MAX_CHARS + 1)}"',
            "mine.prompt: must be a text of at most",
        ),
    ],
)
def test_a_wrong_profile_names_its_key(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert problem in caught.value.message


def test_the_limits_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(MINE + "#" * (FILE_MAX_BYTES - len(MINE)))
    assert "mine" in load(file)
    file.write_text(MINE + "#" * (FILE_MAX_BYTES - len(MINE) + 1))
    with pytest.raises(ConfigError, match="longer than"):
        load(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing")


def test_the_longest_pattern_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(f'[mine]\nlayout = "line"\nprompt = "{"x" * PATTERN_MAX_CHARS}"')
    assert "mine" in load(file)
