"""Finds out what to register for a tmux pane: who is in it now, by server, pane and process."""

import os
from collections.abc import Mapping

from corral.core.errors import UnavailableError, UsageError
from corral.tamq.terminal import process
from corral.tamq.terminal.base import ProcessId, TmuxAddress
from corral.tamq.terminal.tmux import run

_FORMAT = "#{pid}|#{pane_id}|#{pane_dead}|#{pane_pid}|#{pane_tty}"


def pane_of(environ: Mapping[str, str]) -> tuple[str, str]:
    """The socket and the pane that a process inside of tmux finds in its environment.

    `UsageError` outside of tmux.
    """
    socket = environ.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]
    pane = environ.get("TMUX_PANE", "")
    if not socket or not pane:
        raise UsageError("not inside of tmux", hint="name the socket and the pane, as %7")
    return socket, pane


async def discover(socket: str, pane: str) -> TmuxAddress:
    """The address of a pane, with the program in its foreground as the one to write to.

    `socket` is an absolute path.
    When that is this very command, typed at a shell's prompt, it is the shell. `UnavailableError`
    when there is no such pane, or nobody alive in it.
    """
    answer = await run(socket, ("display-message", "-p", "-t", pane, _FORMAT))
    if answer is None or answer.status != 0:
        why = "does not answer" if answer is None else answer.error.strip() or "has no such pane"
        raise UnavailableError(f"tmux {socket}, pane {pane}: {why}", ids={"pane": pane})
    server_pid, pane_id, dead, pane_pid, tty = answer.output.strip().split("|")
    server = process.identify(int(server_pid))
    # tmux answers for a pane that does not exist with empty fields, and no failure.
    target = (
        None
        if dead == "1" or not pane_pid
        else _foreground(int(pane_pid), process.terminal_at(tty))
    )
    if server is None or target is None:
        raise UnavailableError(
            f"tmux {socket}, pane {pane}: nobody lives there", ids={"pane": pane}
        )
    return TmuxAddress(socket, server, pane_id, target)


def _foreground(pane_pid: int, tty: process.Tty | None) -> ProcessId | None:
    first = process.read(pane_pid)
    if first is None or tty is None or first.tty != tty.device:
        return None
    leader = first.foreground if first.foreground != os.getpgrp() else _shell_of_ours()
    found = process.read(leader)
    if found is None or found.tty != tty.device:
        return None
    return process.identify(leader)


def _shell_of_ours() -> int:
    """Who started our process group: the nearest ancestor outside of it."""
    stat = process.read(os.getpid())
    while stat is not None and stat.pgid == os.getpgrp():
        stat = process.read(stat.ppid)
    return 0 if stat is None else stat.pid
