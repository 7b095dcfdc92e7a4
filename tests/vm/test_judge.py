"""A power failure may take what a client knew of its last send: the entry tells."""

from dataclasses import replace

from corral.local.evidence import Binding, Sent, TurnRow
from tests.vm.programs.judge import unremembered

TRIED = Sent(1, "chat", "", "normal", Binding(message_id="m-1"), "said", "sha", 5)
SENT = replace(TRIED, entry_id="7-0")
ROW = TurnRow(
    "chat", "t", "7-0", "message", "done", "completed", "acked", 1, scrubbed=True, message_id="m-1"
)


def test_what_was_tried_and_not_noted_is_found_by_its_entry() -> None:
    assert unremembered([TRIED], [], [ROW]) == [SENT]


def test_what_was_noted_or_never_added_is_not_made_up() -> None:
    assert unremembered([TRIED], [SENT], [ROW]) == []
    assert unremembered([TRIED], [], []) == []
    assert unremembered([TRIED], [], [replace(ROW, source="echo")]) == []
    assert unremembered([], [], [ROW]) == []
