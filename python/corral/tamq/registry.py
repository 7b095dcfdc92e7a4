"""Which repositories there are: the registry of `gita`, its file `repos.csv`.

A line is `path,name,type,flags`, without a heading. The file is read again when it changes. Groups
are not looked at: a group may keep the name of a repository that was renamed.
"""

import csv
import os
from pathlib import Path
from typing import Final

from corral.tamq.errors import UnavailableTamqError, UnknownRepoError
from corral.tamq.requests import LOCAL_SENDER

FILE_MAX_BYTES: Final = 1_048_576


class Registry:
    """The names in `repos.csv`. Reads the disk: not for the event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._paths: dict[str, list[str]] = {}

    def check(self, sender: str, target: str) -> None:
        """`UnknownRepoError` unless both are registered once; `local` is always a sender."""
        self.refresh()
        if self.knows(sender, target):
            return
        if sender != LOCAL_SENDER:
            self._check("sender_repo", sender)
        self._check("target_repo", target)

    def knows(self, sender: str, target: str) -> bool:
        """Whether `check` would find nothing wrong, by what was read last."""
        names = (target,) if sender == LOCAL_SENDER else (target, sender)
        return all(len(self._paths.get(name, ())) == 1 for name in names)

    def refresh(self) -> None:
        """Read the file if it is another than last time. `UnavailableTamqError` if that fails."""
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._paths = _parse(self.path)
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._paths = None, {}
        except (OSError, ValueError, csv.Error) as error:
            problem = (error.strerror if isinstance(error, OSError) else None) or error
            raise UnavailableTamqError(
                f"the gita registry {self.path} cannot be read: {problem}",
                hint="see that it is a file of yours that gita wrote",
            ) from None

    def names(self) -> list[str]:
        """The names that stand for one repository each."""
        return sorted(name for name, paths in self._paths.items() if len(paths) == 1)

    def _check(self, field: str, name: str) -> None:
        paths = self._paths.get(name)
        ids = {"repo": name}
        if paths is None:
            raise UnknownRepoError(
                f"{field}: {name} is not in the gita registry",
                hint=f"gita add PATH; the registry is {self.path}, {self._content()}",
                ids=ids,
            )
        if len(paths) > 1:
            raise UnknownRepoError(
                f"{field}: {name} stands for {len(paths)} clones: {', '.join(sorted(paths)[:4])}",
                hint="give one of them another name: gita rename",
                ids=ids,
            )

    def _content(self) -> str:
        if self._seen is None:
            return "a file that does not exist"
        count = len(self.names())
        return f"which has {count} {'name' if count == 1 else 'names'}"


def default_path() -> Path:
    """Where gita keeps its registry, by gita's own rule."""
    root = os.environ.get("GITA_PROJECT_HOME") or os.environ.get("XDG_CONFIG_HOME")
    return (Path(root) if root else Path.home() / ".config") / "gita" / "repos.csv"


def _parse(path: Path) -> dict[str, list[str]]:
    with path.open("rb") as file:
        content = file.read(FILE_MAX_BYTES + 1)
    if len(content) > FILE_MAX_BYTES:
        raise ValueError(f"is longer than {FILE_MAX_BYTES} bytes")
    found: dict[str, list[str]] = {}
    for row in csv.reader(content.decode("utf-8", "surrogateescape").splitlines()):
        if len(row) > 1 and row[1] and row[0] not in found.setdefault(row[1], []):
            found[row[1]].append(row[0])
    return found
