"""The result of rendering, and its JSON (field names are the keys)."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

VERSION = 1


@dataclass(frozen=True)
class File:
    text: str
    mode: str


@dataclass(frozen=True)
class EtcFile:
    text: str
    mode: str
    user: str
    group: str


@dataclass(frozen=True)
class User:
    """`uid` None: the machine chooses. `shell` is a path of Debian."""

    uid: int | None
    group: str
    system: bool
    home: str
    create_home: bool
    shell: str
    description: str
    extra_groups: list[str]


@dataclass(frozen=True)
class Group:
    gid: int | None
    members: list[str]


@dataclass(frozen=True)
class Rendered:
    """What is installed where; paths without a leading slash are below the folder that is named.

    `units`, `unit_links` (symlinks) and `dropins`: below /etc/systemd/system. `etc`: below /etc.
    `files` and `links` (symlinks): absolute paths, directories above them 0755 root. `commands`:
    what environment.systemPackages puts on PATH, name -> absolute path.
    """

    host: str
    units: dict[str, str]
    unit_links: dict[str, str]
    dropins: dict[str, str]
    etc: dict[str, EtcFile]
    users: dict[str, User]
    groups: dict[str, Group]
    tmpfiles: list[str]
    sysctl: dict[str, str]
    files: dict[str, File]
    links: dict[str, str]
    commands: dict[str, str]
    warnings: list[str]
    version: int = VERSION
    unit_sha256: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        sums = {name: sha256(text) for name, text in self.units.items()}
        object.__setattr__(self, "unit_sha256", sums)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def as_text(self) -> str:
        """The one text of a rendering: sorted keys, two spaces, one final newline."""
        return json.dumps(self.as_json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
