"""The agent behind the whole chain: notes each start, and answers in capitals, as an envelope.

    gate PATH TEXT   first waits until somebody opens the FIFO at PATH
    long COUNT TEXT  says TEXT that often
    ask TEXT         asks that: it needs more input

Run with `python -S -E -I`; the standard library alone. `CHAIN_STARTS` names the file that gets a
line with the turn's id when a run begins.
"""

import json
import os
import sys

STARTS = "CHAIN_STARTS"


def envelope(prompt: str) -> dict[str, str]:
    """What it answers; it has worked meanwhile."""
    word, _, rest = prompt.strip().partition(" ")
    argument, _, said = rest.partition(" ")
    match word:
        case "ask":
            return {"state": "input_required", "text": rest}
        case "gate":
            os.close(os.open(argument, os.O_RDONLY))
        case "long":
            said = f"{said} " * int(argument)
        case _:
            said = prompt.strip()
    return {"state": "completed", "text": said.upper()}


def main() -> None:
    log = os.open(os.environ[STARTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, os.environ["CORRAL_TURN_ID"].encode() + b"\n")
    print(json.dumps(envelope(sys.stdin.buffer.read().decode())))


if __name__ == "__main__":
    main()
