"""What `doctor` concludes: nothing on a healthy host, each fault by name, never green unseen."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from corral.cowboy import diagnosis
from corral.cowboy.diagnosis import (
    ANOMALIES,
    CHECKS,
    CLOCK_AHEAD_MAX_MS,
    CLOCK_STEP_MAX_S,
    DISK_FREE_MIN_BYTES,
    diagnose,
)
from corral.cowboy.examined import (
    Consumer,
    DaemonFacts,
    DiskFact,
    Examined,
    FileFact,
    LedgerFile,
    NamespaceFacts,
    RedisFacts,
    Result,
    StreamFacts,
    TamqFacts,
)
from corral.cowboy.view_doctor import is_green

NOW_MS = 1_796_000_000_000
UUID = "0f6c1f60-1111-4222-8333-444455556666"
APPLICATION_ID = 0x434F5742


def status(**source: Any) -> dict[str, Any]:
    plain = {
        "source": "a2a",
        "state": "running",
        "healthy": True,
        "reason": "",
        "last_poll_age_s": 0.2,
        "sequence": 7,
    }
    return {
        "version": "1",
        "clock_step_s": 0.0,
        "runner": {"connected": True},
        "ledger": {"uuid": UUID, "schema": 1},
        "sources": [plain | source],
    }


STREAM = StreamFacts(
    has_group=True,
    has_stream=True,
    consumers=(Consumer("harness-a2a", 0),),
    newest_id=f"{NOW_MS - 5}-0",
    ledger_uuid=UUID,
    ledger_sequence=7,
    skipped=(),
)
REDIS = RedisFacts(server="redis", version="7.0.15", anonymous="refused", sources={"a2a": STREAM})
SESSION = TamqFacts("chat", "/t/tamq.sock", "shop", live=1)
HEALTHY = Examined(
    agent="scout",
    now_ms=NOW_MS,
    config_error="",
    files=(FileFact("/s/ledger.db", 0o077, 0o600), FileFact("/s/gone", 0o077, None, missing=True)),
    disks=(DiskFact("/s", DISK_FREE_MIN_BYTES, 5),),
    ledger=LedgerFile(exists=True, application_id=APPLICATION_ID, schema=1),
    daemon=DaemonFacts(status=status(), integrity="ok", anomalies={"a2a": []}),
    redis=REDIS,
    namespace=NamespaceFacts("cowboy-ns", same=True, egress=(("192.0.2.1:443/tcp", ""),)),
    consumers={"a2a": "harness-a2a"},
    schema=1,
    application_id=APPLICATION_ID,
    version="1",
    sessions=(SESSION,),
)
DOWN = DaemonFacts(error="no daemon listens")
UNREAD = replace(REDIS, error="Redis did not answer in time", down=True, sources={})

Change = Callable[[Examined], Examined]


def of(**changes: Any) -> Change:
    return lambda facts: replace(facts, **changes)


def stream(**changes: Any) -> Change:
    return of(redis=replace(REDIS, sources={"a2a": replace(STREAM, **changes)}))


def told(top: dict[str, Any] | None = None, **source: Any) -> Change:
    return of(daemon=replace(HEALTHY.daemon, status=status(**source) | (top or {})))


def file(mode: int | None = 0o600, **changes: Any) -> Change:
    return of(files=(FileFact("/s/ledger.db", 0o077, mode, **changes),))


def session(**changes: Any) -> Change:
    return of(sessions=(SESSION._replace(**changes),))


def space(**changes: Any) -> Change:
    return of(namespace=NamespaceFacts(**{"name": "cowboy-ns", "same": True, **changes}))


# fault: how it looks, the check that finds it, words of the finding
FAULTS: dict[str, tuple[Change, str, str]] = {
    "configuration": (of(config_error="sources.a2a.ack: missing"), "configuration", "a2a.ack"),
    "mode": (file(0o644), "files", "mode 0644"),
    "mode, one bit": (file(0o601), "files", "mode 0601"),
    "a folder is missing": (file(None, missing=True, optional=False), "files", "is missing"),
    "disk": (of(disks=(DiskFact("/s", DISK_FREE_MIN_BYTES - 1, 5),)), "disk", "63 MiB free"),
    "inodes": (of(disks=(DiskFact("/s", DISK_FREE_MIN_BYTES, 0),)), "disk", "no inodes"),
    "clock behind": (
        stream(newest_id=f"{NOW_MS + CLOCK_AHEAD_MAX_MS + 1}-0"),
        "clock",
        "in the future",
    ),
    "clock set forward": (told({"clock_step_s": CLOCK_STEP_MAX_S + 0.1}), "clock", "was set by +"),
    "clock set back": (told({"clock_step_s": -CLOCK_STEP_MAX_S - 0.1}), "clock", "was set by -"),
    "no namespace": (space(missing=True), "namespace", "no network namespace cowboy-ns"),
    "wrong namespace": (space(same=False), "namespace", "not in cowboy-ns"),
    "egress": (space(egress=(("h:443/tcp", "Network is unreachable"),)), "egress", "unreachable"),
    "redis down": (of(redis=UNREAD), "redis", "did not answer"),
    "redis too old": (of(redis=replace(REDIS, version="6.2.14")), "redis", "too old"),
    "f15: anonymous": (of(redis=replace(REDIS, anonymous="admitted")), "anonymous access", "is on"),
    "daemon down": (of(daemon=DOWN), "daemon", "no daemon listens"),
    "old daemon": (told({"version": "0.9"}), "daemon", "the daemon is 0.9"),
    "runner": (told({"runner": {"connected": False}}), "runner", "no turn can start"),
    "no tamq": (session(error="no TAMQ answers"), "session chat", "answers at /t/tamq.sock"),
    "a foreign tamq": (session(foreign=True), "session chat", "another user's"),
    "no session": (session(live=0), "session chat", "no live session serves shop"),
    "two sessions": (session(live=2), "session chat", "2 live sessions serve shop"),
    "f05: stale poll": (
        told(healthy=False, state="stalled", reason="the last poll is 60 s old"),
        "poll a2a",
        "60 s old",
    ),
    "blocked": (told(healthy=False, state="blocked", reason="foreign"), "poll a2a", "foreign"),
    "no group": (stream(has_group=False, skipped=None), "group a2a", "no group 'cowboy'"),
    "no stream": (
        stream(has_group=False, has_stream=False, skipped=None, consumers=None),
        "group a2a",
        "no stream yet",
    ),
    "group at $": (stream(skipped=("1-0", "2-0")), "group a2a", "2 entries were passed over"),
    "ghost": (
        stream(consumers=(Consumer("harness-a2a", 0), Consumer("ghost", 2))),
        "consumers a2a",
        "'ghost' is not ours and has 2 entries",
    ),
    "foreign ledger": (stream(ledger_uuid="other"), "ledger a2a", "names ledger other"),
    "older copy": (stream(ledger_sequence=8), "ledger a2a", "commit 8"),
    "lost ledger": (
        of(daemon=DOWN, ledger=LedgerFile(exists=False)),
        "ledger a2a",
        f"lost: Redis names ledger {UUID}",
    ),
    "no ledger": (of(daemon=DOWN, ledger=LedgerFile(exists=False)), "ledger schema", "no ledger"),
    "newer schema": (
        of(daemon=DOWN, ledger=LedgerFile(True, APPLICATION_ID, 2)),
        "ledger schema",
        "this program knows 1",
    ),
    "a newer schema under a daemon that found another": (
        of(ledger=LedgerFile(True, APPLICATION_ID, 2)),
        "ledger schema",
        "schema 2, this program knows 1",
    ),
    "older schema": (
        of(daemon=DOWN, ledger=LedgerFile(True, APPLICATION_ID, 0)),
        "ledger schema",
        "older than 1",
    ),
    "an older daemon's schema": (
        told({"ledger": {"uuid": UUID, "schema": 0}}),
        "ledger schema",
        "older than 1",
    ),
    "a file that was changed under a daemon": (
        of(ledger=LedgerFile(True, APPLICATION_ID, 0)),
        "ledger schema",
        "older than 1",
    ),
    "another program's file": (
        of(ledger=LedgerFile(True, -1)),
        "ledger schema",
        "another program's",
    ),
    "integrity": (
        of(daemon=replace(HEALTHY.daemon, integrity="row 5 missing from index")),
        "ledger integrity",
        "row 5",
    ),
}


def test_a_healthy_host_has_no_finding() -> None:
    findings = diagnose(HEALTHY)
    assert {finding.result for finding in findings} == {Result.OK}
    assert is_green(findings)
    assert len(findings) == len(CHECKS)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_by_its_check(name: str) -> None:
    change, check, words = FAULTS[name]
    findings = diagnose(change(HEALTHY))
    (found,) = [one for one in findings if one.result is Result.FAILED and one.check == check]
    assert words in found.text
    assert found.fix
    assert "\n" not in found.text + found.fix
    assert not is_green(findings)


@pytest.mark.parametrize("kind", ANOMALIES)
def test_f01_each_anomaly_is_named(kind: str) -> None:
    rows: list[Mapping[str, Any]] = [
        {"kind": kind, "count": 3, "last_ms": NOW_MS - 120_000},
        {"kind": "empty", "count": 1, "last_ms": NOW_MS},
    ]
    facts = replace(HEALTHY, daemon=replace(HEALTHY.daemon, anomalies={"a2a": rows}))
    (found,) = [one for one in diagnose(facts) if one.result is not Result.OK]
    assert (found.check, found.result) == ("anomalies a2a", Result.FAILED)
    assert found.text == f"{kind}: 3 in 24 h, the last 2 min ago"
    assert found.fix == ANOMALIES[kind]


# What could not be looked at, and the checks that must then not be green.
UNSEEN: dict[str, tuple[Change, set[str]]] = {
    "daemon": (
        of(daemon=DOWN),
        {"runner", "poll a2a", "ledger a2a", "ledger integrity", "anomalies", "clock"},
    ),
    "daemon, parts": (
        of(daemon=DaemonFacts(status=status(), integrity_error="late", anomalies_error="late")),
        {"ledger integrity", "anomalies"},
    ),
    "redis": (
        of(redis=replace(UNREAD, anonymous="", anonymous_error="no answer")),
        {"anonymous access", "group a2a", "consumers a2a", "ledger a2a"},
    ),
    "no way to redis": (
        of(redis=RedisFacts(error="redis_url: is missing")),
        {"redis", "anonymous access", "group a2a", "consumers a2a", "ledger a2a"},
    ),
    "redis refuses": (
        stream(has_group=None, consumers=None, ledger_uuid=None, refused=("NOPERM",), skipped=None),
        {"group a2a", "consumers a2a", "ledger a2a"},
    ),
    "daemon and redis": (of(daemon=DOWN, redis=UNREAD), {"clock"}),
    "a file": (file(None, error="Permission denied"), {"files"}),
    "a disk": (of(disks=(DiskFact("/s", None, None, "Permission denied"),)), {"disk"}),
    "the ledger's file": (
        of(daemon=DOWN, ledger=LedgerFile(True, error="Permission denied")),
        {"ledger schema"},
    ),
    "a tamq": (session(hidden=True, live=None), {"session chat"}),
    "what was skipped": (stream(skipped=None), {"group a2a"}),
    "no poll so far": (told(last_poll_age_s=None), {"poll a2a"}),
    "the daemon's namespace": (space(same=None, error="Permission denied"), {"namespace"}),
    "egress": (space(egress_error="only root"), {"egress"}),
    "no group to list": (stream(consumers=None), {"consumers a2a"}),
    "a mark that is gone": (stream(ledger_uuid=None, ledger_sequence=None), {"ledger a2a"}),
    "a first start": (of(daemon=DOWN, redis=replace(REDIS, sources={
        "a2a": replace(STREAM, ledger_uuid=None)})), {"ledger a2a"}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSEEN)
def test_what_could_not_be_checked_is_not_green(name: str) -> None:
    change, checks = UNSEEN[name]
    findings = diagnose(change(HEALTHY))
    unknown = {one.check for one in findings if one.result is Result.UNKNOWN}
    assert checks <= unknown
    assert not is_green(findings)
    for one in findings:
        if one.result is Result.UNKNOWN:
            assert one.text.startswith("could not be checked: ")
            assert one.fix


def test_a_newer_schema_that_the_daemon_works_with_is_no_finding() -> None:
    works = told({"ledger": {"uuid": UUID, "schema": 2}})
    findings = diagnose(of(ledger=LedgerFile(True, APPLICATION_ID, 2))(works(HEALTHY)))
    assert is_green(findings)
    assert any("schema 2, of a newer version" in finding.text for finding in findings)


def test_what_does_not_apply_is_said_to_be_absent() -> None:
    facts = told({"runner": None})(replace(HEALTHY, namespace=NamespaceFacts()))
    findings = diagnose(facts)
    absent = {one.check for one in findings if one.result is Result.ABSENT}
    assert absent == {"runner", "namespace", "egress"}
    assert is_green(findings)


def test_limits() -> None:
    """At the limit nothing is found; `FAULTS` has one past it."""
    for change in (
        stream(newest_id=f"{NOW_MS + CLOCK_AHEAD_MAX_MS}-0"),
        told({"clock_step_s": CLOCK_STEP_MAX_S}),
        told({"clock_step_s": -CLOCK_STEP_MAX_S}),
        of(disks=(DiskFact("/s", DISK_FREE_MIN_BYTES, None),)),
        session(live=None),
        of(sessions=()),
        of(redis=replace(REDIS, version="7.0.0")),
        of(redis=replace(REDIS, server="valkey", version="8.0.0")),
        lambda facts: told(state="draining")(stream(ledger_uuid=None)(facts)),  # it has just begun
    ):
        assert is_green(diagnose(change(HEALTHY)))


def test_every_check_is_in_the_list() -> None:
    public = {
        value
        for name, value in vars(diagnosis).items()
        if callable(value) and not name.startswith("_") and value.__module__ == diagnosis.__name__
    }
    assert public - {diagnose} == set(CHECKS)
