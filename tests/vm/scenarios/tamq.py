"""f61: TAMQ is killed and restarted under live sessions; other users, and other TAMQs, stay out."""

import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

UNIT, SESSIONS = "tamq-alice.service", "sessions-alice.service"
EXPOSURE_MAX = 1.5
# A program with a line to write to; the second is on a terminal that `tamq run` holds.
PTY = "tamq run --repo lib --ack-mode injected -- cat"
PANES = {"shop": "%0", "lib": "%1"}


def socket(user: str) -> str:
    return f"/run/tamq/{user}/tamq.sock"


def as_user(user: str, command: str) -> str:
    become = f"setpriv --reuid {user} --regid users --init-groups -- env HOME=/home/{user}"
    return f"{become} bash -c {shlex.quote(command)}"


def asked(whose: str, op: str, **fields: object) -> str:
    """A request without a program of ours: a line to the socket, and the line that comes back."""
    line = json.dumps({"protocol": "0.1", "op": op, **fields})
    return f"printf '%s\\n' {shlex.quote(line)} | nc -U {socket(whose)}"


def ask(user: str, op: str, **fields: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(machine.succeed(as_user(user, asked(user, op, **fields))))
    assert answer["ok"], answer
    return answer


def send(repo: str, key: str) -> str:
    """Sends `key` as a message and gives back its id."""
    answer = ask(
        "alice", "send", client_id="scenario", idempotency_key=key, sender_repo="local",
        target_repo=repo, body=key,
    )  # fmt: skip
    return str(answer["message_id"])


def wait_for_message(ident: str, words: str) -> None:
    question = as_user("alice", asked("alice", "message", message_id=ident))
    machine.wait_until_succeeds(f"{question} | grep -qF {shlex.quote(words)}", timeout=300)


def tmux(words: str) -> str:
    return machine.succeed(as_user("alice", f"tmux -S {TMUX} {words}"))


def assert_arrives(repo: str, key: str) -> None:
    """The message is written, and the session shows it: its text came to the program there."""
    wait_for_message(send(repo, key), '"state":"injected"')
    assert key in tmux(f"capture-pane -p -J -t {PANES[repo]}")


def processes(unit: str) -> set[str]:
    return set(machine.succeed(f"cat /sys/fs/cgroup/system.slice/{unit}/cgroup.procs").split())


def main_pid() -> str:
    return machine.get_unit_property(UNIT, "MainPID")


def refused(command: str, *reasons: str) -> None:
    _, said = machine.execute(f"({command}) 2>&1")
    for reason in reasons:
        assert reason in said, f"`{command}` is not refused for {reason!r}: {said}"


with subtest("each user has a TAMQ, in a place of its own"):
    for user in ("alice", "bob"):
        machine.wait_for_unit(f"tamq-{user}.service")
        pid = machine.get_unit_property(f"tamq-{user}.service", "MainPID")
        places = f"/proc/{pid} /run/tamq/{user} /var/lib/tamq/{user} {socket(user)}"
        said = machine.succeed(f"stat -c '%U %a' {places}").splitlines()
        assert said == [f"{user} 555", f"{user} 700", f"{user} 700", f"{user} 600"], said
        assert ask(user, "ping")["protocol"] == "0.1"

with subtest("alice has sessions, in tmux and under tamq run, that are no part of the service"):
    uid = machine.succeed("id -u alice").strip()
    # As at a login: TAMQ runs already, and must see what is mounted later.
    place = f"/run/user/{uid}"
    machine.succeed(f"mkdir -p {place}; mount -t tmpfs -o mode=700,uid={uid} none {place}")
    TMUX = f"{place}/tmux"
    gita = "mkdir -p ~/.config/gita; printf '/src/shop,shop,,\\n/src/lib,lib,,\\n' "
    machine.succeed(as_user("alice", f"{gita} >~/.config/gita/repos.csv"))
    run = "systemd-run --quiet -p Type=forking --uid=alice --setenv=PATH=$PATH --unit"
    start = f"tmux -u -S {TMUX} -f /dev/null new-session -d -x 200 -y 50"
    machine.succeed(f"{run} {SESSIONS} {start} cat ';' new-window -d '{PTY}'")
    where = f"--pane {PANES['shop']} --tmux-socket {TMUX}"
    machine.succeed(as_user("alice", f"tamq attach --repo shop --ack-mode injected {where}"))
    both = as_user("alice", asked("alice", "endpoints"))
    machine.wait_until_succeeds(f'{both} | grep -F \'"kind":"pty"\'')
    sessions = processes(SESSIONS)
    assert len(sessions) == 4, sessions
    for repo in PANES:
        assert_arrives(repo, f"before-{repo}")

with subtest("f61: killed with all that is in its cgroup; what waited is delivered, once"):
    tmux(f"copy-mode -t {PANES['shop']}")
    waiting = send("shop", "across-the-kill")
    wait_for_message(waiting, '"waiting_reason":"copy_mode"')
    before = main_pid()
    machine.succeed(f"systemctl kill --kill-whom=all --signal=KILL {UNIT}")
    tmux(f"send-keys -t {PANES['shop']} -X cancel")
    wait_for_message(waiting, '"state":"injected"')
    assert main_pid() != before
    shown = tmux(f"capture-pane -p -J -t {PANES['shop']}")
    # Typed, and given back by `cat`.
    assert shown.count("across-the-kill") == 2, shown
    for repo in PANES:
        assert_arrives(repo, f"after-the-kill-{repo}")
    assert processes(SESSIONS) == sessions

with subtest("f61: restarted, and stopped for a while"):
    machine.succeed(f"systemctl restart {UNIT}")
    machine.succeed(f"systemctl stop {UNIT}")
    machine.fail(as_user("alice", asked("alice", "ping")))
    machine.succeed(f"systemctl start {UNIT}")
    for repo in PANES:
        assert_arrives(repo, f"after-the-stop-{repo}")
    assert processes(SESSIONS) == sessions

with subtest("control: a session that is part of a service ends with it"):
    inside = "inside-alice.service"
    machine.succeed(f"{run} {inside} tmux -S {place}/inside -f /dev/null new-session -d cat")
    (session, *_) = processes(inside)
    machine.succeed(f"systemctl kill --kill-whom=all --signal=KILL {inside}")
    machine.wait_until_fails(f"kill -0 {session}")

with subtest("another user is refused by the file's mode, and without that by the daemon"):
    ping = asked("alice", "ping")
    refused(as_user("bob", ping), "Permission denied")
    machine.succeed(f"chmod 0755 /run/tamq/alice; chmod 0666 {socket('alice')}")
    other = machine.succeed("id -u bob").strip()
    for user, number in (("bob", other), ("root", "0")):
        command = as_user(user, ping) if user != "root" else ping
        refused(command, '"code":"unauthorized"', f"user {number} is not user {uid}")
    assert ask("alice", "ping")["ok"]
    machine.succeed(f"chmod 0700 /run/tamq/alice; chmod 0600 {socket('alice')}")
    machine.succeed(f"journalctl --no-pager -u {UNIT} | grep -F 'peer refused'")

with subtest("neither of two users sees what is the other's"):
    mine, theirs = ask("alice", "endpoints"), ask("bob", "endpoints")
    assert (len(mine["endpoints"]), theirs["endpoints"]) == (2, [])
    assert ask("bob", "history")["messages"] == []
    refused(as_user("bob", asked("bob", "message", message_id=waiting)), '"code":"not_found"')
    fields = {"client_id": "x", "idempotency_key": "x", "sender_repo": "local", "body": "x"}
    to_shop = asked("bob", "send", target_repo="shop", **fields)
    refused(as_user("bob", to_shop), '"code":"unknown_repo"')
    machine.succeed(as_user("alice", "cat /var/lib/tamq/alice/queue.db >/dev/null"))
    refused(as_user("bob", "cat /var/lib/tamq/alice/queue.db"), "Permission denied")

with subtest("root asks as the user, who is named or has the socket; nobody else may"):
    instance = ask("alice", "ping")["instance"]
    for words in ("--user alice", f"--socket {socket('alice')}"):
        assert instance in machine.succeed(f"tamq {words} ping")
    refused(as_user("bob", "tamq --user alice ping"), "--user is for root")
    assert instance in machine.succeed(as_user("alice", "tamq ping"))

with subtest("the service is exposed to little"):
    rating = machine.succeed(f"systemd-analyze security --no-pager {UNIT} | tail -n 1")
    assert float(rating.split(":")[1].split()[0]) <= EXPOSURE_MAX, rating
    machine.succeed(as_user("alice", "touch ~/note"))
    write = f"nsenter --target {main_pid()} --mount --setuid {uid} touch ~alice/note"
    refused(write, "Read-only file system")

machine.shutdown()
