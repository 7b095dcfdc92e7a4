"""What a backup says of itself: `manifest.json`, which is written last, and its own digest.

A folder without both is no backup: the program that made it was ended before its time.
"""

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corral.core.errors import StorageError

FILE: Final = "manifest.json"
DIGEST: Final = "manifest.json.sha256"  # as sha256sum writes it
CHUNK_BYTES: Final = 1024 * 1024

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}/[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
Mode = Annotated[str, Field(pattern=r"^[0-7]{4}$")]


class Described(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Owner(Described):
    """By names: another host has other numbers."""

    user: str
    group: str
    mode: Mode


class File(Owner):
    """`bytes` and `sha256` are those of the copy; the rest is what it will be again."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Taken(Described):
    """When a part was copied."""

    part: str
    at: str


class Manifest(Described):
    """`one_moment`: gateway, Redis and cowboy are of one moment."""

    format: Literal[1] = 1
    corral: str
    host: str
    began: str
    ended: str
    one_moment: bool
    taken: list[Taken]
    folders: dict[str, list[Owner]]
    files: dict[Name, File]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write(folder: Path, manifest: Manifest) -> None:
    """Durable, and whole or not there."""
    text = manifest.model_dump_json(indent=1).encode() + b"\n"
    digest = f"{hashlib.sha256(text).hexdigest()}  {FILE}\n".encode()
    for name, content in ((DIGEST, digest), (FILE, text)):
        partial = folder / f".{name}.partial"
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / name)
    sync(folder)


def read(folder: Path) -> Manifest:
    """`StorageError` when there is none that can be believed."""
    try:
        text = (folder / FILE).read_bytes()
        digest = (folder / DIGEST).read_text(encoding="ascii")
    except FileNotFoundError as error:
        raise StorageError(
            f"{folder}: there is no {Path(str(error.filename)).name}",
            hint="a backup that did not end has none: make another, or take an older one",
        ) from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{folder}: {FILE} cannot be read: {type(error).__name__}") from error
    if digest.split() != [hashlib.sha256(text).hexdigest(), FILE]:
        raise _damaged(folder / FILE, "it is not what its digest says")
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(one) for one in first["loc"])
        raise StorageError(
            f"{folder / FILE}: {where}: {first['msg']}", hint="was it made by another release?"
        ) from None


def verify(folder: Path, manifest: Manifest) -> None:
    """Reads every file. `StorageError` names the first that is not what was written."""
    for name, file in manifest.files.items():
        path = folder / name
        try:
            size, digest = measured(path)
        except OSError as error:
            raise _damaged(path, error.strerror or type(error).__name__) from error
        if size != file.bytes:
            raise _damaged(path, f"it has {size} bytes, and had {file.bytes}")
        if digest != file.sha256:
            raise _damaged(path, "its SHA-256 is another")


def measured(path: Path) -> tuple[int, str]:
    """Size and SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(
        f"{path} is damaged: {what}",
        hint="nothing of this backup is restored; take another one",
        ids={"path": str(path)},
    )
