"""`corral backup`: everything of the host that a message may be in, into one folder."""

import asyncio
import contextlib
import io
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from corral import __version__
from corral.backup import appendonly, disk, ledger, manifest
from corral.backup.appendonly import Moment
from corral.backup.manifest import File, Manifest, Owner, Taken
from corral.backup.places import (
    BRIDGE,
    COWBOY,
    GATEWAY,
    REDIS,
    TAMQ,
    Host,
    Place,
)
from corral.core.errors import StorageError, UnavailableError, UsageError
from corral.overview import programs

DUMP: Final = "ledger.dump"
BACKUPS: Final = "backups"  # where programs put their copies, in the service's own folder
MOMENT_TRIES: Final = 5
WITHIN_S: Final = 3_600.0
Tell = Callable[[str], None]


def make(host: Host, target: Path, tell: Tell) -> Manifest:
    """Takes the backup. `UsageError` for a folder that is not empty."""
    places = host.places()
    if not places:
        raise UnavailableError("no service is here", hint="of a host that the NixOS modules set up")
    _empty(target)
    taking = Taking(host, target, tell, places)
    taking.bridge()
    one_moment = taking.together() if REDIS in places or GATEWAY in places else True
    taking.rest()
    done = Manifest(
        corral=__version__,
        host=socket.gethostname(),
        began=taking.began,
        ended=manifest.now(),
        one_moment=one_moment,
        taken=taking.taken,
        folders=taking.folders,
        files=taking.kept,
    )
    manifest.write(target, done)
    return done


def _empty(target: Path) -> None:
    try:
        target.mkdir(mode=0o700, exist_ok=True)
        if any(target.iterdir()):
            raise UsageError(f"{target} is not empty", hint="name a folder that is not there yet")
        target.chmod(0o700)
    except OSError as error:
        raise StorageError(f"{target}: {error.strerror}") from error


@dataclass
class Taking:
    """One backup while it is made."""

    host: Host
    target: Path
    tell: Tell
    places: Mapping[str, Place]
    began: str = field(default_factory=manifest.now)
    taken: list[Taken] = field(default_factory=list)
    folders: dict[str, list[Owner]] = field(default_factory=dict)
    kept: dict[str, File] = field(default_factory=dict)

    # ---- in the order of the way ---------------------------------------------------------

    def bridge(self) -> None:
        if not self.host.has_bridge:
            return
        address = self.host.ledger
        if not ledger.is_local(address):
            self.tell("the bridge's ledger is elsewhere: a dump of it must be older than this")
            return
        self._folder(BRIDGE)
        # Read only, as the bridge's user, who has none of it as a file.
        with (self.target / BRIDGE / DUMP).open("xb") as file:
            ledger.dump(address, self.host.bridge_user, file)
            os.fsync(file.fileno())
        size, digest = manifest.measured(self.target / BRIDGE / DUMP)
        owner = Owner(user="root", group="root", mode="0600")
        self.kept[f"{BRIDGE}/{DUMP}"] = File(bytes=size, sha256=digest, **owner.model_dump())
        self._took(BRIDGE, size)

    def together(self) -> bool:
        """Gateway, Redis and cowboy; whether nothing was written to Redis meanwhile."""
        for number in range(1, MOMENT_TRIES + 1):
            with contextlib.ExitStack() as held:
                before = self._moment(held)
                self._databases([name for name in self.places if name == GATEWAY])
                moment = self._moment(held)
                self._databases([name for name in self.places if name.startswith(COWBOY)])
                same = before == moment == self._moment(held)
                if moment is not None and (same or number == MOMENT_TRIES):
                    self._append_only(moment)
            if same:
                return True
            self.tell(f"Redis was written to meanwhile: try {number} of {MOMENT_TRIES}")
        self.tell("answers that were given in these seconds may be missing: see the how-to page")
        return False

    def rest(self) -> None:
        self._databases([name for name in self.places if name.startswith(TAMQ)])
        for place in self.places.values():
            self._files(place)

    # ---- parts ---------------------------------------------------------------------------

    def _moment(self, held: contextlib.ExitStack) -> Moment | None:
        place = self.places.get(REDIS)
        return None if place is None else appendonly.at_this_moment(place.folder, held)

    def _append_only(self, moment: Moment) -> None:
        place = self.places[REDIS]
        owner = disk.owner_of(place.folder / moment.name)
        sizes = [
            self._keep(place, name, file, owner, moment.sizes[name])
            for name, file in moment.files.items()
        ]
        self._keep(place, moment.name, io.BytesIO(moment.manifest), owner)
        self._took(place.name, sum(sizes), moment.at)

    def _databases(self, names: Sequence[str]) -> None:
        """Their own programs make the copies, side by side; what they made is moved."""
        for name, path in zip(names, _copies(self.host, names), strict=True):
            place = self.places[name]
            if path.parent != place.folder / BACKUPS:
                raise StorageError(f"{path} is not in {place.folder / BACKUPS}")
            owner = disk.owner_of(place.folder / place.database)
            uid, _ = disk.ids_of(owner)
            with disk.opened(place.folder, BACKUPS) as folder:
                with disk.take(path.name, folder, uid) as file:
                    size = self._keep(place, place.database, file, owner)
                disk.unlink(path.name, folder)
            self._took(name, size)

    def _files(self, place: Place) -> None:
        there = [name for name in place.names if (place.folder / name).exists()]
        if not there:
            return
        with disk.opened(place.folder) as folder:
            for name in there:
                with disk.take(name, folder) as file:
                    self._keep(place, name, file, disk.owner_of(place.folder / name))
        self._took(place.name, None)

    def _keep(
        self, place: Place, name: str, file: BinaryIO, owner: Owner, most: int = disk.ALL
    ) -> int:
        """Copies it into the backup, in place of what an earlier try left; its size."""
        folder = self._folder(place.name)
        self.folders[place.name] = [disk.owner_of(one) for one in place.folders]
        (folder / name).unlink(missing_ok=True)
        kept = disk.keep(file, folder / name, owner, most)
        self.kept[f"{place.name}/{name}"] = kept
        return kept.bytes

    def _folder(self, name: str) -> Path:
        folder = self.target / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _took(self, name: str, size: int | None, at: str = "") -> None:
        self.taken = [one for one in self.taken if one.part != name]
        self.taken.append(Taken(part=name, at=at or manifest.now()))
        self.tell(name if size is None else f"{name}: {size:,} bytes")


def _copies(host: Host, names: Sequence[str]) -> list[Path]:
    """Where the services' programs put copies. `UnavailableError` when one made none."""
    # Of the host, and not of whoever calls.
    shell = {key: text for key, text in os.environ.items() if not key.startswith("TAMQ_")}
    variables = shell | programs.of_host(host.etc)
    variables.pop("TAMQ_SOCKET", None)

    async def made() -> list[Path]:
        return await asyncio.gather(*(_copy(*_program(name), variables) for name in names))

    return asyncio.run(made())


def _program(name: str) -> tuple[programs.Program, tuple[str, ...]]:
    """What is asked for a copy, and in which words."""
    cowboy, tamq, _, gateway = programs.PROGRAMS
    if name == GATEWAY:
        return gateway, ("backup",)
    if name.startswith(COWBOY):
        return cowboy, ("backup", name.removeprefix(COWBOY))
    return tamq, ("--user", name.removeprefix(TAMQ), "backup")


async def _copy(
    program: programs.Program, words: tuple[str, ...], variables: Mapping[str, str]
) -> Path:
    question = programs.Question("copy", words)
    (answer,) = await programs.ask(program, [question], variables, WITHIN_S)
    if answer.data is None:
        raise UnavailableError(
            f"{program.name} {' '.join(words)}: {answer.trouble}",
            hint="a backup is taken while everything runs: corral doctor",
        )
    return Path(str(answer.data.get("path")))
