"""What `corral-gateway doctor` makes of facts."""

import inspect
import re

import pytest

from corral.core.errors import ForeignDatabaseError, StorageError
from corral.core.findings import Finding, Level
from corral.gateway import doctor
from corral.gateway.doctor import RedisFacts, SecretFacts, ServiceFacts, TaskFacts
from corral.gateway.domain import Limits
from tests.lint.repository import ROOT

LIMITS = Limits(open_tasks_max=10, tasks_max=100)


def test_every_finding_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "gateway.md").read_text()
    text = inspect.getsource(doctor)
    found = set(re.findall(r"""\b(?:fault|warning)\(\s*[^,]+, "([a-z_]+)\"""", text))
    found |= {"foreign_database", "database_unusable"}
    assert len(found) > 12
    for code in found:
        assert f"`{code}`" in page


def codes(found: list[Finding]) -> list[str]:
    bad = [one for one in found if one.level is not Level.OK]
    assert all(one.hint for one in bad)
    return [one.code for one in bad]


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (SecretFacts("c", "/f"), "ok"),
        (SecretFacts("c", "/f", 0o640), "ok"),
        (SecretFacts("c", "/f", 0o644), "secret_readable"),
        (SecretFacts("c", "/f", 0o602), "secret_readable"),
        (SecretFacts("c", "/f", missing=True), "secret_missing"),
        (SecretFacts("c", "/f", trouble="no token"), "secret_invalid"),
    ],
)
def test_secrets(facts: SecretFacts, code: str) -> None:
    assert doctor.of_secret(facts).code == code


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (TaskFacts(), []),
        (TaskFacts(there=False), ["database_missing"]),
        (TaskFacts(error=ForeignDatabaseError("x", hint="y")), ["foreign_database"]),
        (TaskFacts(error=StorageError("x", hint="y")), ["database_unusable"]),
        (TaskFacts(open_tasks={"ann": 7}), []),
        (TaskFacts(open_tasks={"ann": 8}), ["tasks_nearly_full"]),
        (TaskFacts(open_tasks={"ann": 10, "bob": 0}), ["tasks_full"]),
        (TaskFacts(known=100), ["tasks_full"]),
        (TaskFacts(waiting_s={"scout": 60}), []),
        (TaskFacts(waiting_s={"scout": 61}), ["deliveries_wait"]),
    ],
)
def test_tasks(facts: TaskFacts, found: list[str]) -> None:
    assert codes(list(doctor.of_tasks(facts, LIMITS))) == found


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (ServiceFacts("/s"), []),
        (ServiceFacts("/s", trouble="none"), ["not_serving"]),
        (ServiceFacts("/s", legs={"scout.read": "x"}), ["leg_in_trouble"]),
        (ServiceFacts("/s", refused=["ann"]), ["token_stale"]),
    ],
)
def test_service(facts: ServiceFacts, found: list[str]) -> None:
    assert codes(list(doctor.of_service(facts))) == found


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (RedisFacts("a", "w"), []),
        (RedisFacts("a", "w", unreachable="x"), ["redis_unreachable"]),
        (RedisFacts("a", "w", unauthorized=True), ["redis_denied"]),
        (RedisFacts("a", "w", denied=["XADD"], group=False), ["acl_wrong"]),
        (RedisFacts("a", "w", full=True), ["redis_full"]),
        (RedisFacts("a", "w", group=False), ["group_missing"]),
    ],
)
def test_redis(facts: RedisFacts, found: list[str]) -> None:
    assert codes(list(doctor.of_redis(facts))) == found
