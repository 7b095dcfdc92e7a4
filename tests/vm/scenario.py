"""Runs one scenario: a script that the NixOS test driver could run as well.

A scenario is `scenarios/NAME.py`; its machine is `hosts/NAME.nix`, or that of the first word of its
name, or `hosts/standard.nix`. A folder in place of that file is several machines with a network
between them. When a scenario fails, everything that explains it is kept in one folder.
"""

import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.core.errors import CorralError
from tests import seeds
from tests.vm import payload
from tests.vm.accel import Accel, boots, choose
from tests.vm.image import HERE, ROOT, Image, cache_folder, image
from tests.vm.machine import Machine
from tests.vm.network import Hub, Port
from tests.vm.payload import Host
from tests.vm.qemu import Hardware, probe_argv
from tests.vm.settled import Settled, settled
from tests.vm.shell import MachineError

SCENARIOS = HERE / "scenarios"
HOSTS = HERE / "hosts"
SERVERS = HERE / "servers.nix"
REPORTS = ROOT / "reports" / "vm"
STANDARD = "standard"
MACHINE = "machine"  # the name of one that is alone
FRESH = frozenset({"first_boot", "bridge_first_boot"})
ETC_SYSTEMD = "/etc/systemd/system"
COLLECT_TIMEOUT_S = 60
# What explains a failure; each is asked of the machine, if it still answers.
QUESTIONS = {
    "journal.txt": "journalctl --no-pager -o short-monotonic | tail -n 20000",
    "units.txt": "systemctl list-units --no-pager --all --full --type=service,socket,path",
    "failed.txt": "systemctl --failed --no-pager --full; systemctl list-jobs --no-pager",
    "processes.txt": "ps axo pid,ppid,user,stat,etimes,comm",
    "ledger.txt": "corral-vm ledger",
    "bridge.txt": "a2a-bridge doctor; a2a-bridge jobs list --limit 1000; corral-vm rooms",
    "gateway.txt": "GATEWAY_CONFIG=/etc/a2a-gateway/settings.json corral-gateway tasks --all",
    "sockets.txt": "ls -lAR /run/cowboy /run/cowboy-runner /run/tamq; df -h / /run",
}

Say = Callable[[str], None]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def names() -> list[str]:
    """Of all scenarios, in order."""
    return sorted(path.stem for path in SCENARIOS.glob("*.py") if path.stem != "__init__")


def host_file(scenario: str) -> Path:
    """Of that name, else of its first word, else the standard one; a folder is several."""
    of = (HOSTS / name for name in (scenario, scenario.partition("_")[0]))
    found = (path for one in of for path in (one.with_suffix(".nix"), one))
    return next((path for path in found if path.exists()), HOSTS / f"{STANDARD}.nix")


def machine_files(path: Path) -> dict[str, Path]:
    """The machines of a file or folder of `hosts`, by name."""
    if path.is_dir():
        return {file.stem: file for file in sorted(path.glob("*.nix"))}
    return {MACHINE: path}


def accel(built: Image) -> Accel:
    """What machines run on here; a machine is started to find out, once after each boot."""
    argv = probe_argv(built.kernel, built.initrd)
    return choose(lambda: boots(argv), cache_folder())


@dataclass(frozen=True)
class Scenario:
    """A script and what its machines are, by name."""

    name: str
    script: Path
    hosts: Mapping[str, Host]
    fresh: bool = False  # begins with machines that were never started
    reports: Path = REPORTS

    @property
    def several(self) -> bool:
        return len(self.hosts) > 1


def named(name: str) -> Scenario:
    """A scenario of the project."""
    files = machine_files(host_file(name))
    hosts = {machine: rendered(file) for machine, file in files.items()}
    return Scenario(name, SCENARIOS / f"{name}.py", hosts, name in FRESH or len(hosts) > 1)


@functools.cache
def rendered(file: Path) -> Host:
    """The host of a Nix file, as text: units, users, files."""
    argv = [sys.executable, "-P", "-m", "tests.nix.render", str(file), "--with", str(SERVERS)]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return Host.model_validate_json(done.stdout)


@dataclass
class Run:
    """One run of a scenario with a seed. `folder` is its own, and is gone afterwards; `hardware` is
    that of each machine."""

    scenario: Scenario
    seed: int
    hardware: Mapping[str, Hardware]
    folder: Path
    out: Say = say
    lines: list[str] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)
        self.out(line)

    def names(self, frozen: Settled | None = None) -> dict[str, Any]:
        """What a script finds defined, as with the other driver."""
        self.machines = [
            Machine(name, hardware, self.folder / name, self.say, frozen)
            for name, hardware in self.hardware.items()
        ]
        return {
            "__name__": "scenario",
            **{machine.name: machine for machine in self.machines},
            "machines": self.machines,
            "start_all": self.start_all,
            "subtest": self.subtest,
        }

    def start_all(self) -> None:
        for machine in self.machines:
            machine.start()

    @contextlib.contextmanager
    def subtest(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self.say(f"FAILED: {name} ({time.monotonic() - began:.1f} s)")
            raise
        self.say(f"ok: {name} ({time.monotonic() - began:.1f} s)")

    def release(self) -> None:
        for machine in self.machines:
            machine.release()


@contextlib.contextmanager
def prepared(scenario: Scenario, seed: int, out: Say = say) -> Iterator[Run]:
    """A run with its image, payloads and folder. CorralError says what is missing."""
    built = image(out)
    folder = Path(tempfile.mkdtemp(prefix="corral-vm-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ports: Mapping[str, Port] = {}
        if scenario.several:
            ports = stack.enter_context(contextlib.closing(Hub(folder, scenario.hosts))).ports
        hardware = {
            name: Hardware(built, folder / f"{name}.cpio", accel(built), ports.get(name))
            for name in scenario.hosts
        }
        one = Run(scenario, seed, hardware, folder, out)
        stack.callback(one.release)
        for name, host in scenario.hosts.items():
            initrd, port = hardware[name].initrd, ports.get(name)
            payload.initrd(built, host, cache_folder(), initrd, port)
        yield one


def prove_units(machine: Machine, host: Host) -> None:
    """The machine's units are those that were rendered, to the byte, and nothing overrides them."""
    names = sorted(host.unit_sha256)
    if not names:
        raise MachineError("the host has no units")
    quoted = [shlex.quote(name) for name in names]
    sums = machine.succeed(f"cd {ETC_SYSTEMD}; sha256sum {' '.join(quoted)}").splitlines()
    found = {name: digest for digest, name in (line.split("  ", 1) for line in sums)}
    for name in names:
        if found.get(name) != host.unit_sha256[name]:
            raise MachineError(f"{name} in the machine is not what was rendered")
    wanted = "Id,FragmentPath,DropInPaths,NeedDaemonReload"
    shown = machine.succeed(f"systemctl show -p {wanted} {' '.join(quoted)}")
    ours = {f"{ETC_SYSTEMD}/{name}" for name in host.dropins}
    for block in shown.strip().split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines())
        own = fields["FragmentPath"] == f"{ETC_SYSTEMD}/{fields['Id']}"
        if (
            not own
            or set(fields["DropInPaths"].split()) - ours
            or fields["NeedDaemonReload"] != "no"
        ):
            raise MachineError(f"the machine runs another {fields['Id']}: {fields}")


def run(
    scenario: Scenario,
    seed: int,
    out: Say = say,
    begun: Callable[[Run], None] = lambda _: None,
) -> Path | None:
    """Runs a scenario. None when it holds; otherwise the folder that explains the failure.

    `begun` is told of the run, which `release` ends before its time, from another thread, too.
    """
    hosts = " ".join(host.host for host in scenario.hosts.values())
    out(f"{scenario.name}: {seeds.VARIABLE}={seed}, host {hosts}")
    with prepared(scenario, seed, out) as one:
        begun(one)
        began = time.monotonic()
        try:
            _execute(one)
        except Exception as error:
            one.say("".join(traceback.format_exception(error)).rstrip())
            return _report(one)
        out(f"{scenario.name}: holds ({time.monotonic() - began:.1f} s)")
        return None


def _execute(one: Run) -> None:
    script = one.scenario.script
    code = compile(script.read_text(encoding="utf-8"), str(script), "exec")
    os.environ[seeds.VARIABLE] = str(one.seed)  # where scripts look for it, with either driver
    defined = one.names(None if one.scenario.fresh else _settled(one))
    one.start_all()
    for machine in one.machines:
        prove_units(machine, one.scenario.hosts[machine.name])
    exec(code, defined)  # noqa: S102 - that is what a test driver does


def _settled(one: Run) -> Settled:
    """This run's one machine with everything up; booted and frozen when there is none."""
    (name, host), hardware = next(iter(one.scenario.hosts.items())), one.hardware

    def boot(folder: Path) -> None:
        one.say("booting a machine until everything is up; it is then frozen, and reused")
        machine = Machine(name, hardware[name], one.folder / "boot", one.say)
        one.machines.append(machine)
        try:
            machine.wait_for_unit("multi-user.target")
            machine.succeed("test $(systemctl is-system-running --wait) = running", timeout=300)
            prove_units(machine, host)
            machine.freeze(folder)
        finally:
            machine.release()

    return settled(hardware[name], cache_folder(), boot)


def _report(one: Run) -> Path:
    """Keeps what explains a failure, and says how to repeat it."""
    name = one.scenario.name
    kept = one.scenario.reports / f"{name}-{one.seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for machine in one.machines:
        # What is of one of several is in a folder of its own.
        place = kept / machine.name if one.scenario.several else kept
        place.mkdir(exist_ok=True)
        _ask(machine, place)
    for file in sorted(one.folder.glob("*/*")):  # "machine", or "boot" when it got no further
        if file.suffix in {".log", ".err", ".argv"}:
            place = kept / file.parent.name if one.scenario.several else kept
            shutil.copyfile(file, place / file.name)
    command = f"./corral vm run {name} --seed {one.seed}"
    (kept / "transcript.txt").write_text("".join(f"{line}\n" for line in one.lines))
    (kept / "seed.txt").write_text(f"{one.seed}\n")
    (kept / "repeat.txt").write_text(f"{command}\n")
    for name, host in one.scenario.hosts.items():
        place = kept / name if one.scenario.several else kept
        (place / "host.json").write_text(host.model_dump_json(indent=1))
    one.out(f"{name}: kept in {kept}; repeat with: {command}")
    return kept


def _ask(machine: Machine, kept: Path) -> None:
    for name, command in QUESTIONS.items():
        answer = "the machine did not answer\n"
        if machine.booted:
            with contextlib.suppress(CorralError, OSError, ValueError):
                status, answer = machine.execute(f"({command}) 2>&1", timeout=COLLECT_TIMEOUT_S)
                answer += f"(exit status {status})\n" if status else ""
        (kept / name).write_text(answer, encoding="utf-8")
