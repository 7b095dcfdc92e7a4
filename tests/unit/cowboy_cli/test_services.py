"""The services as the command line starts them, what they load, and completion in the shell."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.shell_completion import BashComplete

from corral.cowboy.main import cli
from corral.cowboy.settings import CowboySettings
from tests.unit.cowboy_cli.conftest import Host, Run
from tests.unit.cowboy_config import samples
from tests.unit.loaded import modules_after

REPOSITORY = Path(__file__).parents[3]


class TestServices:
    def test_run_starts_the_daemon(
        self, run: Run, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started = []

        async def run_daemon(settings: CowboySettings, agent: str) -> None:
            started.append((settings.config_dir, agent))

        module = ModuleType("corral.cowboy.daemon")
        module.run_daemon = run_daemon  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "corral.cowboy.daemon", module)
        assert run("run", "scout", "--log-level", "debug").exit_code == 0
        assert started == [(host.config, "scout")]

    @pytest.mark.parametrize("code", [0, 70])
    def test_runner_starts_the_runner_with_the_agents_plans(
        self, code: int, run: Run, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from corral.cowboy.runner import main as service

        started: list[service.RunnerOptions] = []

        def main(options: service.RunnerOptions) -> int:
            started.append(options)
            return code

        monkeypatch.setattr(service, "main", main)
        host.add("scout")
        assert run("runner", "scout").exit_code == code
        assert (started[0].agent, list(started[0].plans)) == ("scout", ["a2a"])
        assert started[0].socket == host.runtime / "scout" / "runner.sock"
        assert started[0].runs == host.runtime / "scout" / "runs"

    @pytest.mark.parametrize(("setting", "inherits"), [(None, False), ("true", True)])
    def test_runs_inherit_only_when_told(
        self,
        setting: str | None,
        inherits: bool,
        run: Run,
        host: Host,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        from corral.cowboy.runner import main as service
        from corral.cowboy.runner.plan import ExecPlan

        started: list[service.RunnerOptions] = []
        monkeypatch.setattr(service, "main", started.append)
        monkeypatch.setenv("API_KEY", "k")
        if setting is not None:
            monkeypatch.setenv("COWBOY_RUNS_INHERIT", setting)
        host.add("scout", a2a=samples.source(runner={"kind": "exec", "command": ["x"]}))
        run("runner", "scout")
        plan = started[0].plans["a2a"]
        assert isinstance(plan, ExecPlan)
        assert plan.environment.get("API_KEY") == ("k" if inherits else None)
        assert not [name for name in plan.environment if name.startswith("COWBOY_")]

    def test_a_bad_file_stops_the_runner_with_the_path_of_the_key(
        self, run: Run, host: Host
    ) -> None:
        host.add("scout", a2a=samples.source(read_count=0))
        result = run("runner", "scout")
        assert result.exit_code == 78
        assert result.err.startswith("cowboy: sources.a2a.read_count: ")


class TestImports:
    def test_the_program_alone_loads_nothing_slow(self) -> None:
        loaded = modules_after("import corral.cowboy.main")
        assert not loaded & {"pydantic", "redis", "structlog", "rich", "sqlite3", "aiosqlite"}

    def test_the_runner_loads_no_redis_client(self, host: Host) -> None:
        host.add("scout")
        loaded = modules_after(
            "from corral.cowboy.runner import main as service\n"
            "from corral.cowboy.main import cli\n"
            "service.main = lambda options: 0\n"
            "try:\n"
            "    cli.main(['runner', 'scout'])\n"
            "except SystemExit as ended:\n"
            "    assert ended.code == 0, ended.code\n"
        )
        assert "corral.cowboy.runner.main" in loaded
        assert not loaded & {
            "redis",
            "hiredis",
            "rich",
            "sqlite3",
            "aiosqlite",
            "prometheus_client",
        }


class TestCompletion:
    def complete(self, *words: str) -> list[str]:
        """What the shell offers for the last of `words`."""
        shell = BashComplete(cli, {}, "cowboy", "_COWBOY_COMPLETE")
        return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]

    def test_agents_and_sources_are_completed(self, host: Host) -> None:
        host.add("scout", a2a=samples.source(), chat=samples.source(name="chat"))
        host.add("other")
        assert self.complete("run", "") == ["other", "scout"]
        assert self.complete("status", "s") == ["scout"]
        assert self.complete("send", "scout", "c") == ["chat"]
        assert self.complete("send", "none", "") == []
        assert self.complete("turns", "l") == ["list"]

    def test_nothing_is_offered_where_nothing_can_be_read(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COWBOY_CONFIG_DIR", str(host.config / "none"))
        assert self.complete("run", "") == []

    def test_the_shell_gets_its_script(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "corral.cowboy.main"],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY / "python"),
                "_COWBOY_COMPLETE": "zsh_source",
            },
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "_COWBOY_COMPLETE=zsh_complete cowboy" in done.stdout
