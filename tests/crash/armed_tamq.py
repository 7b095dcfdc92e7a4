"""As `tests.harness.armed`, for TAMQ: `python -m tests.crash.armed_tamq POINT:N … -- serve`."""

import sys

from corral.tamq.main import cli
from tests.harness import armed

if __name__ == "__main__":
    armed.main(sys.argv[1:], cli)
