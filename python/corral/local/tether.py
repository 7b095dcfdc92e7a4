"""Runs a program that dies with its parent: `tether.py PARENT_PID - PROGRAM ARG…`.

A deployment that is itself killed must leave nothing behind. The parent-death signal survives
`execve`, so the process that the supervisor sees is the program itself, under the same pid. (A
hook between fork and exec would do the same, but is unsafe in a process that has threads.)

In place of `-` stands `UID:GID` for a program that must not run as root.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
SAME_USER = "-"


def tethered(argv: list[str], user: tuple[int, int] | None = None) -> list[str]:
    """The command line that runs `argv` tied to the life of the calling process: for the kernel, of
    the thread that starts it, so that must be one that lasts.

    `user` is the uid and gid to run it as; only root may choose.
    """
    who = SAME_USER if user is None else f"{user[0]}:{user[1]}"
    return [sys.executable, "-S", "-E", str(Path(__file__)), str(os.getpid()), who, *argv]


def main(argv: list[str]) -> None:
    """Asks for SIGKILL at the parent's death, then becomes the program."""
    parent, who, program = int(argv[1]), argv[2], argv[3:]
    if who != SAME_USER:  # before the request: a change of the user would undo it
        uid, gid = (int(part) for part in who.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before the request: nobody would end us
        sys.exit(1)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv)
