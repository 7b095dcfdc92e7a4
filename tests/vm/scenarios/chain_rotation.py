"""Every secret on the way is replaced while mentions flow: each is answered, and what was before is
refused."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

UNITS = ["postgresql", "matrix-synapse", "redis-cowboy", "cowboy-runner-scout", "cowboy-scout"]
UNITS += ["a2a-gateway", "a2a-bridge"]
REDIS, GATEWAY, BRIDGE = (
    "/var/lib/cowboy/secrets",
    "/var/lib/a2a-gateway-tokens",
    "/var/lib/a2a-bridge",
)
# Each secret, and how it takes effect: as docs/how-to/secrets.md says.
SECRETS = {
    f"{REDIS}/redis-agent-scout": "",
    f"{REDIS}/redis-source.scout.a2a": "",
    f"{REDIS}/redis-operator": "",
    f"{GATEWAY}/bridge": "a2a-gateway-tokens",
    f"{BRIDGE}/as-token": "a2a-bridge-registration",
    f"{BRIDGE}/hs-token": "a2a-bridge-registration",
}
BEFORE = "/run/before"
# Of each token: a request that it allows, and where to.
ASKS = {
    f"{BRIDGE}/as-token": ("GET /_matrix/client/v3/account/whoami", "127.0.0.1 8008"),
    f"{BRIDGE}/hs-token": ("PUT /_matrix/app/v1/transactions/nothing", "127.0.0.1 29331"),
    f"{GATEWAY}/bridge": ("POST /a2a/scout/", "-U /run/a2a-gateway/socket"),
}
REFUSED = (" 401 ", " 403 ")
MENTIONS = 12


def kept(path: str) -> str:
    return f"{BEFORE}/{path.rpartition('/')[2]}"


def asked(request: str, token: str, way: str) -> str:
    """The status line of the answer to a request with the token that a file holds."""
    head = f"{request} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n"
    head += f"Authorization: Bearer $(cat {token})\\r\\n"
    head += "Content-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}"
    return machine.succeed(f'printf "{head}" | nc {way} | head -n 1').strip()


def pinged(user: str, secret: str) -> str:
    """What Redis answers to the user with the password that a file holds."""
    ping = f"redis-cli --user {user} ping 2>&1 || true"
    return machine.succeed(f"REDISCLI_AUTH=$(cat {secret}) ip netns exec cowboy-ns {ping}")


with subtest("everything is up"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")
    machine.succeed("corral-vm mention --work 0.1")

with subtest("each secret is replaced, one after the other, while mentions flow"):
    machine.succeed(f"umask 077; mkdir {BEFORE}; cp {' '.join(SECRETS)} {BEFORE}")
    flow = f"--count {MENTIONS} --seconds 40 --rooms 2 --work 0.5"
    machine.succeed(f"systemd-run --unit=client corral-vm mention {flow}")
    for path, unit in SECRETS.items():
        machine.succeed(f"rm {path}")
        if unit:
            machine.succeed(f"systemctl restart {unit}", timeout=300)
        machine.wait_until_succeeds(f"test -s {path}")
        machine.fail(f"cmp -s {path} {kept(path)}")
    machine.wait_for_file("/var/lib/corral-vm/record/answered", timeout=600)

with subtest("what was before is refused, and what is now is not"):
    for user, name in (("agent-scout", "redis-agent-scout"), ("operator", "redis-operator")):
        assert "WRONGPASS" in pinged(user, f"{BEFORE}/{name}"), user
        assert pinged(user, f"{REDIS}/{name}") == "PONG\n", user
    for path, (request, way) in ASKS.items():
        before, now = asked(request, kept(path), way), asked(request, path, way)
        assert any(code in before for code in REFUSED), f"{path}: {before}"
        # Whoever is let in may be told that there is nothing in the request.
        assert now.startswith("HTTP/1.1 "), f"{path}: {now}"
        assert not any(code in now for code in REFUSED), f"{path}: {now}"

with subtest("all is well, and each mention has one end"):
    machine.wait_until_succeeds("corral doctor --timeout 200", timeout=300)
    machine.succeed("systemctl stop cowboy-scout cowboy-runner-scout")
    status, said = machine.execute("corral-vm chain")
    summary = json.loads(said)["summary"]
    assert status == 0, said
    assert summary["asked"] == summary["answered"] + summary["notices"] == 1 + MENTIONS, said

machine.shutdown()
