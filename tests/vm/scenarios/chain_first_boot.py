"""The preset's first boot: a mention is answered by an agent behind bridge, gateway and Redis.

The machine has been started once, and nobody has spoken yet.
"""

import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

TOKENS, GATEWAY, BRIDGE = "a2a-gateway-tokens.service", "a2a-gateway.service", "a2a-bridge.service"
RUNNING = ["postgresql.service", "matrix-synapse.service", "redis-cowboy.service"]
RUNNING += ["cowboy-scout.service", "cowboy-runner-scout.service", GATEWAY, BRIDGE]
UNITS = ["cowboy-ns.service", "cowboy-secrets.service", "a2a-bridge-registration.service"]
UNITS += [TOKENS, *RUNNING]
CYCLES = "journalctl -b --no-pager -o cat _PID=1 | grep -c 'ordering cycle' || true"
TOKEN = "/var/lib/a2a-gateway-tokens/bridge"
SERVICES = [unit for unit in RUNNING if unit.startswith(("cowboy-", "a2a-"))]
EXPOSURE_MAX = 2.0
EXPOSED = ["cowboy-scout.service", GATEWAY, BRIDGE]  # the runner's profile is the agent's own
# What listens where: Synapse and the bridge outside, Redis alone in the namespace.
OUTSIDE, INSIDE = {"127.0.0.1:8008", "127.0.0.1:29331"}, {"127.0.0.1:6379"}
LISTENING = "ss -Hltn | awk '{print $4}'"
# For the search for secrets: each of them, and where it is on purpose.
COWBOY, TOKENS_OF_BRIDGE = "/var/lib/cowboy/secrets", "/var/lib/a2a-bridge"
WORDS = "/run/words-real"
SOCKET = "/run/a2a-gateway/socket"
ALLOWED = [f"{COWBOY}/", f"{TOKENS_OF_BRIDGE}/", TOKEN, "/run/credentials/"]
ALLOWED += ["/run/cowboy/operator-redis.env", "/run/a2a-bridge-registration/registration.yaml"]
NOWHERE = {"cmdline": [], "environ": [], "files": [], "journal": 0}
PATIENT = "--timeout 200"  # an emulated machine starts programs slowly
JOURNAL = "journalctl -b --no-pager -o export"


def at(unit: str, moment: str) -> int:
    """Microseconds since the machine was started."""
    return int(machine.get_unit_property(unit, f"{moment}Monotonic"))


def as_user(user: str, command: str, groups: str = "--init-groups") -> str:
    whom = f"--reuid {user} --regid $(id -g {user}) {groups}"
    return f"setpriv {whom} -- bash -c {shlex.quote(command)}"


def refused(command: str, reason: str) -> None:
    """The command fails, and says why: a denial for another reason proves nothing."""
    status, said = machine.execute(f"({command}) 2>&1")
    assert status != 0, f"`{command}` was not refused: {said}"
    assert reason in said, f"`{command}` failed for another reason: {said}"


def called(header: str = "") -> str:
    """A command that prints the status line of an answer to an A2A call, by the socket."""
    head = "POST /a2a/scout/ HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json"
    head += f"\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n{header}\\r\\n{{}}"
    return f'set -o pipefail; printf "{head}" | nc -U {SOCKET} | head -n 1'


def asked(command: str) -> Any:
    """The JSON that root's command prints; it ends with 0."""
    status, said = machine.execute(f"{command} --json 2>/run/said", timeout=600)
    assert status == 0, f"{command}: {status}: {said} {machine.execute('cat /run/said')[1]}"
    return json.loads(said)


with subtest("everything comes up by itself, and nothing had to be started again"):
    for unit in UNITS:
        machine.wait_for_unit(unit)
    assert machine.succeed("systemctl --failed --no-legend --plain") == ""
    assert machine.succeed(CYCLES) == "0\n"
    for unit in RUNNING:
        assert machine.get_unit_property(unit, "NRestarts") == "0", unit

with subtest("tokens are there before both sides start, for the gateway alone"):
    for unit in (GATEWAY, BRIDGE):
        assert at(TOKENS, "ActiveEnterTimestamp") <= at(unit, "ExecMainStartTimestamp"), unit
    assert machine.succeed(f"stat -c '%U:%G %a' {TOKEN}") == "a2a-gateway:a2a-gateway 400\n"
    for user in ("alice", "scout", "a2a-bridge"):
        refused(as_user(user, f"cat {TOKEN}"), "Permission denied")

with subtest("a mention is answered, by an agent that began once"):
    machine.succeed("corral-vm mention --count 1 --work 0.1")
    status, said = machine.execute("corral-vm chain 2>&1")
    assert status == 0, said
    summary = json.loads(said)["summary"]
    assert (summary["asked"], summary["answered"], summary["notices"]) == (1, 1, 0), said

with subtest("root's one command says that all is well, and shows the whole way of the mention"):
    # A machine that was frozen gets its clock set, which a doctor would rightly name.
    machine.succeed("systemctl restart cowboy-scout")
    machine.wait_until_succeeds("cowboy status scout")
    report = asked(f"corral doctor {PATIENT}")
    assert report["healthy"], report
    assert {"cowboy", "a2a-bridge", "corral-gateway"} == {x["service"] for x in report["lines"]}
    (listed,) = asked("a2a-bridge jobs list --state delivered")["jobs"]
    job = asked(f"a2a-bridge jobs show {listed['job_id']}")
    (task,) = asked(f"corral-gateway tasks {job['task_id']}")["tasks"]
    way = json.dumps(asked(f"corral trace {PATIENT} '{job['event_id']}'"))
    assert all(known in way for known in (job["job_id"], task["task_id"], "scout.a2a.")), way

with subtest("nobody else asks, and nobody without a token is served"):
    for command in ("corral-gateway tasks", "corral-gateway doctor", "a2a-bridge jobs list"):
        refused(as_user("alice", command), "only root can ask")
    assert "401" in machine.succeed(called())
    assert "401" in machine.succeed(called("Authorization: Bearer wrong\\r\\n"))
    assert "200" in machine.succeed(called(f"Authorization: Bearer $(cat {TOKEN})\\r\\n"))
    refused(as_user("alice", called(), "--clear-groups"), "Permission denied")

with subtest("nothing listens but what the topology declares"):
    assert set(machine.succeed(LISTENING).split()) == OUTSIDE
    assert set(machine.succeed(f"ip netns exec cowboy-ns {LISTENING}").split()) == INSIDE

with subtest("the services are exposed to little, and write metrics"):
    for unit in EXPOSED:
        said = machine.succeed(f"systemd-analyze security --no-pager {unit} | tail -n 1")
        assert float(said.split(":")[1].split()[0]) <= EXPOSURE_MAX, said
    for file, metric in (("gateway.prom", "gateway_"), ("cowboy-scout.prom", "cowboy_")):
        machine.wait_until_succeeds(f"grep -q ^{metric} /var/lib/metrics/{file}", timeout=60)

with subtest("no secret is where it is not on purpose, and no content in the journal"):
    machine.succeed(f"umask 077; cat {COWBOY}/* {TOKENS_OF_BRIDGE}/*-token {TOKEN} >{WORDS}")
    assert int(machine.succeed(f"grep -c . {WORDS}")) >= 6
    allowed = " ".join(f"--allow {path}" for path in ALLOWED)
    found = json.loads(machine.execute(f"corral-vm leaks {WORDS} {allowed}")[1])
    assert found == NOWHERE, found
    for unit in SERVICES:
        assert int(machine.succeed(f"{JOURNAL} -u {unit} | grep -c .")) > 0, unit
    assert machine.succeed(f"{JOURNAL} | grep -acF said-0 || true") == "0\n"

machine.shutdown()
