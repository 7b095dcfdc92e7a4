"""What `cowboy doctor` concludes from the facts. Pure: every check is a function of `Examined`.

A check that could not run is `unknown`, never `ok`. Every finding that is not green has its fix.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from corral.cowboy.domain import pack_id
from corral.cowboy.examined import Examined, Finding, Result

CLOCK_AHEAD_MAX_MS: Final = 60_000  # of an id's time over this host's
CLOCK_STEP_MAX_S: Final = 30.0  # since the start of the daemon
DISK_FREE_MIN_BYTES: Final = 64 * 1024 * 1024
ANOMALIES_WINDOW_MS: Final = 24 * 3_600_000
SERVER_FLOOR: Final = (7, 0)

_AT_WORK: Final = ("running", "redis_full", "not_now", "stalled")  # the daemon has made its mark
_ASK_AGAIN: Final = "start the daemon, then run 'cowboy doctor' again"
_REACH: Final = "repair the way to Redis first (the check 'redis' says what is wrong)"

ANOMALIES: Final = {
    "ack_short": "an acknowledgement found nothing: compare the group of the stream with "
    "sources.json, and the identity's ACL with docs/reference/identities.md",
    "ack_forgotten": "Redis refuses XACK: give the agent's identity +xack again and restart Redis",
    "outbox_refused": "Redis refuses XADD to the outbox: repair its ACL, memory or type of key",
    "notice_undelivered": "a sender was not told: tell it, and repair the outbox",
    "poisoned": "'cowboy turns list' and the dead-letter stream name them; find why runs die",
    "conflict": "a producer reuses message ids for other words: repair the producer",
    "trimmed": "somebody removes entries before they are read: find who trims the inbox",
    "deleted": "somebody deletes entries that are pending: find who uses XDEL",
    "passed_over": "the group was set past entries, or another consumer took them: 'cowboy status' "
    "names the first; 'cowboy explain' it and those after it",
    "payload_lost": "somebody removes entries before they are read: find who trims the inbox",
    "incarnation_began": "Redis lost its data: check its append-only file and its disk",
}


def diagnose(facts: Examined) -> list[Finding]:
    """Every check, in the order in which an operator would repair."""
    return [finding for check in CHECKS for finding in check(facts)]


def _ok(check: str, text: str) -> Finding:
    return Finding(check, Result.OK, text)


def _failed(check: str, text: str, fix: str) -> Finding:
    return Finding(check, Result.FAILED, text, fix)


def _unknown(check: str, why: str, fix: str) -> Finding:
    return Finding(check, Result.UNKNOWN, f"could not be checked: {why}", fix)


def configuration(facts: Examined) -> Iterator[Finding]:
    if facts.config_error:
        fix = "correct what generates sources.json; 'cowboy check-config' lists every fault"
        yield _failed("configuration", facts.config_error, fix)
    else:
        yield _ok("configuration", f"{len(facts.consumers)} sources")


def files(facts: Examined) -> Iterator[Finding]:
    good = 0
    for file in facts.files:
        if file.error:
            fix = "run this as root"
            yield _unknown("files", f"{file.path}: {file.error}", fix)
        elif file.missing and not file.optional:
            yield _failed("files", f"{file.path} is missing", "start the unit that makes it")
        elif file.mode is not None and file.mode & file.forbidden:
            good_mode = file.mode & ~file.forbidden
            yield _failed(
                "files",
                f"{file.path} has mode {file.mode:04o}: others may use it",
                f"chmod {good_mode:04o} {file.path}",
            )
        else:
            good += 1
    if good == len(facts.files):
        yield _ok("files", f"{good} files and folders are private")


def disk(facts: Examined) -> Iterator[Finding]:
    for one in facts.disks:
        if one.free_bytes is None:
            yield _unknown("disk", f"{one.path}: {one.error}", "run this as root")
        elif one.free_bytes < DISK_FREE_MIN_BYTES:
            free = f"{one.free_bytes // (1024 * 1024)} MiB free"
            yield _failed("disk", f"{one.path}: {free}", "make room; work goes on by itself")
        elif one.free_inodes == 0:
            yield _failed("disk", f"{one.path}: no inodes free", "delete files; mkfs with more")
        else:
            yield _ok("disk", f"{one.path}: {one.free_bytes // (1024 * 1024)} MiB free")


def daemon(facts: Examined) -> Iterator[Finding]:
    if facts.daemon.error:
        unit = f"'systemctl status cowboy-{facts.agent}'"
        yield _failed("daemon", facts.daemon.error, f"start it; {unit} and its journal say why")
        return
    version = str(facts.daemon.status.get("version"))
    if version != facts.version:
        text = f"the daemon is {version}, this program is {facts.version}"
        yield _failed("daemon", text, "restart the daemon after the upgrade")
    else:
        yield _ok("daemon", f"answers, version {version}")


def poll(facts: Examined) -> Iterator[Finding]:
    for source, status in _sources(facts):
        check = f"poll {source}"
        if status is None:
            yield _unknown(check, "the daemon cannot be asked", _ASK_AGAIN)
        elif status.get("healthy") is not True:
            state = str(status.get("state"))
            fix = _POLL_FIXES.get(state, "look at the daemon's log")
            yield _failed(check, f"{state}: {status.get('reason')}", fix)
        elif status.get("last_poll_age_s") is None:
            yield _unknown(check, "no poll was answered so far", "ask again in a moment")
        else:
            yield _ok(check, f"last answered {status['last_poll_age_s']:.1f} s ago")


_POLL_FIXES: Final = {
    "stalled": "look whether Redis answers ('redis-cli ping'); else restart the daemon",
    "blocked": "'cowboy adopt' explains whose ledger it is and takes over",
    "disconnected": "look whether Redis runs, and at the credential and ACL of the agent's user",
    "redis_full": "raise maxmemory, or let the outboxes' readers catch up",
    "not_now": "look at the server's log: disk, replica or script",
    "storage_full": "make room on the ledger's disk; work goes on by itself",
    "storage_failed": "look at the ledger's disk and its owner; docs/how-to/ledger.md",
    "running": "start the agent's runner",
}


def runner(facts: Examined) -> Iterator[Finding]:
    if facts.daemon.error:
        yield _unknown("runner", "the daemon cannot be asked", _ASK_AGAIN)
        return
    found = facts.daemon.status.get("runner")
    if found is None:
        yield Finding("runner", Result.ABSENT, "no source needs one")
    elif not found.get("connected"):
        fix = f"start 'cowboy runner {facts.agent}' (unit cowboy-runner-{facts.agent})"
        yield _failed("runner", "the runner does not answer: no turn can start", fix)
    else:
        yield _ok("runner", "connected")


def session(facts: Examined) -> Iterator[Finding]:
    for one in facts.sessions:
        check, where = f"session {one.source}", f"at {one.socket}"
        if one.hidden:
            yield _unknown(check, f"no permission to ask {where}", "run this as root")
        elif one.error:
            fix = "start the TAMQ of the runner's user: its unit, or 'tamq serve'; turns wait"
            yield _failed(check, f"{one.error} {where}", fix)
        elif one.foreign:
            fix = "run the runner as the user whose sessions it is to wake"
            yield _failed(check, f"the TAMQ {where} is another user's than the runner", fix)
        elif one.live == 0:
            fix = f"start one: tamq run --repo {one.repo} -- COMMAND; until then turns wait"
            yield _failed(check, f"no live session serves {one.repo}", fix)
        elif (one.live or 0) > 1:
            fix = "end or 'tamq detach' all but one: TAMQ never chooses; until then turns wait"
            yield _failed(check, f"{one.live} live sessions serve {one.repo}", fix)
        else:
            seen = "only its user sees its sessions" if one.live is None else "one live session"
            yield _ok(check, f"TAMQ answers; {seen}")


def ledger_integrity(facts: Examined) -> Iterator[Finding]:
    found = facts.daemon.integrity
    if found is None:
        why = facts.daemon.integrity_error or "the daemon cannot be asked"
        yield _unknown("ledger integrity", why, _ASK_AGAIN)
    elif found != "ok":
        yield _failed("ledger integrity", found, "stop the daemon, restore: docs/how-to/ledger.md")
    else:
        yield _ok("ledger integrity", "SQLite finds no fault")


def ledger_schema(facts: Examined) -> Iterator[Finding]:
    check, file, want = "ledger schema", facts.ledger, facts.schema
    running = facts.daemon.status.get("ledger", {}).get("schema")
    # A daemon that runs has made sure that it can use the schema that it found.
    usable = running is not None and running > want and file.schema in (None, running)
    of_daemon = usable or (running is not None and running < want) or file.schema is None
    found = running if of_daemon else file.schema
    if file.application_id not in (None, facts.application_id) and file.application_id != 0:
        yield _failed(check, "the file is another program's", "put the agent's ledger back")
    elif found is None and not file.exists and not file.error:
        yield _failed(check, "there is no ledger", "start the daemon; was it lost? see 'ledger'")
    elif found is None:
        yield _unknown(check, file.error or "the file has no header", "run this as root")
    elif usable:
        yield _ok(check, f"schema {found}, of a newer version, which leaves it usable for this one")
    elif found > want:
        text = f"schema {found}, this program knows {want}"
        hint = "start the daemon: it says whether it can use it; else run the version that wrote it"
        yield _failed(check, text, hint)
    elif found < want:
        text = f"schema {found} is older than {want}"
        yield _failed(check, text, "start the daemon of this version: it brings it up to date")
    else:
        yield _ok(check, f"schema {found}")


def ledger_owner(facts: Examined) -> Iterator[Finding]:
    ours = facts.daemon.status.get("ledger", {}).get("uuid")
    for source, status in _sources(facts):
        check, stream = f"ledger {source}", facts.redis.sources.get(source)
        adopt = "find the right ledger, or 'cowboy adopt': docs/how-to/ledger.md"
        if stream is None or stream.refused:
            why = facts.redis.error or "; ".join(stream.refused if stream else ())
            yield _unknown(check, why or "Redis was not read", _REACH)
        elif stream.ledger_uuid is None:
            text = "no ledger has served this stream yet"
            if ours and status is not None and status.get("state") in _AT_WORK:
                lost = "Redis has lost its mark of the ledger that serves it"
                yield _unknown(check, lost, "if this stays: docs/runbooks/redis-lost-data.md")
            else:
                yield _ok(check, text) if ours else _unknown(check, text, _ASK_AGAIN)
        elif not facts.ledger.exists and not facts.ledger.error and not ours:
            yield _failed(check, f"lost: Redis names ledger {stream.ledger_uuid}", adopt)
        elif status is None or not ours:
            yield _unknown(check, "the daemon cannot be asked which it has", _ASK_AGAIN)
        elif stream.ledger_uuid != ours:
            text = f"Redis names ledger {stream.ledger_uuid}, the daemon has {ours}"
            yield _failed(check, text, adopt)
        elif (stream.ledger_sequence or 0) > int(status.get("sequence") or 0):
            text = f"Redis has seen commit {stream.ledger_sequence}: this is an older copy"
            yield _failed(check, text, adopt)
        else:
            yield _ok(check, f"{ours}, commit {status.get('sequence')}")


def anomalies(facts: Examined) -> Iterator[Finding]:
    found = facts.daemon.anomalies
    if found is None:
        why = facts.daemon.anomalies_error or "the daemon cannot be asked"
        yield _unknown("anomalies", why, _ASK_AGAIN)
        return
    bad = 0
    for source, rows in found.items():
        for row in rows:
            fix = ANOMALIES.get(str(row["kind"]))
            if fix is not None:
                bad += 1
                ago_min = max(facts.now_ms - int(row["last_ms"]), 0) // 60_000
                text = f"{row['kind']}: {row['count']} in 24 h, the last {ago_min} min ago"
                yield _failed(f"anomalies {source}", text, fix)
    if not bad:
        yield _ok("anomalies", "none in 24 h")


def clock(facts: Examined) -> Iterator[Finding]:
    step_s = facts.daemon.status.get("clock_step_s")
    newest = [s.newest_id for s in facts.redis.sources.values() if s.newest_id is not None]
    if step_s is None and not newest:
        yield _unknown("clock", "neither the daemon nor Redis has anything to compare", _ASK_AGAIN)
        return
    ahead_ms = max((_ms(each) - facts.now_ms for each in newest), default=0)
    if ahead_ms > CLOCK_AHEAD_MAX_MS:
        yield _failed(
            "clock",
            f"a stream has an id {ahead_ms / 1000:.0f} s in the future of this host",
            "set the clock (timedatectl); if it is right, a producer chose ids of its own",
        )
    elif step_s is not None and abs(step_s) > CLOCK_STEP_MAX_S:
        yield _failed(
            "clock",
            f"the clock was set by {step_s:+.0f} s while the daemon ran",
            "check it (timedatectl); when it is right, restart the daemon",
        )
    elif step_s is None:
        yield _unknown("clock", "the daemon cannot be asked whether it was set", _ASK_AGAIN)
    else:
        yield _ok("clock", "not set while the daemon ran, no id is in the future")


def _ms(entry: str) -> int:
    return int.from_bytes(pack_id(entry.encode())[:8], "big")


def redis(facts: Examined) -> Iterator[Finding]:
    if facts.redis.error:
        if facts.redis.down:
            fix = "start Redis; or correct the operator's credential, socket or namespace"
            yield _failed("redis", facts.redis.error, fix)
        else:
            fix = "run this as root, or set COWBOY_REDIS_URL and the operator's credential"
            yield _unknown("redis", facts.redis.error, fix)
        return
    numbers = tuple(int(part) for part in facts.redis.version.split(".")[:2] if part.isdigit())
    name = f"{facts.redis.server} {facts.redis.version}"
    if facts.redis.server == "redis" and numbers < SERVER_FLOOR:
        yield _failed("redis", f"{name} is too old", "install Redis 7.0 or newer, or Valkey")
    else:
        yield _ok("redis", f"{name} answers the operator")


def anonymous(facts: Examined) -> Iterator[Finding]:
    if facts.redis.anonymous == "refused":
        yield _ok("anonymous access", "refused")
    elif facts.redis.anonymous == "admitted":
        fix = "add the generated line 'user default off …' to the ACL file and restart Redis"
        text = "Redis answers who has not said who it is: its user 'default' is on"
        yield _failed("anonymous access", text, fix)
    else:
        why = facts.redis.anonymous_error or facts.redis.error or "Redis was not asked"
        yield _unknown("anonymous access", why, _REACH)


def group(facts: Examined) -> Iterator[Finding]:
    for source, status in _sources(facts):
        check, stream = f"group {source}", facts.redis.sources.get(source)
        if stream is None or stream.has_group is None:
            why = facts.redis.error or "; ".join(stream.refused if stream else ())
            yield _unknown(check, why or "Redis was not read", _REACH)
        elif not stream.has_group:
            fix = "start or restart the daemon: it makes the group from the stream's beginning"
            what = "the stream has no group 'cowboy'" if stream.has_stream else "no stream yet"
            yield _failed(check, what, fix)
        elif stream.skipped is None:
            why = "the daemon cannot be asked what it took"
            if status is not None:
                why = "its source is not at work, or has too much pending"
            yield _unknown(check, why, _ASK_AGAIN)
        elif stream.skipped:
            text = f"{len(stream.skipped)} entries were passed over, the first {stream.skipped[0]}"
            fix = "the group was set to '$' or by hand: 'cowboy explain' each, then send it again"
            yield _failed(check, text, fix)
        else:
            yield _ok(check, "exists, and has passed over nothing")


def consumers(facts: Examined) -> Iterator[Finding]:
    for source, own in facts.consumers.items():
        check, stream = f"consumers {source}", facts.redis.sources.get(source)
        if stream is None or stream.consumers is None:
            if stream is not None and not stream.refused:
                yield _unknown(check, "there is no group", "see the check 'group'")
                continue
            why = facts.redis.error or "; ".join(stream.refused if stream else ())
            yield _unknown(check, why or "Redis was not read", _REACH)
            continue
        ghosts = [c for c in stream.consumers if c.name != own]
        for ghost in ghosts:
            text = f"{ghost.name!r} is not ours and has {ghost.pending} entries pending"
            fix = "stop that reader; once its entries are reclaimed, XGROUP DELCONSUMER it"
            yield _failed(check, text, fix)
        if not ghosts:
            yield _ok(check, f"only {own}")


def namespace(facts: Examined) -> Iterator[Finding]:
    found = facts.namespace
    if found.name is None:
        yield Finding("namespace", Result.ABSENT, "none is configured")
    elif found.missing:
        text = f"there is no network namespace {found.name}"
        yield _failed("namespace", text, "start the unit that makes it (cowboy-ns)")
    elif found.same is None:
        why = found.error or "the daemon cannot be asked"
        yield _unknown("namespace", why, "run this as root, with the daemon running")
    elif not found.same:
        text = f"the daemon is not in {found.name}"
        yield _failed("namespace", text, "restart the daemon: its unit joins at the start")
    else:
        yield _ok("namespace", f"the daemon is in {found.name}")


def egress(facts: Examined) -> Iterator[Finding]:
    found = facts.namespace
    if found.egress_error:
        yield _unknown("egress", found.egress_error, "run this as root")
    elif not found.egress:
        yield Finding("egress", Result.ABSENT, "no destination is allowed, or no namespace is used")
    for target, problem in found.egress:
        if problem:
            fix = "restart the namespace's unit; check its pair of interfaces and the host's NAT"
            yield _failed("egress", f"{target}: {problem}", fix)
        else:
            yield _ok("egress", f"{target} can be reached")


def _sources(facts: Examined) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Each configured source with the daemon's word on it, if there is one."""
    told = {of["source"]: of for of in facts.daemon.status.get("sources", ())}
    for source in facts.consumers:
        yield source, told.get(source)


CHECKS: Final[tuple[Callable[[Examined], Iterator[Finding]], ...]] = (
    configuration,
    files,
    disk,
    clock,
    namespace,
    egress,
    redis,
    anonymous,
    daemon,
    runner,
    session,
    poll,
    group,
    consumers,
    ledger_owner,
    ledger_schema,
    ledger_integrity,
    anomalies,
)
