"""The driver against a machine that really runs."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corral.local import wait
from tests.vm import scenario
from tests.vm.image import ROOT
from tests.vm.machine import Machine
from tests.vm.sample import sample_host
from tests.vm.scenario import Run, Scenario, prove_units
from tests.vm.settled import Settled
from tests.vm.shell import MachineError

pytestmark = pytest.mark.timeout(600)
CLOCK_TOLERANCE_S = 60


def test_a_command_gives_its_status_and_output(sample: Machine) -> None:
    assert sample.execute("echo out; echo err >&2; exit 7") == (7, "out\n")
    assert sample.execute("false | true")[0] == 1  # pipefail, as with the other driver
    assert sample.execute("printf 'a\\0ü\\n\\n'") == (0, "a\0ü\n\n")
    assert sample.execute("sleep 60", timeout=1)[0] == 124


def test_much_output_comes_whole(sample: Machine) -> None:
    assert len(sample.succeed("head -c 300000 /dev/zero | tr '\\0' x")) == 300_000


def test_expectations_that_do_not_hold_are_told(sample: Machine) -> None:
    assert sample.succeed("echo 1", "echo 2") == "1\n2\n"
    sample.fail("false")
    with pytest.raises(MachineError, match="`echo why; exit 3` failed with status 3: why"):
        sample.succeed("echo why; exit 3")
    with pytest.raises(MachineError, match="`echo yes` succeeded, which it must not: yes"):
        sample.fail("echo yes")


def test_waiting_has_a_bound(sample: Machine) -> None:
    sample.succeed("rm -f /run/tries")
    sample.wait_until_succeeds("echo >>/run/tries; test $(wc -l </run/tries) -ge 3")
    sample.wait_until_fails("rm /run/tries")
    with pytest.raises(MachineError, match=r"waited 1 s for success of: echo no; false; .* no"):
        sample.wait_until_succeeds("echo no; false", timeout=1)


def test_units_are_waited_for(sample: Machine) -> None:
    sample.wait_for_unit("sample.service")
    sample.require_unit_state("sample.service")
    assert sample.get_unit_property("sample.service", "User") == "sample"
    with pytest.raises(MachineError, match="no job is going to start it"):
        sample.wait_for_unit("no-such.service")
    sample.execute("systemd-run --unit=broken false")
    with pytest.raises(MachineError, match=r"unit broken\.service failed"):
        sample.wait_for_unit("broken.service")


def test_the_host_is_in_the_machine(sample: Machine) -> None:
    assert sample.succeed("cat /etc/sample/file") == "of the host\n"
    assert sample.succeed("stat -c '%U %G %a' /etc/sample/file /run/sample /var/lib/sample") == (
        "sample sample 440\nsample sample 750\nsample sample 700\n"
    )
    assert sample.succeed("hello") == "hello\n"
    assert "adm" in sample.succeed("id -nG sample")
    assert sample.succeed("cat /proc/sys/vm/overcommit_memory") == "1\n"
    assert "cowboy" in sample.succeed("/opt/corral/bin/cowboy --version")
    sample.wait_for_file("/nix/store/0-sample/bin/date")


def test_the_units_are_proven(sample: Machine) -> None:
    prove_units(sample, sample_host())
    unit = "/etc/systemd/system/sample.service"
    sample.succeed(f"cp {unit} /run/unit; echo '# changed' >>{unit}")
    try:
        with pytest.raises(MachineError, match="is not what was rendered"):
            prove_units(sample, sample_host())
    finally:
        sample.succeed(f"cp /run/unit {unit}; systemctl daemon-reload")
    prove_units(sample, sample_host())


def test_an_override_of_a_unit_is_no_proof(sample: Machine) -> None:
    folder = "/run/systemd/system/sample.service.d"
    sample.succeed(f"mkdir -p {folder}; printf '[Service]\\nNice=5\\n' >{folder}/x.conf")
    sample.succeed("systemctl daemon-reload")
    try:
        with pytest.raises(MachineError, match=r"runs another sample\.service"):
            prove_units(sample, sample_host())
    finally:
        sample.succeed(f"rm -r {folder}; systemctl daemon-reload")


def test_sockets_are_waited_for(sample: Machine) -> None:
    sample.succeed("systemd-run --unit=listener nc -lk 127.0.0.1 7000")
    sample.wait_for_open_port(7000)
    sample.succeed("systemctl stop listener")
    sample.wait_for_closed_port(7000)
    sample.succeed("systemd-run --unit=listener2 nc -lkU /run/listener.sock")
    sample.wait_for_open_unix_socket("/run/listener.sock")


def test_files_go_in_and_come_out(sample: Machine, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "blob").write_bytes(os.urandom(3_000_001))
    sample.copy_from_host(str(tmp_path / "in"), "/var/run/there/folder")
    sample.copy_from_vm("/var/run/there/folder", str(tmp_path / "out"))
    assert (tmp_path / "out/folder/blob").read_bytes() == (tmp_path / "in/blob").read_bytes()


def test_the_network_cable_can_be_cut(sample: Machine) -> None:
    sample.succeed("ip link set eth0 up")
    sample.wait_until_succeeds("grep -q 1 /sys/class/net/eth0/carrier")
    sample.block()
    sample.wait_until_succeeds("grep -q 0 /sys/class/net/eth0/carrier")
    sample.unblock()
    sample.wait_until_succeeds("grep -q 1 /sys/class/net/eth0/carrier")


def test_a_power_failure_loses_what_was_not_written(sample: Machine) -> None:
    sample.succeed("echo kept >/var/kept; sync /var/kept; echo lost >/var/lost; echo >/run/lost")
    sample.crash()
    assert not sample.booted
    sample.start()
    assert sample.succeed("cat /var/kept") == "kept\n"
    assert sample.execute("cat /var/lost")[1] == ""
    sample.fail("test -e /run/lost")


def test_a_machine_powers_off(sample: Machine) -> None:
    sample.succeed("true")
    sample.shutdown()
    assert not sample.booted
    sample.start()
    sample.wait_for_console_text("systemd")


def test_a_frozen_machine_goes_on_where_it_was(sample_run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    hardware = sample_run.hardware["machine"]
    first = Machine("machine", hardware, tmp_path / "one")
    try:
        first.succeed("echo memory >/run/here; echo disk >/var/here")
        first.freeze(kept)
    finally:
        first.release()
    for name in ("two", "three"):
        again = Machine("machine", hardware, tmp_path / name, frozen=Settled(kept))
        try:
            assert again.succeed("cat /run/here /var/here") == "memory\ndisk\n"
            assert abs(int(again.succeed("date +%s")) - time.time()) < CLOCK_TOLERANCE_S
            again.succeed("echo changed >/var/here; sync")  # which the next one must not see
        finally:
            again.release()


FAILING = """
import os
with subtest("one that holds"):
    machine.succeed("true")
with subtest("one that does not"):
    machine.succeed("logger planted-$CORRAL_SEED; false")
"""


def test_a_failure_leaves_all_that_explains_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING.replace("$CORRAL_SEED", "words"))
    kept = scenario.run(
        Scenario("failing", script, {"machine": sample_host()}, reports=tmp_path / "reports"), 17
    )
    assert kept == tmp_path / "reports" / "failing-17"
    said = capfd.readouterr().out
    assert "ok: one that holds" in said
    assert "FAILED: one that does not" in said
    assert "repeat with: ./corral vm run failing --seed 17" in said
    assert (kept / "seed.txt").read_text() == "17\n"
    assert "planted-words" in (kept / "journal.txt").read_text()
    assert "sample.service" in (kept / "units.txt").read_text()
    assert re.search(r"systemd\[1\]", (kept / "serial.log").read_text(errors="replace"))
    assert "failed with status 1" in (kept / "transcript.txt").read_text()
    assert {path.name for path in kept.iterdir()} >= {"ledger.txt", "host.json", "repeat.txt"}


STRAY = """
import sys
from tests.vm.sample import sample_host
from tests.vm.scenario import Scenario, SCENARIOS, prepared

with prepared(Scenario("stray", SCENARIOS / "none.py", {"machine": sample_host()}), 1) as run:
    machine = run.names()["machine"]
    machine.start()
    print("qemu", machine._qemu.process.pid, flush=True)
    sys.stdin.read()
"""


def test_a_killed_driver_leaves_no_machine(sample_run: Run) -> None:
    del sample_run  # the image is built
    with subprocess.Popen(
        [sys.executable, "-P", "-c", STRAY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"},
    ) as driver:
        assert driver.stdout is not None
        line = next(line for line in driver.stdout if line.startswith(b"qemu "))
        pid = int(line.split()[1])
        assert "qemu" in Path(f"/proc/{pid}/cmdline").read_text()
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    wait.until(lambda: not Path(f"/proc/{pid}").exists(), 30, "the end of the machine")
