"""An agent to try things with: it answers in capitals. Run with `python -S -E -I`, prompt on stdin.

`slow SECONDS TEXT` works that long before it answers TEXT. It uses the standard library alone.
"""

import sys
import time

SLOW_MAX_S = 3_600.0


def plan(prompt: str) -> tuple[float, str]:
    """How long it works, and what it answers."""
    word, _, rest = prompt.strip().partition(" ")
    if word.lower() == "slow":
        seconds, _, said = rest.partition(" ")
        try:
            return min(max(float(seconds), 0.0), SLOW_MAX_S), said.upper() or "DONE"
        except ValueError:
            pass
    return 0.0, prompt.strip().upper()


def main() -> None:
    takes_s, answer = plan(sys.stdin.buffer.read().decode())
    time.sleep(takes_s)
    sys.stdout.buffer.write(answer.encode())


if __name__ == "__main__":
    main()
