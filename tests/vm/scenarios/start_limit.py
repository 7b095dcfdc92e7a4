"""Kills in a row: no number of them makes systemd give a service up."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

UNITS = ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout", "tamq-alice")
# One more than the starts that systemd allows unless a unit says otherwise.
KILLS = 6
# Kills each unit as soon as it runs again; a unit that was given up ends the loop.
AGAIN = """
again() {
    old=0
    for kill in $(seq %d); do
        until new=$(systemctl show -P MainPID $1); test $new != 0 -a $new != $old; do
            test $(systemctl show -P ActiveState $1) != failed || return 1
        done
        kill -KILL $new
        old=$new
    done
}
status=0
for unit in %s; do again $unit & done
for unit in %s; do wait -n || status=$?; done
exit $status
"""


def kill_in_a_row(*units: str) -> int:
    names = " ".join(units)
    return machine.execute(AGAIN % (KILLS, names, names), timeout=600)[0]


with subtest("everything is up"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")

with subtest("control: a unit with a limit of five starts is given up"):
    limit = "-p StartLimitIntervalSec=600 -p StartLimitBurst=5"
    machine.succeed(f"systemd-run --unit=limited -p Restart=always {limit} sleep 1000")
    kill_in_a_row("limited")
    machine.wait_until_succeeds("test $(systemctl show -P ActiveState limited) = failed")
    machine.succeed("journalctl --no-pager -u limited | grep -F 'repeated too quickly'")

with subtest(f"killed {KILLS} times in a row, and back"):
    assert kill_in_a_row(*UNITS) == 0
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service", timeout=300)
        assert int(machine.get_unit_property(f"{unit}.service", "NRestarts")) >= KILLS
        # Emulation is too slow to reach a limit of starts in ten seconds: so it is asked for, too.
        assert machine.get_unit_property(f"{unit}.service", "StartLimitIntervalUSec") == "0"

with subtest("messages pass"):
    machine.succeed("corral-vm client --seed 1 --count 5 --seconds 0.5 --plain")

machine.shutdown()
