"""Kills in a row: no number of them makes systemd give a service up."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

UNITS = ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout")
# One more than the starts that systemd allows in 10 s unless a unit says otherwise.
KILLS = 6
# Kills a unit as soon as it runs again; a unit that was given up ends the loop.
AGAIN = """
old=0
for kill in $(seq {kills}); do
    until new=$(systemctl show -P MainPID {unit}); test $new != 0 -a $new != $old; do
        test $(systemctl show -P ActiveState {unit}) != failed || exit 1
    done
    kill -KILL $new
    old=$new
done
"""


def kill_in_a_row(unit: str) -> int:
    return machine.execute(AGAIN.format(kills=KILLS, unit=unit), timeout=200)[0]


with subtest("everything is up"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")

with subtest("control: a unit with systemd's own limit is given up"):
    properties = "-p Restart=always -p RestartSec=100ms"
    machine.succeed(f"systemd-run --unit=limited {properties} sleep 1000")
    kill_in_a_row("limited")
    machine.wait_until_succeeds(
        "test $(systemctl show -P ActiveState limited) = failed", timeout=60
    )
    assert machine.get_unit_property("limited.service", "Result") == "start-limit-hit"

for unit in UNITS:
    with subtest(f"{unit} is killed {KILLS} times in a row and comes back"):
        assert kill_in_a_row(unit) == 0
        machine.wait_for_unit(f"{unit}.service", timeout=120)
        assert int(machine.get_unit_property(f"{unit}.service", "NRestarts")) >= KILLS
        assert machine.get_unit_property(f"{unit}.service", "StartLimitIntervalUSec") == "0"

with subtest("messages pass"):
    machine.succeed("corral-vm client --seed 1 --count 5 --seconds 0.5 --plain")

machine.shutdown()
