"""Where the crash tests kill the writer of a terminal (the daemon for tmux, the host for a pty)."""

from corral.core.crashpoints import register

TYPING = register("tamq.terminal.typing", "the terminal is ready; nothing has been written yet")
PASTED = register("tamq.terminal.pasted", "the text was written, Enter was not")
SUBMITTED = register("tamq.terminal.submitted", "Enter was written; nobody has looked yet")
