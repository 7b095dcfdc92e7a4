"""The operator's procedure as the page has it: run, and compared or written anew.

`python -m tests.contract.procedure` runs the page's commands and writes what they print into it;
`test_procedure.py` compares. Ids, times, ages and sizes differ from run to run: before two outputs
are compared these are replaced, the same id by the same word.
"""

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corral.local.deployment import RUNNER
from tests.contract.kit import AGENT, PAIRS, House

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "investigate-a-message.md"
CONTENT = "rotate my backups and mail me the result"
# The first run hangs until its runner dies; the next one does the work.
SCRIPT = 'cat >/dev/null; mkdir "$FIRST" 2>/dev/null && exec sleep 60; echo "rotated, mail sent"'
_BLOCK = re.compile(
    r"^```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL
)
_ENTRY = re.compile(r"\b\d{13}-\d+\b")
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "MESSAGE"),
    (re.compile(r"\b\d+(\.\d+)? (s|min|ms)\b"), "AGE"),
    (re.compile(r" {2,}"), "  "),  # columns are as wide as their widest value
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


@dataclass(frozen=True)
class Block:
    command: str
    output: str


def blocks(text: str) -> list[Block]:
    return [Block(found["command"], found["output"]) for found in _BLOCK.finditer(text)]


def normal(outputs: list[str]) -> list[str]:
    """The outputs with what varies replaced; ids are numbered in the order in which they come."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"ID{len(numbers)}")

    changed = []
    for output in outputs:
        text = _ENTRY.sub(number, output)
        for pattern, word in _VARIES:
            text = pattern.sub(word, text)
        changed.append(text)
    return changed


class Procedure:
    """One incident: anna's message, interrupted; then the page's commands, in order."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._entry = ""
        self._new = ""

    async def incident(self, started: Path) -> None:
        house = self._house
        await house.start()
        outbox = f"{AGENT}:a2a:outbox"
        self._entry = await house.send("a2a", CONTENT, channel="ops", sender="anna")
        await house.until(started.exists, "the run to start")
        await house.slay(RUNNER)
        await house.start(RUNNER)
        await house.until_answered("a2a", [self._entry])
        await house.until_quiet("a2a")
        await house.admin("XGROUP", "CREATE", outbox, "source", "0")
        reader = ("GROUP", "source", "reader", "COUNT", 1, "STREAMS", outbox, ">")
        await house.as_identity("source.scout.a2a", "XREADGROUP", *reader)
        ((notice, _),) = await house.admin("XRANGE", outbox, "-", "+")
        await house.as_identity("source.scout.a2a", "XACK", outbox, "source", notice)

    async def run(self, page: str) -> list[Block]:
        """Each command with what it printed; ids of the page stand for those of the incident."""
        done = []
        written = list(dict.fromkeys(_ENTRY.findall(page)))
        for block in blocks(page):
            named = _ENTRY.search(block.command)
            ids = {written[0]: self._entry}
            if named is not None and named[0] != written[0]:
                await self._house.until_answered("a2a", [self._new])
                await self._house.until_quiet("a2a")
                ids[named[0]] = self._new
            words = [ids.get(word, word) for word in shlex.split(block.command)]
            output = await self._output(words)
            if words[1] == "resubmit" and not self._new:
                self._new = _ENTRY.findall(output)[0]
            shown = _ENTRY.sub(lambda found, ids=ids: ids.get(found[0], found[0]), block.command)  # type: ignore[misc]
            done.append(Block(shown, output))
        return done

    async def _output(self, words: list[str]) -> str:
        if words[0] == "r":
            return await self._redis_cli(words[1:])
        ended = await self._house.cowboy(*words[1:], identity="operator")
        return ended.out + ended.err

    async def _redis_cli(self, words: list[str]) -> str:
        program = shutil.which("redis-cli")
        assert program is not None, "redis-cli is missing: apt-get install redis-tools"
        topology = self._house.topology
        process = await asyncio.create_subprocess_exec(
            *(program, "--no-raw", "-s", str(topology.redis_socket), "--user", "operator", *words),
            env=os.environ | {"REDISCLI_AUTH": topology.login("operator").password or ""},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        return out.decode()


async def perform(page: str, folder: Path) -> list[Block]:
    """The incident in a deployment of its own, and the page's commands on it."""
    first = folder / "first-run"
    runner = {"kind": "exec", "command": ["/bin/sh", "-c", SCRIPT], "turn_timeout_s": 60}
    runner["environment"] = {"FIRST": str(first)}
    changes = {"a2a": {"runner": runner, "reclaim_idle_ms": 600_000}}
    async with House(PAIRS[0], only=("a2a",), changes=changes) as house:
        procedure = Procedure(house)
        await procedure.incident(first)
        return await procedure.run(page)


def written(page: str, done: list[Block]) -> str:
    """The page with these outputs, and with the ids of this run in its commands."""
    following: Iterator[Block] = iter(done)

    def replace(_: re.Match[str]) -> str:
        block = next(following)
        return f"```console\n$ {block.command}\n{block.output.rstrip()}\n```"

    return _BLOCK.sub(replace, page)


def main() -> None:
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory(prefix="procedure-") as name:
        PAGE.write_text(written(page, asyncio.run(perform(page, Path(name)))))


if __name__ == "__main__":
    main()
