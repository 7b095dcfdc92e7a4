"""Looks for words where nobody may find them: arguments, environments, files, the journal.

A search that finds nothing proves something only if it finds what is there: `plant` puts a word in
each of these places.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PLACES = ("/etc", "/nix", "/opt", "/run", "/tmp", "/usr/local", "/var")
PLANTED = Path("/var/planted")
JOURNAL = ("journalctl", "-b", "--no-pager", "-o", "export")


def run(words: Path, allowed: Sequence[str]) -> int:
    """Prints where a line of the file `words` was found; 0 when nowhere.

    `cmdline` and `environ` are names of processes, `files` are paths that do not begin with one of
    `allowed`, `journal` is a number of lines.
    """
    found = {
        "cmdline": _holders("cmdline", words),
        "environ": _holders("environ", words),
        "files": _files(words, (str(words), *allowed)),
        "journal": _in_journal(words),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if any(found.values()) else 0


def plant(words: Path) -> int:
    """Puts the one word of the file everywhere: for a control."""
    word = words.read_text(encoding="utf-8").strip()
    for command in (
        ["systemd-run", "--unit=argument", "sh", "-c", f": {word}; sleep 600"],
        ["systemd-run", "--unit=variable", f"--setenv=X={word}", "sleep", "600"],
        ["logger", word],
    ):
        subprocess.run(command, check=True)
    PLANTED.write_text(f"{word}\n", encoding="utf-8")
    return 0


def _holders(what: str, words: Path) -> list[str]:
    """The names of the processes that have one of the words there."""
    processes = [str(path) for path in Path("/proc").glob(f"[0-9]*/{what}")]
    names = set()
    for path in _grep("-laF", words, processes):
        try:
            names.add((Path(path).parent / "comm").read_text().strip())
        except OSError:
            names.add("(gone)")
    return sorted(names)


def _files(words: Path, allowed: tuple[str, ...]) -> list[str]:
    found = _grep("-rlF", words, ["-D", "skip", *PLACES])
    return sorted(path for path in found if not path.startswith(allowed))


def _in_journal(words: Path) -> int:
    with subprocess.Popen(JOURNAL, stdout=subprocess.PIPE) as journal:
        counted = subprocess.run(
            ["grep", "-acF", "-f", str(words)],
            stdin=journal.stdout,
            stdout=subprocess.PIPE,
            check=False,
        )
    return int(counted.stdout)


def _grep(how: str, words: Path, where: Sequence[str]) -> list[str]:
    """The paths; what disappears meanwhile is nowhere."""
    done = subprocess.run(
        ["grep", how, "-f", str(words), *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()
