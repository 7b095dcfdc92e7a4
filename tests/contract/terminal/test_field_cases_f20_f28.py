"""Field cases F20 to F28 against a real tmux server and imitated agents."""

import asyncio
import dataclasses
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from corral.tamq.terminal import open_terminal, process
from corral.tamq.terminal.attach import discover
from corral.tamq.terminal.base import Outcome, Ready
from corral.tamq.terminal.profiles import BUILT_IN
from tests.contract.terminal.conftest import StartTmux, Woken
from tests.contract.terminal.panes import Agent, envelope, soon, wake
from tests.harness.armed import alive

StartAgent = Callable[..., Awaitable[Woken]]
LOOKS = ["claude-code", "codex"]
HOSTILE = "echo safe\x1b[201~\recho pwned\r"


@pytest.mark.parametrize("look", LOOKS)
async def test_f20_a_draft_defers_and_is_neither_appended_to_nor_cleared(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look)
    woken.tmux.type("-l", "half a thou")
    woken.tmux.see("half a thou")
    readiness = await woken.terminal.readiness(wake("hello"))
    assert (readiness.state, readiness.reason) == (Ready.DRAFT, "draft")
    injection = await woken.terminal.inject(wake("hello"))
    assert injection.outcome is Outcome.NOT_READY
    assert not injection.typed
    woken.tmux.type("-l", "ght")
    woken.tmux.type("Enter")
    soon(lambda: "Try" in woken.tmux.shown or "Ask" in woken.tmux.shown, "an empty composer")
    assert woken.agent.submitted == ["half a thought"]
    # The positive control: with the draft gone, the same message goes through.
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.INJECTED
    assert woken.agent.submitted[1:] == [envelope("hello")]


async def test_f20_four_senders_at_once_do_not_interleave(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    bodies = [f"{number} " * 60 for number in range(4)]
    # Each of the four has opened the pane for itself.
    terminals = [open_terminal(woken.terminal.address, BUILT_IN["claude-code"]) for _ in bodies]
    ids = [f"{number}-{number:032x}" for number in range(4)]
    injections = await asyncio.gather(
        *(
            terminal.inject(wake(body, message_id=message_id))
            for terminal, body, message_id in zip(terminals, bodies, ids, strict=True)
        )
    )
    assert [one.outcome for one in injections] == [Outcome.INJECTED] * 4
    expected = {envelope(body, message_id=one) for body, one in zip(bodies, ids, strict=True)}
    assert set(map(str, woken.agent.submitted)) == expected
    assert len(woken.agent.submitted) == 4


@pytest.mark.parametrize("look", LOOKS)
async def test_f21_an_enter_that_is_swallowed_is_retried_alone(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look, "--swallow", "1")
    injection = await woken.terminal.inject(wake("hello"))
    assert (injection.outcome, injection.enters) == (Outcome.INJECTED, 2)
    assert woken.agent.submitted == [envelope("hello")]


@pytest.mark.parametrize("look", LOOKS)
async def test_f21_an_enter_right_after_a_burst_would_be_a_line_end(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look, "--burst-ms", "120")
    injection = await woken.terminal.inject(wake("hello"))
    assert (injection.outcome, injection.enters) == (Outcome.INJECTED, 1)
    assert woken.agent.submitted == [envelope("hello")]


@pytest.mark.parametrize(("look", "body"), [("claude-code", "short"), ("codex", "c" * 2000)])
async def test_f21_never_injected_without_evidence_and_the_next_attempt_sends_only_enter(
    start_agent: StartAgent, look: str, body: str
) -> None:
    woken = await start_agent(look, "--swallow", "3")
    first = await woken.terminal.inject(wake(body))
    assert (first.outcome, first.reason) == (Outcome.NOT_SUBMITTED, "enter_ignored")
    assert (first.typed, first.enters) == (True, 3)
    assert woken.agent.submitted == []
    # Another message does not mix with it, and to this one it is no draft.
    other = await woken.terminal.readiness(wake("other", message_id="8-" + "ab" * 16))
    assert other.state is Ready.DRAFT
    again = await woken.terminal.readiness(wake(body, 2, 1))
    assert (again.state, again.pasted) == (Ready.READY, True)
    second = await woken.terminal.inject(wake(body, 2, 1))
    assert (second.outcome, second.enters) == (Outcome.INJECTED, 1)
    assert woken.agent.submitted == [envelope(body, 1)]


async def test_f22_the_body_cannot_end_the_paste(start_tmux: StartTmux, tmp_path: Path) -> None:
    """In a shell, where what follows the end of the paste would be run."""
    tmux = start_tmux(f"cd {tmp_path} && exec bash --norc")
    tmux.see("bash")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["shell"])
    body = "touch safe\x1b[201~\rtouch pwned\r\x9b201~\x07\x7f"
    assert (await terminal.inject(wake(body))).outcome is Outcome.INJECTED
    tmux.interrupt()
    tmux.type("-l", "touch control")
    tmux.type("Enter")
    soon((tmp_path / "control").exists, "the positive control")
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "safe").exists()


@pytest.mark.parametrize("look", LOOKS)
async def test_f22_an_agent_sees_the_escape_as_text(start_agent: StartAgent, look: str) -> None:
    woken = await start_agent(look)
    assert (await woken.terminal.inject(wake(HOSTILE))).outcome is Outcome.INJECTED
    shown = r"echo safe\x1b[201~\x0decho pwned\x0d"
    assert woken.agent.events == [{"submitted": envelope(shown), "while_working": False}]


async def test_f23_copy_mode_is_seen(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    woken.tmux.run("copy-mode", "-t", woken.tmux.pane)
    readiness = await woken.terminal.readiness(wake("hello"))
    assert (readiness.state, readiness.reason) == (Ready.COPY_MODE, "copy_mode")
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.NOT_READY
    woken.tmux.run("send-keys", "-t", woken.tmux.pane, "-X", "cancel")
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.INJECTED
    assert woken.agent.submitted == [envelope("hello")]


@pytest.mark.parametrize("look", LOOKS)
async def test_f24_a_question_is_never_answered(start_agent: StartAgent, look: str) -> None:
    woken = await start_agent(look)
    woken.tmux.type("C-p")
    woken.tmux.see("1. Yes")
    readiness = await woken.terminal.readiness(wake("hello"))
    assert (readiness.state, readiness.reason) == (Ready.DIALOG, "dialog")
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.NOT_READY
    assert woken.agent.events == []
    woken.tmux.type("Enter")
    soon(lambda: woken.agent.events == [{"answered": "1. Yes"}], "the person's answer")


@pytest.mark.parametrize("look", LOOKS)
async def test_f24_a_question_that_comes_up_before_enter_is_not_answered(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look)
    injecting = asyncio.ensure_future(woken.terminal.inject(wake("hello")))
    await asyncio.to_thread(woken.tmux.see, "end of TAMQ")
    await asyncio.to_thread(woken.tmux.type, "C-p")
    injection = await injecting
    assert injection.outcome is Outcome.UNKNOWN
    assert woken.agent.events == []
    # When the person has answered, our text is in the composer still: only Enter is sent.
    woken.tmux.type("Enter")
    soon(lambda: woken.agent.events == [{"answered": "1. Yes"}], "the person's answer")
    woken.tmux.see("end of TAMQ")
    second = await woken.terminal.inject(wake("hello", 2, 1))
    assert second.outcome is Outcome.INJECTED
    assert woken.agent.submitted == [envelope("hello", 1)]


@pytest.mark.parametrize(
    "body",
    [
        "run the tests;",
        "; ls",
        "-n -t -X --",
        "\"double\" 'single' `back` $HOME \\ #{pid} %1",
        "世界 héllo 🙂 ok",
        "\ttab",
        "é" * 4096,
        "#!/bin/sh\n" + "x" * 8182,
    ],
    ids=lambda body: body[:12],
)
async def test_f25_every_byte_arrives(start_agent: StartAgent, body: str) -> None:
    woken = await start_agent("claude-code")
    assert (await woken.terminal.inject(wake(body))).outcome is Outcome.INJECTED
    assert woken.agent.submitted == [envelope(body)]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("body", ["line\n", "line\n\n\n", "one\ntwo", "a\n" * 40, "\n\nafter"])
async def test_f26_lines_are_submitted_as_one_and_a_trailing_one_is_removed(
    start_agent: StartAgent, look: str, body: str
) -> None:
    woken = await start_agent(look)
    assert (await woken.terminal.inject(wake(body))).outcome is Outcome.INJECTED
    assert woken.agent.submitted == [envelope(body.rstrip("\n"))]


async def test_f26_a_program_without_bracketed_paste_gets_one_line(
    start_tmux: StartTmux, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    tmux = start_tmux(f"exec cat > {kept}")
    address = await discover(tmux.socket, tmux.pane)
    terminal = open_terminal(address, BUILT_IN["plain"])
    soon(lambda: tmux.tell("#{pane_current_command}") == "cat", "the program")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["plain"])
    assert (await terminal.inject(wake("one\ntwo\tthree"))).outcome is Outcome.INJECTED
    soon(lambda: kept.exists() and kept.read_text().endswith("\n"), "the line")
    assert (
        kept.read_text()
        == envelope("one\ntwo").replace("\n", r" \n ").replace("two", r"two \t three") + "\n"
    )


async def test_f27_when_the_agent_exits_the_shell_gets_nothing(
    start_tmux: StartTmux, tmp_path: Path
) -> None:

    agent = Agent(tmp_path, "claude-code")
    tmux = start_tmux("exec bash --norc")
    tmux.see("bash")
    tmux.type("-l", agent.command.removeprefix("exec "))
    tmux.type("Enter")
    tmux.see("? for shortcuts")
    address = await discover(tmux.socket, tmux.pane)
    assert address.process.pid != int(tmux.tell("#{pane_pid}"))
    terminal = open_terminal(address, BUILT_IN["claude-code"])
    assert (await terminal.inject(wake("hello"))).outcome is Outcome.INJECTED
    tmux.type("C-x")
    soon(lambda: tmux.tell("#{pane_current_command}") == "bash", "the shell")
    soon(lambda: tmux.shown.rstrip().endswith(("$", "#")), "its prompt")
    before = tmux.shown
    for _ in range(2):
        readiness = await terminal.readiness(wake("rm -rf"))
        assert (readiness.state, readiness.reason) == (Ready.GONE, "process_gone")
        assert (await terminal.inject(wake("rm -rf"))).outcome is Outcome.GONE
    assert tmux.shown == before


async def test_f27_another_program_in_the_foreground_defers(start_tmux: StartTmux) -> None:
    tmux = start_tmux("exec bash --norc")
    tmux.see("bash")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["shell"])
    tmux.type("-l", "cat")
    tmux.type("Enter")
    soon(lambda: tmux.tell("#{pane_current_command}") == "cat", "the other program")
    readiness = await terminal.readiness(wake("hello"))
    assert (readiness.state, readiness.reason) == (Ready.OTHER_PROGRAM, "other_program")
    tmux.interrupt()
    assert (await terminal.inject(wake("hello"))).outcome is Outcome.INJECTED


async def test_f27_a_pid_that_was_given_to_another_process_is_not_the_agent(
    start_agent: StartAgent,
) -> None:
    woken = await start_agent("claude-code")
    address = woken.terminal.address
    other = address.process._replace(start_ticks=address.process.start_ticks - 1)

    impostor = open_terminal(dataclasses.replace(address, process=other), BUILT_IN["claude-code"])
    assert (await impostor.inject(wake("hello"))).outcome is Outcome.GONE
    assert (await woken.terminal.readiness()).state is Ready.READY


@pytest.mark.parametrize("look", LOOKS)
async def test_f28_a_working_agent_is_waited_for_and_no_escape_is_ever_sent(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look, "--works")
    assert (await woken.terminal.inject(wake("first"))).outcome is Outcome.INJECTED
    woken.tmux.see("esc to interrupt")
    readiness = await woken.terminal.readiness(wake("second"))
    assert (readiness.state, readiness.reason) == (Ready.BUSY, "working")
    assert (await woken.terminal.inject(wake("second"))).outcome is Outcome.NOT_READY
    woken.tmux.type("C-w")
    soon(lambda: "esc to interrupt" not in woken.tmux.shown, "the end of the turn")
    assert (await woken.terminal.inject(wake("second"))).outcome is Outcome.INJECTED
    assert woken.agent.all_of("escape") == []
    assert woken.agent.submitted == [envelope("first"), envelope("second")]


@pytest.mark.parametrize("look", LOOKS)
async def test_f28_a_question_right_after_enter_is_evidence_of_nothing_but_the_transcript(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look, "--asks")
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.INJECTED
    woken.tmux.see("1. Yes")
    assert woken.agent.events == [{"submitted": envelope("hello"), "while_working": False}]


# ---- the rest of a pane's life --------------------------------------------------------------


async def test_the_tmux_server_is_killed(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    os.kill(woken.tmux.pid, signal.SIGKILL)
    soon(lambda: not alive(woken.tmux.pid), "its end")
    assert (await woken.terminal.readiness()).reason == "server_gone"
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.GONE


async def test_another_server_on_the_same_socket_is_not_the_registered_one(
    start_agent: StartAgent, start_tmux: StartTmux
) -> None:
    woken = await start_agent("claude-code")
    woken.tmux.close()
    second = start_tmux(woken.agent.command)
    second.see("? for shortcuts")
    assert second.pane == woken.tmux.pane
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.GONE
    assert woken.agent.events == []


async def test_a_pane_that_is_killed_or_dead(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    woken.tmux.run("set-option", "-g", "remain-on-exit", "on")
    woken.tmux.type("C-x")
    soon(lambda: woken.tmux.tell("#{pane_dead}") == "1", "the dead pane")
    assert (await woken.terminal.readiness()).state is Ready.GONE
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.GONE


async def test_a_pane_is_gone_though_its_process_survives(start_tmux: StartTmux) -> None:
    tmux = start_tmux("trap '' HUP; while read x; do :; done; exec sleep 600")
    tmux.run("new-session", "-d", "exec cat")  # keeps the server
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["plain"])
    assert (await terminal.readiness()).state is Ready.READY
    tmux.run("kill-pane", "-t", tmux.pane)
    survivor = terminal.address.process
    try:
        assert (await terminal.readiness()).state is Ready.GONE
        assert (await terminal.inject(wake("hello"))).outcome is Outcome.GONE
    finally:
        if process.find(survivor) is not None:
            os.kill(survivor.pid, signal.SIGKILL)


async def test_the_process_is_killed_between_the_paste_and_enter(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    injecting = asyncio.ensure_future(woken.terminal.inject(wake("hello")))
    await asyncio.to_thread(woken.tmux.see, "end of TAMQ")
    os.kill(woken.terminal.address.process.pid, signal.SIGKILL)
    injection = await injecting
    assert injection.outcome is Outcome.UNKNOWN
    assert (await woken.terminal.readiness()).state is Ready.GONE


async def test_a_server_that_is_stopped_is_unreachable_not_gone(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    os.kill(woken.tmux.pid, signal.SIGSTOP)
    try:
        readiness = await woken.terminal.readiness(wake("hello"))
        assert readiness.state is Ready.UNREACHABLE
    finally:
        os.kill(woken.tmux.pid, signal.SIGCONT)
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.INJECTED


async def test_a_pane_is_its_id_never_a_prefix(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    woken.tmux.run("rename-session", "fleet-1")
    woken.tmux.run("new-session", "-d", "-s", "fleet-10", "cat")
    woken.tmux.run("move-pane", "-s", woken.tmux.pane, "-t", "fleet-10:")
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.INJECTED
    assert woken.agent.submitted == [envelope("hello")]


async def test_synchronised_panes_get_nothing(start_agent: StartAgent, tmp_path: Path) -> None:
    woken = await start_agent("claude-code", width=120, height=50)
    kept = tmp_path / "kept"
    woken.tmux.run("split-window", "-d", "-t", woken.tmux.pane, f"exec cat > {kept}")
    woken.tmux.run("set-window-option", "-t", woken.tmux.pane, "synchronize-panes", "on")
    assert (await woken.terminal.inject(wake("hello"))).outcome is Outcome.INJECTED
    assert kept.read_text() == ""
    woken.tmux.type("Enter")  # the positive control: a person's key reaches both
    soon(lambda: kept.read_text() == "\n", "the key in the other pane")


async def test_a_password_prompt_is_no_place_to_write(start_tmux: StartTmux) -> None:
    tmux = start_tmux("exec sh -c 'stty -echo; exec cat'")
    soon(lambda: tmux.tell("#{pane_current_command}") == "cat", "the program")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["plain"])
    readiness = await terminal.readiness(wake("hello"))
    assert (readiness.state, readiness.reason) == (Ready.DIALOG, "no_echo")


async def test_a_line_that_the_kernel_would_cut_waits(start_tmux: StartTmux) -> None:
    tmux = start_tmux("exec cat")
    soon(lambda: tmux.tell("#{pane_current_command}") == "cat", "the program")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["plain"])
    fixed = len(envelope("").replace("\n", r" \n "))
    room = 4095 - fixed
    assert (await terminal.readiness(wake("x" * (room + 1)))).reason == "line_too_long"
    assert (await terminal.readiness(wake("x" * room))).state is Ready.READY


async def test_no_buffer_is_left_behind(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    await woken.terminal.inject(wake("hello"))
    assert woken.tmux.run("list-buffers") == ""


async def test_capture_shows_what_a_person_sees(start_agent: StartAgent) -> None:
    woken = await start_agent("claude-code")
    lines = await woken.terminal.capture()
    assert any("? for shortcuts" in line for line in lines)
    assert json.dumps(lines)
    os.kill(woken.tmux.pid, signal.SIGKILL)
    soon(lambda: not alive(woken.tmux.pid), "its end")
    with pytest.raises(OSError, match=r"server_gone|server_silent"):
        await woken.terminal.capture()
