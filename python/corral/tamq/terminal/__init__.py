"""Terminals: where the messages of the queue are written. See `base` for what the queue knows."""

from corral.tamq.terminal.base import Address, Terminal, TmuxAddress
from corral.tamq.terminal.profiles import Profile


def open_terminal(address: Address, profile: Profile) -> Terminal:
    """The terminal at an address. Does no I/O; `close` it when it is no longer needed."""
    if isinstance(address, TmuxAddress):
        from corral.tamq.terminal.tmux import TmuxTerminal

        return TmuxTerminal(address, profile)
    from corral.tamq.terminal.pty import PtyTerminal

    return PtyTerminal(address)
