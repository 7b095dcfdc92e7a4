"""Scenario: what the logs import."""

import sys

import corral.core.logs  # noqa: F401
from tests.unit.core.child import say

if __name__ == "__main__":
    with_logs = "rich" in sys.modules
    import rich  # noqa: F401

    say({"with logs": with_logs, "afterwards": "rich" in sys.modules})
