"""`python -m tests.nix.render HOST.nix`: the rendering of a host, as JSON."""

import argparse
import sys
from pathlib import Path

from tests.nix import nix, render


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nix.render", allow_abbrev=False)
    parser.add_argument("host", type=Path, help="a NixOS module, as in examples/")
    parser.add_argument("--out", type=Path, help="write there instead of standard output")
    parser.add_argument(
        "--with", type=Path, action="append", default=[], dest="more", metavar="MODULE.nix",
        help="a module that the host has, too",
    )  # fmt: skip
    given = parser.parse_args()
    try:
        more = [one.resolve() for one in given.more]
        text = render.host(given.host.resolve(), more=more).as_text()
    except (nix.NixError, render.HostError, render.BuildError, render.UnknownPackageError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
