"""Makes fsync() and fdatasync() fail with EIO in one thread, by a seccomp filter."""

import ctypes
import errno
import platform
import sqlite3

# The system call numbers of fsync and fdatasync by machine.
NUMBERS = {"x86_64": (74, 75), "aarch64": (82, 83)}

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def no_flush_in_this_thread(_connection: sqlite3.Connection) -> None:
    """A request to the writer; `OSError` where the kernel takes no filter."""
    fsync, fdatasync = NUMBERS[platform.machine()]
    instructions = (_Instruction * 5)(
        _Instruction(_LOAD, 0, 0, 0),  # the number of the system call
        _Instruction(_JUMP_EQUAL, 2, 0, fsync),
        _Instruction(_JUMP_EQUAL, 1, 0, fdatasync),
        _Instruction(_RETURN, 0, 0, _ALLOW),
        _Instruction(_RETURN, 0, 0, _ERRNO | errno.EIO),
    )
    program = _Program(len(instructions), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0),
    )
    for step in steps:
        if libc.prctl(*step) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
