"""Runs a program that dies with its parent: `python -S -E tether.py PARENT_PID PROGRAM ARG…`.

A deployment that is itself killed must leave nothing behind. The parent-death signal survives
`execve`, so the process that the supervisor sees is the program itself, under the same pid. (A
hook between fork and exec would do the same, but is unsafe in a process that has threads.)
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def tethered(argv: list[str]) -> list[str]:
    """The command line that runs `argv` tied to the life of the calling process."""
    return [sys.executable, "-S", "-E", str(Path(__file__)), str(os.getpid()), *argv]


def main(argv: list[str]) -> None:
    """Asks for SIGKILL at the parent's death, then becomes the program."""
    parent, program = int(argv[1]), argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before the request: nobody would end us
        sys.exit(1)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv)
