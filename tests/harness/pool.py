"""Runs trials side by side, each in a worker process of its own."""

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.harness.trial import Result, Trial, run_blocking


def default_jobs() -> int:
    """Trials wait more than they work: two for each processor."""
    return 2 * len(os.sched_getaffinity(0))


class Pool:
    """Worker processes; use as a context manager, so that none is left behind."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(jobs, mp_context=context)

    def submit(self, trial: Trial) -> "Future[Result]":
        return self._executor.submit(run_blocking, trial)

    def run(self, trials: Iterable[Trial]) -> Iterator[Result]:
        """Results as they come; at most a few trials are queued ahead."""
        pending: set[Future[Result]] = set()
        for trial in trials:
            pending.add(self.submit(trial))
            if len(pending) >= self.jobs * 2:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        for future in pending:
            yield future.result()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exc: object) -> None:
        self._executor.shutdown(cancel_futures=True)
