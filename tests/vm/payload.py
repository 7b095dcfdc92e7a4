"""The project's own files of a machine: the rendered host, the services' code, test programs.

They travel in the initial file system, so a change of them costs no new image. Nothing here knows
what a unit, a user or a file is for: everything comes from what `tests.nix.render` made of a host.
"""

import hashlib
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tests.vm.cache import locked, used
from tests.vm.cpio import Archive
from tests.vm.image import HERE, PREFIX, ROOT, Image
from tests.vm.network import UNIT, Port

SYSTEM = "etc/systemd/system"
FIRST_ID = 700  # of users and groups whose host leaves the choice to us; above Debian's own
TOP = "payload/"
CORRAL_VM = HERE / "programs" / "corral-vm.sh"
WRAPPER = """#!/{prefix}/bin/python -I
import sys

from {module} import {function}

sys.exit({function}())
"""


class Described(BaseModel):
    model_config = ConfigDict(extra="forbid")


class File(Described):
    text: str
    mode: str
    user: str = "root"
    group: str = "root"


class User(Described):
    uid: int | None
    group: str
    system: bool
    home: str
    create_home: bool
    shell: str
    description: str
    extra_groups: list[str]


class Group(Described):
    gid: int | None
    members: list[str]


class Host(Described):
    """A rendered host, as `tests.nix.render` describes it."""

    version: int
    host: str
    units: dict[str, str]
    unit_sha256: dict[str, str]
    dropins: dict[str, str] = Field(default_factory=dict)
    unit_links: dict[str, str] = Field(default_factory=dict)
    etc: dict[str, File] = Field(default_factory=dict)
    users: dict[str, User] = Field(default_factory=dict)
    groups: dict[str, Group] = Field(default_factory=dict)
    tmpfiles: list[str] = Field(default_factory=list)
    sysctl: dict[str, str] = Field(default_factory=dict)
    files: dict[str, File] = Field(default_factory=dict)
    links: dict[str, str] = Field(default_factory=dict)
    commands: dict[str, str] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class Ids:
    """Numbers of users and groups by name."""

    users: dict[str, int]
    groups: dict[str, int]


def initrd(image: Image, host: Host, cache: Path, target: Path, port: Port | None = None) -> None:
    """Writes the initial file system of a machine: the image's part, then the payload."""
    archive = Archive()
    ids = _add_accounts(archive, image, host)
    _add_host(archive, host, ids)
    _add_code(archive, image, cache)
    if port is not None:
        _add_network(archive, port)
    packed = archive.pack()
    stamp = Archive()
    stamp.file("payload-hash", hashlib.sha256(packed).hexdigest().encode() + b"\n")
    target.write_bytes(image.initrd.read_bytes() + packed + stamp.pack())


# ---- the host -------------------------------------------------------------------------------


def _add_host(archive: Archive, host: Host, ids: Ids) -> None:
    for name, text in {**host.units, **host.dropins}.items():
        archive.file(f"{TOP}{SYSTEM}/{name}", text.encode())
    for name, link in host.unit_links.items():
        archive.link(f"{TOP}{SYSTEM}/{name}", link)
    for name, file in host.etc.items():
        _add_file(archive, f"{TOP}etc/{name}", file, ids)
    for path, file in host.files.items():
        _add_file(archive, f"{TOP}{path.lstrip('/')}", file, ids)
    for path, link in host.links.items():
        archive.link(f"{TOP}{path.lstrip('/')}", link)
    for name, link in host.commands.items():
        archive.link(f"{TOP}usr/local/bin/{name}", link)
    tmpfiles = "".join(f"{line}\n" for line in host.tmpfiles)
    archive.file(f"{TOP}etc/tmpfiles.d/00-nixos.conf", tmpfiles.encode())
    sysctl = "".join(f"{key} = {value}\n" for key, value in host.sysctl.items())
    archive.file(f"{TOP}etc/sysctl.d/60-nixos.conf", sysctl.encode())


def _add_network(archive: Archive, port: Port) -> None:
    """What the other driver adds to the host itself."""
    archive.file(f"{TOP}etc/hosts", port.hosts.encode())
    archive.file(f"{TOP}{SYSTEM}/{UNIT}", port.unit.encode())
    archive.link(f"{TOP}{SYSTEM}/sysinit.target.wants/{UNIT}", f"../{UNIT}")


def _add_file(archive: Archive, path: str, file: File, ids: Ids) -> None:
    owner, group = ids.users[file.user], ids.groups[file.group]
    archive.file(path, file.text.encode(), int(file.mode, 8), owner, group)


# ---- accounts -------------------------------------------------------------------------------


def _add_accounts(archive: Archive, image: Image, host: Host) -> Ids:
    """The host's users and groups, after those of the image."""
    passwd, group, shadow = (
        (image.accounts / name).read_text(encoding="utf-8").splitlines()
        for name in ("passwd", "group", "shadow")
    )
    own = {"root"} | {line.split(":")[0] for line in passwd}
    ids = Ids(
        _numbers(passwd, {name: user.uid for name, user in host.users.items()}),
        _numbers(group, {name: one.gid for name, one in host.groups.items()}),
    )
    members = {name: set(one.members) for name, one in host.groups.items()}
    for name, user in host.users.items():
        for extra in user.extra_groups:
            members.setdefault(extra, set()).add(name)
        if name in own:
            continue
        numbers = f"{ids.users[name]}:{ids.groups[user.group]}"
        passwd.append(f"{name}:x:{numbers}:{user.description}:{user.home}:{user.shell}")
        shadow.append(f"{name}:!:1::::::")
        if user.create_home:
            home = f"{TOP}{user.home.lstrip('/')}"
            archive.directory(home, 0o700, ids.users[name], ids.groups[user.group])
    known = [line.split(":") for line in group]
    known += [[name, "x", str(ids.groups[name]), ""] for name in host.groups]
    merged = {fields[0]: fields for fields in reversed(known)}
    lines = [_group_line(fields, members) for fields in reversed(merged.values())]
    for name, content, mode in (
        ("passwd", passwd, 0o644),
        ("group", lines, 0o644),
        ("shadow", shadow, 0o600),
    ):
        text = "".join(f"{line}\n" for line in content)
        archive.file(f"{TOP}etc/{name}", text.encode(), mode)
    return ids


def _group_line(fields: list[str], members: dict[str, set[str]]) -> str:
    name, password, number, had = fields
    who = {*filter(None, had.split(",")), *members.get(name, ())}
    return f"{name}:{password}:{number}:{','.join(sorted(who))}"


def _numbers(lines: list[str], wanted: dict[str, int | None]) -> dict[str, int]:
    """Of what the image has, then of what the host names; the rest gets numbers of its own."""
    numbers = {fields[0]: int(fields[2]) for fields in (line.split(":") for line in lines)}
    numbers |= {name: number for name, number in wanted.items() if number is not None}
    taken = set(numbers.values())
    free = (number for number in range(FIRST_ID, 1000) if number not in taken)
    return numbers | {name: next(free) for name in sorted(wanted) if name not in numbers}


# ---- code -----------------------------------------------------------------------------------


def _add_code(archive: Archive, image: Image, cache: Path) -> None:
    minor = ".".join(image.python.split(".")[:2])
    packages = f"{PREFIX}/lib/python{minor}/site-packages"
    code = compiled(ROOT / "python" / "corral", f"/{packages}/corral", cache)
    _add_tree(archive, code, f"{TOP}{packages}/corral")
    programs = compiled(HERE / "programs", f"/{packages}/tests/vm/programs", cache)
    _add_tree(archive, programs, f"{TOP}{packages}/tests/vm/programs")
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8"))
    for name, entry in project["project"]["scripts"].items():
        module, _, function = entry.partition(":")
        text = WRAPPER.format(prefix=PREFIX, module=module, function=function)
        archive.file(f"{TOP}{PREFIX}/bin/{name}", text.encode(), 0o755)
    archive.file(f"{TOP}usr/local/bin/corral-vm", CORRAL_VM.read_bytes(), 0o755)


def _add_tree(archive: Archive, folder: Path, target: str) -> None:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            archive.file(f"{target}/{file.relative_to(folder)}", file.read_bytes())


def compiled(source: Path, place: str, cache: Path) -> Path:
    """A copy of a package, compiled for the machine, where it will be at `place`.

    The services cannot write beside their code, and emulation is slow: compiling at each start
    would take longer than the start. The interpreter is the one that the image was made with.
    """
    files = [
        file
        for file in sorted(source.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    ]
    digest = hashlib.sha256(place.encode())
    for file in files:
        digest.update(f"{file.relative_to(source)}\0".encode() + file.read_bytes() + b"\0")
    folder = cache / f"code-{digest.hexdigest()[:16]}"
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            work = folder.with_suffix(".new")
            shutil.rmtree(work, ignore_errors=True)
            for file in files:
                copy = work / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
            argv = ["/usr/bin/python3", "-I", "-m", "compileall", "-q", "-s", str(work)]
            argv += ["--invalidation-mode", "unchecked-hash", "-p", place, str(work)]
            subprocess.run(argv, check=True)
            work.rename(folder)
        used(folder)
    return folder
