"""The services that can be asked, and how: by their own programs, whose answers are JSON.

On a host the programs on PATH are asked: they enter with the identity that may look. In a checkout
there are none there, and the modules are run.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.core.errors import ConfigError
from corral.overview import ANSWER_S

ANSWER_MAX_BYTES: Final = 16 * 1024 * 1024
ENV_FILE: Final = "env"
EXPORT: Final = re.compile(r"export ([A-Z][A-Z0-9_]*)=(.*)")
HOST_FILES: Final = {
    "BRIDGE_CONFIG": "a2a-bridge/settings.json",
    "GATEWAY_CONFIG": "a2a-gateway/settings.json",
}


@dataclass(frozen=True)
class Question:
    """A command of a program; `key` is what its answer is called in ours."""

    key: str
    words: tuple[str, ...]


DOCTOR: Final = Question("doctor", ("doctor",))


@dataclass(frozen=True)
class Program:
    """`marks`: variables of which one must be set for the service to be here. `status` and
    `doctor` are what is asked."""

    name: str
    module: str
    marks: tuple[str, ...]
    status: tuple[Question, ...]
    doctor: tuple[Question, ...] = (DOCTOR,)

    def argv(self, path: str | None = None) -> list[str]:
        """How it is started."""
        found = shutil.which(self.name, path=path)
        return [found] if found else [sys.executable, "-P", "-m", self.module]


COWBOY: Final = (Question("agents", ("status",)),)
TAMQ: Final = (
    Question("sessions", ("endpoints",)),
    Question("pending", ("history", "--state", "pending")),
    Question("awaiting_ack", ("history", "--state", "awaiting_ack")),
    Question("failed", ("history", "--state", "failed")),
)
JOBS: Final = Question("jobs", ("jobs", "list"))
PROGRAMS: Final = (
    Program("cowboy", "corral.cowboy.main", ("COWBOY_CONFIG_DIR",), COWBOY),
    Program("tamq", "corral.tamq.main", ("TAMQ_SOCKET",), TAMQ),
    Program(
        "a2a-bridge", "corral.bridge.main", ("BRIDGE_CONFIG", "BRIDGE_DATABASE"), (DOCTOR, JOBS)
    ),
    Program(
        "corral-gateway", "corral.gateway.main", ("GATEWAY_CONFIG", "GATEWAY_SOCKET"), (DOCTOR,)
    ),
)


@dataclass(frozen=True)
class Answer:
    """What a program said to a question: `data` when it was an answer, else `trouble`.

    `code` is that of a refusal in the program's own words; empty when it could not be asked.
    """

    key: str
    data: Mapping[str, Any] | None = None
    trouble: str = ""
    code: str = field(default="", compare=False)


def environment(directories: Sequence[Path], base: Mapping[str, str]) -> dict[str, str]:
    """`base`, and what the `env` files of deployments in `directories` set.

    ConfigError for a directory without one, or one that says something else.
    """
    found = dict(base)
    for directory in directories:
        file = directory / ENV_FILE
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(
                f"{file}: {error.strerror}", hint="the directory of a ./corral up is wanted"
            ) from error
        for number, line in enumerate(lines, 1):
            said = EXPORT.fullmatch(line)
            if said is None:
                raise ConfigError(f"{file}: line {number} is no `export NAME=value`")
            found[said[1]] = "".join(shlex.split(said[2]))
    return found


def of_host(etc: Path = Path("/etc")) -> dict[str, str]:
    """What leads to the services that the NixOS modules set up; of TAMQ, to this user's own."""
    from corral.tamq import host

    found = {
        variable: str(etc / file) for variable, file in HOST_FILES.items() if (etc / file).is_file()
    }
    if any((etc / "cowboy").glob("*/sources.json")):
        found["COWBOY_CONFIG_DIR"] = str(etc / "cowboy")
    socket = host.socket_of(host.own_name())
    if socket is not None:
        found["TAMQ_SOCKET"] = str(socket)
    return found


def present(variables: Mapping[str, str]) -> list[Program]:
    """The services that the environment says are here."""
    return [one for one in PROGRAMS if any(variables.get(mark) for mark in one.marks)]


async def ask(
    program: Program,
    questions: Sequence[Question],
    variables: Mapping[str, str],
    within_s: float = ANSWER_S,
) -> list[Answer]:
    """All questions to one program, at once; what is not answered in time is trouble."""
    return await asyncio.gather(*(_one(program, one, variables, within_s) for one in questions))


async def _one(
    program: Program, question: Question, variables: Mapping[str, str], within_s: float
) -> Answer:
    argv = await asyncio.to_thread(program.argv, variables.get("PATH"))
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, *question.words, "--json",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**variables, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            limit=ANSWER_MAX_BYTES,
        )  # fmt: skip
    except OSError as error:
        return Answer(question.key, trouble=f"{program.name} cannot be run: {error.strerror}")
    try:
        async with asyncio.timeout(within_s):
            printed, _ = await process.communicate()
    except TimeoutError:
        return Answer(question.key, trouble=f"no answer within {within_s:g} s (see --timeout)")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return answer_of(program, question, printed, process.returncode)


def answer_of(program: Program, question: Question, printed: bytes, status: int | None) -> Answer:
    """What was printed, as an answer. Pure."""
    try:
        data = json.loads(printed)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        words = " ".join(question.words)
        return Answer(
            question.key, trouble=f"`{program.name} {words}` ended with {status}, without an answer"
        )
    error = data.get("error")
    if data.get("ok") is False and isinstance(error, dict):
        hint = f" ({error['hint']})" if error.get("hint") else ""
        said = f"{error.get('message', 'refused')}{hint}"
        return Answer(question.key, trouble=said, code=str(error.get("code", "")))
    return Answer(question.key, data=data)
