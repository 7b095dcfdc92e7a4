"""f62 f63: the network is restarted, the namespace is made anew, two are made at once."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

NS = "cowboy-ns"
MEMBERS = ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout")
CLIENT = "corral-vm client --count 3 --seconds 0.3 --plain"


def pids() -> list[str]:
    return machine.succeed(f"systemctl show -P MainPID {' '.join(MEMBERS)}").split()


def wait_for_members() -> None:
    for unit in MEMBERS:
        machine.wait_for_unit(f"{unit}.service")


def assert_members_are_inside() -> None:
    links = " ".join(f"/proc/{pid}/ns/net" for pid in (*pids(), "1"))
    *members, outside = machine.succeed(f"stat -L -c %i {links}").split()
    inside = machine.succeed(f"stat -L -c %i /run/netns/{NS}").strip()
    assert set(members) == {inside}
    assert outside != inside


with subtest("f62: what is mounted for the namespace is seen by all, its loopback is up"):
    wait_for_members()
    assert_members_are_inside()
    assert "LOOPBACK,UP" in machine.succeed(f"ip -n {NS} link show lo")
    assert machine.succeed(f"ip -n {NS} -br link show | wc -l") == "1\n"

with subtest("f63: a restart of the host's network leaves the services where they are"):
    before = pids()
    machine.succeed("ip link set eth0 up")
    machine.block()
    machine.succeed("ip link set eth0 down; ip link set eth0 up")
    machine.unblock()
    machine.succeed("systemctl restart systemd-networkd")
    machine.wait_for_unit("systemd-networkd.service")
    assert pids() == before
    assert_members_are_inside()
    machine.succeed(f"{CLIENT} --seed 1")

with subtest("f63: a restart of the namespace takes its members along, into the new one"):
    old = machine.succeed(f"stat -L -c %i /run/netns/{NS}")
    before = pids()
    machine.succeed(f"systemctl restart {NS}")
    wait_for_members()
    machine.wait_until_succeeds("systemctl is-active " + " ".join(MEMBERS))
    assert not set(pids()) & set(before)
    assert_members_are_inside()
    machine.succeed(f"{CLIENT} --seed 2")
    print(f"the namespace was {old.strip()}")

with subtest("f63: a second start of the unit changes nothing"):
    before = pids()
    machine.succeed(f"systemctl start {NS}")
    assert pids() == before

with subtest("f63: what a killed `ip netns add` left behind is no obstacle"):
    machine.succeed(f"systemctl stop {NS}")
    machine.fail(f"test -e /run/netns/{NS}")
    machine.succeed(f"touch /run/netns/{NS}")
    machine.succeed(f"systemctl start {NS} {' '.join(MEMBERS)}")
    wait_for_members()
    assert_members_are_inside()

with subtest("f63: two first namespaces of a host at once"):
    machine.succeed(f"systemctl stop {NS}")
    machine.succeed("umount /run/netns; rmdir /run/netns")
    both = f"systemctl start --no-block {NS}; ip netns add rival; ip netns exec rival true"
    machine.succeed(both)
    machine.succeed(f"systemctl start {NS} {' '.join(MEMBERS)}")
    wait_for_members()
    assert_members_are_inside()
    machine.succeed("ip netns exec rival true")
    machine.succeed(f"{CLIENT} --seed 3")

machine.shutdown()
