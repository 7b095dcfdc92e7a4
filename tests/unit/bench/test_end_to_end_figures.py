"""What the bench of the whole way reads of events, and when it says that a bound is missed."""

from corral.local.matrix import replies_to
from tests.bench.end_to_end import BOUNDS
from tests.bench.report import judged


def test_a_reply_is_known_by_what_itreplies_to() -> None:
    assert replies_to({"content": {"m.relates_to": {"m.in_reply_to": {"event_id": "$a"}}}}) == "$a"
    assert replies_to({"content": {"m.relates_to": {"event_id": "$a"}}}) == ""
    assert replies_to({"content": {}}) == ""


def test_the_median_is_judged_by_goal_and_bound() -> None:
    def verdict(p50: float) -> tuple[bool, bool]:
        found = judged({"alone_ms": {"mention to answer": {"p50": p50}}}, BOUNDS)
        (one,) = found.values()
        return one["reached"], one["kept"]

    assert [verdict(p50) for p50 in (150.0, 150.1, 250.0, 250.1)] == [
        (True, True), (False, True), (False, True), (False, False),
    ]  # fmt: skip
