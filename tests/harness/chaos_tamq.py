"""`./corral chaos tamq`: many seeds of kills against the real service with real sessions.

    python -m tests.harness.chaos_tamq --seeds N [--seed S] [--jobs J]

Exit status: 0 when no rule was broken and there was a kill, 1 otherwise, 64 for bad usage.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.harness.armed import known_points
from tests.harness.pool import default_jobs
from tests.harness.tamq import draw, run_trial

SEED_MAX = 2**31


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./corral chaos tamq", allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, metavar="S", help="the first seed; default: by chance")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="J")
    try:
        options = parser.parse_args(argv)
    except SystemExit as error:
        return 64 if error.code else 0
    if options.seeds < 1 or options.jobs < 1:
        print("chaos: --seeds and --jobs must be at least 1", file=sys.stderr)
        return 64
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(SEED_MAX)
    print(f"seeds {first} to {first + options.seeds - 1}, {options.jobs} jobs", file=sys.stderr)
    points = sorted(known_points("tamq"))
    began, kills, messages, attempts = time.monotonic(), 0, 0, 0
    failed: list[int] = []
    killed_at: set[str] = set()
    with ThreadPoolExecutor(options.jobs) as pool:
        trials = [draw((first + number) % SEED_MAX, points) for number in range(options.seeds)]
        for result in pool.map(run_trial, trials):
            kills, messages = kills + result.kills, messages + result.messages
            attempts += result.attempts
            killed_at.update(result.killed_at)
            if not result.ok:
                failed.append(result.trial.seed)
                print(f"FAILED {result.trial}", *result.violations, sep="\n  ", flush=True)
                print(f"  repeat: ./corral chaos tamq --seeds 1 --seed {result.trial.seed}")
    print(
        f"{options.seeds} seeds in {time.monotonic() - began:.0f} s: {messages} messages, "
        f"{attempts} attempts, {kills} kills, at {len(killed_at)} of {len(points)} points; "
        f"{len(failed)} failed"
    )
    return 0 if kills and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
