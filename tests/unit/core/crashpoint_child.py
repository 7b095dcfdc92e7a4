"""Scenario: pass a point some times, armed at the n-th pass or only in the environment."""

import sys

from corral.core import crashpoints
from tests.unit.core.child import say

POINT = crashpoints.register("test.child.point", "a point of this scenario")
PASSES = 5


def main(nth: int) -> None:
    if nth:
        crashpoints.arm(POINT, nth)
    for number in range(1, PASSES + 1):
        crashpoints.crashpoint(POINT)
        say(number)


if __name__ == "__main__":
    main(int(sys.argv[1]))
