"""`./corral chaos tamq`: many seeds of kills against the real service with real sessions.

    python -m tests.harness.chaos_tamq --seeds N [--seed S] [--jobs J]

Exit status: 0 when no rule was broken and there was a kill, 1 otherwise, 64 for bad usage, 130 when
it was interrupted.
"""

import argparse
import random
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.harness.armed import known_points
from tests.harness.pool import default_jobs
from tests.harness.tamq import Result, Trial, draw, run_trial

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
    trials = [draw((first + number) % SEED_MAX, points) for number in range(options.seeds)]
    began, results = time.monotonic(), played(trials, options.jobs)
    failed = [one for one in results if not one.ok]
    killed_at = {point for one in results for point in one.killed_at}
    kills = sum(one.kills for one in results)
    print(
        f"{len(results)} seeds in {time.monotonic() - began:.0f} s: "
        f"{sum(one.messages for one in results)} messages, "
        f"{sum(one.attempts for one in results)} attempts, {kills} kills, "
        f"at {len(killed_at)} of {len(points)} points; {len(failed)} failed"
    )
    if len(results) < len(trials):
        print(f"interrupted: {len(trials) - len(results)} seeds were not tried", file=sys.stderr)
        return 130
    return 0 if kills and not failed else 1


def played(trials: Sequence[Trial], jobs: int) -> list[Result]:
    """Their results. SIGTERM and Ctrl-C let the trials that run come to their end, and no others.

    A trial that was cut off would leave its sessions behind.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results: list[Result] = []
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_trial, trial) for trial in trials]
        try:
            for future in as_completed(futures):
                results.append(future.result())
                tell(results[-1])
        except KeyboardInterrupt:
            print("interrupted: waiting for the trials that run", file=sys.stderr, flush=True)
            pool.shutdown(cancel_futures=True)
            ended = [one.result() for one in futures if one.done() and not one.cancelled()]
            for late in [one for one in ended if one not in results]:
                results.append(late)
                tell(late)
    return results


def tell(result: Result) -> None:
    if not result.ok:
        print(f"FAILED {result.trial}", *result.violations, sep="\n  ", flush=True)
        print(f"  repeat: ./corral chaos tamq --seeds 1 --seed {result.trial.seed}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
