"""A host with agents, a daemon's control socket that answers as told, and a way to run commands."""

import asyncio
import io
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import CorralError
from corral.cowboy.control import ControlServer
from corral.cowboy.main import cli
from corral.cowboy.settings import CowboySettings
from tests.unit.cowboy_config import samples


@dataclass
class Result:
    """How a command ended, and what it printed."""

    exit_code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `cowboy ARG…` in this process; `stdin` is what it may read."""

    def run(*args: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(list(args))
        printed = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Result(code, printed.out, printed.err)

    return run


@dataclass
class Host:
    """A host's folders, as the environment names them."""

    config: Path
    runtime: Path

    def add(self, agent: str, **sources: Any) -> Path:
        """Writes the `sources.json` of an agent; without `sources`, with one source a2a."""
        folder = self.config / agent
        folder.mkdir()
        (self.runtime / agent).mkdir()
        file = folder / "sources.json"
        plain = sources or {"a2a": samples.source(agent)}
        file.write_text(json.dumps({"version": 1, "agent": agent, "sources": plain}))
        return file

    def control(self, agent: str) -> Path:
        return self.runtime / agent / "control.sock"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="cli-") as name:
        base = Path(name)
        for field in CowboySettings.model_fields:
            monkeypatch.delenv(f"COWBOY_{field.upper()}", raising=False)
        for part in ("config", "state", "runtime"):
            (base / part).mkdir()
            monkeypatch.setenv(f"COWBOY_{part.upper()}_DIR", str(base / part))
        yield Host(base / "config", base / "runtime")


class FakeDaemon:
    """Answers each `op` with what `answers` has for it; keeps what was asked."""

    def __init__(self, path: Path, answers: Mapping[str, Any]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers = dict(answers)
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "FakeDaemon":
        self._thread.start()
        self._server = ControlServer(self._path, dict.fromkeys(self.answers, self._answer))
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _answer(self, request: Mapping[str, object]) -> Mapping[str, object]:
        self.asked.append(dict(request))
        answer = self.answers[str(request["op"])]
        if isinstance(answer, CorralError):
            raise answer
        return dict(answer)


def source_status(name: str = "a2a", **changes: Any) -> dict[str, Any]:
    """One source in a daemon's answer to `status`."""
    return {
        "source": name,
        "state": "running",
        "healthy": True,
        "reason": "",
        "last_poll_age_s": 0.2,
        "turns": {"dispatched": 1},
        "open": 1,
        "parked": 0,
        "unacked": 0,
        "oldest_unanswered": None,
        "events": [],
        **changes,
    }
