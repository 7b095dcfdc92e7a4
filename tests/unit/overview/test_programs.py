"""Which services are here, and what counts as an answer of theirs."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from corral.core.errors import ConfigError
from corral.overview.programs import (
    DOCTOR,
    PROGRAMS,
    Answer,
    answer_of,
    ask,
    environment,
    of_host,
    present,
)
from corral.tamq import host

COWBOY = PROGRAMS[0]


def test_the_environment_says_which_services_are_here() -> None:
    assert present({}) == []
    assert [one.name for one in present({"TAMQ_SOCKET": "/s", "COWBOY_CONFIG_DIR": ""})] == ["tamq"]


def test_what_the_modules_set_up_on_a_host_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "FOLDER", tmp_path / "tamq")
    assert of_host(tmp_path) == {}
    user = host.own_name()
    assert user is not None
    files = {
        "cowboy/scout/sources.json": "{}",
        "a2a-bridge/settings.json": "{}",
        "a2a-gateway/settings.json": "{}",
        f"tamq/{user}/settings.json": '{"socket": "/run/tamq/me/tamq.sock"}',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = of_host(tmp_path)
    assert found == {
        "COWBOY_CONFIG_DIR": f"{tmp_path}/cowboy",
        "BRIDGE_CONFIG": f"{tmp_path}/a2a-bridge/settings.json",
        "GATEWAY_CONFIG": f"{tmp_path}/a2a-gateway/settings.json",
        "TAMQ_SOCKET": "/run/tamq/me/tamq.sock",
    }
    assert present(found) == list(PROGRAMS)


def test_the_files_of_deployments_are_read_and_nothing_is_run(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("export A='two words'\nexport B=$(id)\n", encoding="utf-8")
    assert environment([tmp_path], {"A": "old", "C": "kept"}) == {
        "A": "two words", "B": "$(id)", "C": "kept",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["A=1", "export a=1", "echo", ""])
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "env").write_text(f"export A=1\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 2"):
        environment([tmp_path], {})


def test_a_directory_without_a_deployment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        environment([tmp_path], {})


@pytest.mark.parametrize("printed", [b"", b"no json", b"[]", b"\xff"])
def test_what_is_no_answer_is_trouble(printed: bytes) -> None:
    found = answer_of(COWBOY, DOCTOR, printed, 70)
    assert found.data is None
    assert "`cowboy doctor` ended with 70" in found.trouble


def test_a_refusal_keeps_its_words() -> None:
    error = {"code": "unavailable", "message": "nobody listens", "hint": "start it"}
    found = answer_of(COWBOY, DOCTOR, json.dumps({"ok": False, "error": error}).encode(), 69)
    assert found == Answer("doctor", trouble="nobody listens (start it)")


async def test_a_program_on_the_path_is_asked_before_the_module(tmp_path: Path) -> None:
    program = tmp_path / "cowboy"
    program.write_text('#!/bin/sh\necho "{\\"words\\": \\"$*\\"}"\n', encoding="utf-8")
    program.chmod(stat.S_IRWXU)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert await ask(COWBOY, [DOCTOR], {"PATH": path}) == [
        Answer("doctor", {"words": "doctor --json"})
    ]


def test_without_one_the_module_is_run(tmp_path: Path) -> None:
    assert COWBOY.argv(str(tmp_path))[0] == sys.executable


async def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "cowboy"
    program.write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
    program.chmod(stat.S_IRWXU)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    (found,) = await ask(COWBOY, [DOCTOR], {"PATH": path}, 0.2)
    assert found.trouble == "no answer within 0.2 s (see --timeout)"
