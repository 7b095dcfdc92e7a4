"""`corral restore`: a backup back into its places, while no service of it runs."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral import __version__
from corral.backup import disk, ledger, manifest
from corral.backup.making import DUMP
from corral.backup.manifest import File, Manifest
from corral.backup.places import BRIDGE, REDIS, Host, Place
from corral.core.errors import ConfigError, StorageError, UnavailableError, UsageError

SYSTEMCTL_TIMEOUT_S: Final = 60
ENDED: Final = {"inactive", "failed"}
BESIDE: Final = ("-wal", "-shm", "-journal")
Tell = Callable[[str], None]


def verified(source: Path, tell: Tell) -> Manifest:
    """What the backup says of itself, after every file was read. `StorageError`."""
    found = manifest.read(source)
    manifest.verify(source, found)
    size = sum(file.bytes for file in found.files.values())
    tell(f"{len(found.files)} files, {size:,} bytes: each is what was written on {found.ended}")
    tell(f"of the host {found.host}, by corral {found.corral} (this is {__version__})")
    return found


def restore(host: Host, source: Path, tell: Tell, *, replace: bool = False) -> list[str]:
    """Puts everything back; the commands that come next. Nothing is changed when it refuses."""
    found = verified(source, tell)
    restoring = Restoring(host, source, tell, found, replace)
    restoring.refuse()
    restoring.bridge()
    for name in found.folders:
        restoring.place(host.places()[name])
    return following(host)


def following(host: Host) -> list[str]:
    """What is done after a restore, in this order. Pure but for the host's files."""
    commands = [f"systemctl restart {' '.join(host.makers())}"] if host.makers() else []
    commands.append(f"systemctl start {' '.join(host.services())}")
    return [*commands, "corral doctor"]


@dataclass(frozen=True)
class Restoring:
    """One backup while it is put back."""

    host: Host
    source: Path
    tell: Tell
    found: Manifest
    replace: bool

    def refuse(self) -> None:
        """For every reason that is known before anything is changed."""
        places = self.host.places()
        unknown = sorted(self.found.folders.keys() - places.keys())
        if unknown or (self._has_ledger and not ledger.is_local(self.host.ledger)):
            raise ConfigError(
                f"the backup has {', '.join(unknown or [BRIDGE])}, which this host has not",
                hint="is it the configuration of the host that the backup is of?",
            )
        for owner in [one for several in self.found.folders.values() for one in several]:
            disk.ids_of(owner)
        for file in self.found.files.values():
            disk.ids_of(file)
        if running := working(self.host.services()):
            names = " ".join(running)
            raise UsageError(f"{names}: still there", hint=f"systemctl stop {names}")
        there = [place.folder for name in self.found.folders if _is_there(place := places[name])]
        if there and not self.replace:
            raise StorageError(
                f"there is something already: {', '.join(map(str, there))}",
                hint="--replace takes the backup's in its place; what is there now is lost",
            )

    @property
    def _has_ledger(self) -> bool:
        return f"{BRIDGE}/{DUMP}" in self.found.files

    def bridge(self) -> None:
        if self._has_ledger:
            dump = self.source / BRIDGE / DUMP
            ledger.restore(self.host.ledger, self.host.bridge_user, dump, replace=self.replace)
            self.tell(f"{BRIDGE}: its ledger")

    def place(self, place: Place) -> None:
        for path, owner in zip(place.folders, self.found.folders[place.name], strict=True):
            disk.made(path, owner)
        with disk.opened(place.folder) as folder:
            if place.database:
                # What SQLite left beside another database would be taken for this one's.
                for suffix in BESIDE:
                    disk.unlink(f"{place.database}{suffix}", folder)
            if place.name == REDIS:
                for name in disk.listed(place.folder):
                    disk.unlink(name, folder)
            for name, file in self._files(place.name):
                disk.put(self.source / place.name / name, name, folder, file)
        self.tell(f"{place.name}: {place.folder}")

    def _files(self, name: str) -> list[tuple[str, File]]:
        """Of a place; the one that names others comes last."""
        found = [
            (path.removeprefix(f"{name}/"), file)
            for path, file in self.found.files.items()
            if path.startswith(f"{name}/")
        ]
        return sorted(found, key=lambda one: one[0].endswith(".manifest"))


def working(units: Sequence[str]) -> list[str]:
    """Those that run, or will by themselves. `UnavailableError` when systemd cannot be asked."""
    if not units:
        return []
    argv = ["systemctl", "show", "--property=ActiveState", "--value", *units]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"systemctl cannot be asked: {type(error).__name__}") from None
    states = done.stdout.split()
    if len(states) != len(units):
        raise UnavailableError("systemctl did not say of each unit how it is")
    return [unit for unit, state in zip(units, states, strict=True) if state not in ENDED]


def _is_there(place: Place) -> bool:
    """Something that a restore would take away; tokens and secrets are made by every start."""
    if place.name == REDIS:
        return bool(disk.listed(place.folder))
    return bool(place.database) and (place.folder / place.database).exists()
