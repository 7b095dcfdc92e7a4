"""Builds the site of the documentation: `./corral docs [--dir DIR]`, or shows it with `--serve`.

Any Python that has mkdocs-material and markdown-it will do. A warning is a failure: a link to
nothing, a page that nobody would find. The site is built beside its place and put there when it is
whole, so a failure leaves an earlier one as it was. Exit status: 0, 1 (the site was not built), 64
(usage).
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.commands.serve import serve
from mkdocs.config import load_config
from mkdocs.exceptions import MkDocsException

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CONFIG = HERE / "mkdocs.yml"
DEFAULT = ROOT / "reports" / "site"
MARK = ".corral-site"
EXIT_USAGE = 64


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./corral docs", allow_abbrev=False)
    parser.add_argument("--dir", type=Path, default=DEFAULT, help="where (default: reports/site)")
    parser.add_argument(
        "--serve",
        nargs="?",
        type=int,
        const=8000,
        metavar="PORT",
        help="show it on this port of the loopback, as it changes, until Ctrl-C (default: 8000)",
    )
    options = parser.parse_args(arguments)
    told = logging.INFO if options.serve else logging.WARNING
    logging.basicConfig(level=told, format="corral: %(message)s")
    if options.serve:
        # While a page is being written its faults are told, and the others are shown.
        serve(str(CONFIG), dev_addr=f"127.0.0.1:{options.serve}", strict=False)
        return 0
    place = options.dir.absolute()
    if place.exists() and not (place / MARK).exists() and not is_empty(place):
        print(f"corral: {place} exists and is no site: name another folder", file=sys.stderr)
        return EXIT_USAGE
    try:
        put(place)
    except (MkDocsException, OSError) as error:
        print(f"corral: the site was not built: {error}", file=sys.stderr)
        return 1
    print(place / "index.html")
    return 0


def is_empty(place: Path) -> bool:
    return place.is_dir() and not any(place.iterdir())


def put(place: Path) -> None:
    """Builds the site, and then takes it to its place."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as scratch:
        new = Path(scratch) / "new"
        build(load_config(str(CONFIG), site_dir=str(new)))
        (new / MARK).touch()
        if place.exists():
            place.rename(Path(scratch) / "old")
        new.rename(place)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
