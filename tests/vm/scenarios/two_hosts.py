"""Bridge here, agents there: a killed worker, a cut network, a power failure; each is answered."""

import json
import os
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.vm.names import agents, rooms, start_all, subtest

SEED = int(os.environ.get("CORRAL_SEED", "1"))
HERE = ("matrix-synapse", "postgresql", "a2a-bridge")
THERE = ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout", "a2a-gateway", "a2a-bridge")
AGENTS, ROOMS = "192.168.1.1", "192.168.1.2"
RECORD = "/var/lib/corral-vm/record"
EFFECTS = "/var/lib/cowboy-agents/scout/effects.jsonl"
TOKEN = "/run/given/gateway-bridge"
# So that the killed bridge stays where it is; `mask` has no effect on a unit in /etc.
DOWN = "/run/systemd/system/a2a-bridge.service.d/down.conf"
SAID = {"first": 1, "killed": 4, "kept": 2, "cut": 3, "crashed": 2}
MENTIONS = sum(SAID.values())
OPEN = ("pending", "a2a_prepared", "awaiting_task", "awaiting_input", "reply_pending")

print(f"CORRAL_SEED={SEED}")


def mention(when: str, more: str = "--no-wait", work_s: float = 1.5) -> None:
    """The people of the rooms say so many things; the agent works on each for a while."""
    flow = f"--seed {SEED} --count {SAID[when]} --seconds 1 --rooms 2 --work {work_s} {more}"
    rooms.succeed(f"corral-vm mention {flow}")


def wait_for_answers() -> None:
    """To all that was said so far: an answer, or a notice."""
    rooms.succeed("corral-vm mention --count 0 --rooms 2", timeout=900)


def happened(event: str) -> int:
    """How often the agent began (`start`) or ended (`end`)."""
    return int(agents.succeed(f'cat {EFFECTS} | grep -c \'"ev": "{event}"\' || true'))


def wait_for(event: str, count: int) -> None:
    agents.wait_until_succeeds(
        f'test $(grep -c \'"ev": "{event}"\' {EFFECTS}) -ge {count}', timeout=600
    )


def jobs() -> list[dict[str, Any]]:
    """All of the bridge's, whatever became of them; asked where the database is."""
    states = " ".join(f"--state {state}" for state in (*OPEN, "delivered"))
    listed = rooms.succeed(f"a2a-bridge jobs list --limit 1000 --json {states}")
    found: list[dict[str, Any]] = json.loads(listed)["jobs"]
    return found


def called(header: str = "") -> str:
    """A command that prints the status line of an answer to an A2A call."""
    head = f"POST /a2a/scout/ HTTP/1.1\\r\\nHost: {AGENTS}:8080\\r\\nContent-Type: application/json"
    head += f"\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n{header}\\r\\n{{}}"
    return f'set -o pipefail; printf "{head}" | nc -w 30 {AGENTS} 8080 | head -n 1'


start_all()

with subtest("everything comes up, on both"):
    for unit in HERE:
        rooms.wait_for_unit(f"{unit}.service")
    for unit in THERE:
        agents.wait_for_unit(f"{unit}.service")
    agents.wait_for_unit("a2a-gateway-listen.socket")
    for one in (rooms, agents):
        assert one.succeed("systemctl --failed --no-legend --plain") == ""
    assert "takes no transactions" in agents.get_unit_property("a2a-bridge", "StatusText")
    rooms.wait_until_succeeds("systemctl status a2a-bridge | grep -q 'takes transactions'")

with subtest("a mention here is answered by the agent there"):
    mention("first", more="")
    assert (happened("start"), happened("end")) == (1, 1)

with subtest("the gateway serves the other host with its token only"):
    assert "401" in rooms.succeed(called())
    assert "401" in rooms.succeed(called("Authorization: Bearer wrong\\r\\n"))
    assert "200" in rooms.succeed(called(f"Authorization: Bearer $(cat {TOKEN})\\r\\n"))

with subtest("Redis is nobody's but the agents'"):
    agents.succeed("ip netns exec cowboy-ns nc -z 127.0.0.1 6379")
    status, said = rooms.execute(f"nc -vz -w 10 {AGENTS} 6379 2>&1")
    assert status != 0, said
    assert "refused" in said, said
    rooms.succeed(f"nc -z -w 10 {AGENTS} 8080")

with subtest("the bridge's worker here is killed at work; the one there takes over"):
    # All is this one's until then: the other stands still, and knows nothing of it.
    agents.succeed("systemctl kill --signal=STOP a2a-bridge")
    rooms.succeed(f"mkdir -p $(dirname {DOWN}); printf '[Service]\\nRestart=no\\n' >{DOWN}")
    rooms.succeed("systemctl daemon-reload")
    mention("killed", work_s=4)
    wait_for("start", SAID["first"] + 1)
    rooms.succeed("corral-vm kill a2a-bridge")
    rooms.wait_until_succeeds("systemctl is-failed a2a-bridge")
    assert [job for job in jobs() if job["state"] in OPEN]
    agents.succeed("systemctl kill --signal=CONT a2a-bridge")
    wait_for_answers()
    assert not [job for job in jobs() if job["state"] != "delivered"]
    rooms.fail("systemctl is-active a2a-bridge")

with subtest("what is said while it is down, Synapse keeps; it comes back, and that is answered"):
    mention("kept")
    assert len(jobs()) == SAID["first"] + SAID["killed"]
    rooms.succeed(f"rm {DOWN}; systemctl daemon-reload; systemctl start a2a-bridge")
    wait_for_answers()
    assert len(jobs()) == SAID["first"] + SAID["killed"] + SAID["kept"]

with subtest("the network is cut while mentions are open; none is lost, and none sent twice"):
    before = happened("end")
    mention("cut")
    wait_for("start", before + 1)
    agents.block()
    rooms.fail(f"nc -z -w 2 {AGENTS} 8080")
    # The agent goes on, and nobody hears of it.
    wait_for("end", happened("start"))
    assert [job for job in jobs() if job["state"] in OPEN]
    agents.unblock()
    rooms.wait_until_succeeds(f"nc -z -w 10 {AGENTS} 8080")
    wait_for_answers()

with subtest("the agents' machine loses its power; what is said meanwhile waits for it"):
    agents.crash()
    mention("crashed")
    agents.start()
    for unit in THERE:
        agents.wait_for_unit(f"{unit}.service")
    wait_for_answers()

with subtest("what was said, answered and done agrees: each once, and nothing is left on the way"):
    agents.succeed("systemctl stop cowboy-scout cowboy-runner-scout")
    exported = agents.succeed("corral-vm export").strip()
    with tempfile.TemporaryDirectory() as folder:
        agents.copy_from_vm(exported, folder)
        rooms.copy_from_host(f"{folder}/export.json", f"{RECORD}/agents.json")
    status, said = rooms.execute(f"corral-vm chain --exported {RECORD}/agents.json")
    print(said)
    summary = json.loads(said)["summary"]
    assert status == 0, said
    assert (summary["asked"], summary["answered"], summary["notices"]) == (MENTIONS, MENTIONS, 0)
    assert happened("start") == MENTIONS

with subtest("all is green again, and both processes of the bridge say so"):
    agents.succeed("systemctl start cowboy-runner-scout cowboy-scout")
    for one in (rooms, agents):
        one.wait_until_succeeds("test $(systemctl is-system-running) = running", timeout=300)
        one.wait_until_succeeds("a2a-bridge doctor", timeout=300)

rooms.shutdown()
agents.shutdown()
