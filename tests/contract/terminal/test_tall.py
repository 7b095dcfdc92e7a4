"""A text that is taller than the screen, in a program that scrolls its prompt away."""

from collections.abc import Awaitable, Callable

from corral.tamq.terminal.base import Outcome, Ready
from tests.contract.terminal.conftest import Woken
from tests.contract.terminal.panes import envelope, wake

StartAgent = Callable[..., Awaitable[Woken]]
BODY = "\n".join(f"line {n}" for n in range(30))


async def test_it_is_entered_when_nothing_but_its_end_is_seen(start_agent: StartAgent) -> None:
    woken = await start_agent("codex", "--scrolls", height=12)
    injection = await woken.terminal.inject(wake(BODY))
    assert (injection.outcome, injection.reason) == (Outcome.INJECTED, "drained")
    assert injection.enters == 1
    assert woken.agent.submitted == [envelope(BODY)]


async def test_an_enter_that_does_nothing_is_not_repeated_within_an_attempt(
    start_agent: StartAgent,
) -> None:
    """What is seen afterwards could be what the program shows of a text that it took."""
    woken = await start_agent("codex", "--scrolls", "--swallow", "1", height=12)
    injection = await woken.terminal.inject(wake(BODY))
    assert (injection.outcome, injection.reason) == (Outcome.UNKNOWN, "not_seen_to_drain")
    assert (injection.typed, injection.enters) == (True, 1)
    waits = await woken.terminal.readiness(wake(BODY, 2, 1))
    assert (waits.state, waits.reason, waits.pasted) == (Ready.READY, "pasted", True)
    again = await woken.terminal.inject(wake(BODY, 2, 1))
    assert (again.outcome, again.reason) == (Outcome.INJECTED, "drained")
    assert woken.agent.submitted == [envelope(BODY)]


async def test_with_somebody_elses_text_behind_it_nothing_is_entered(
    start_agent: StartAgent,
) -> None:
    woken = await start_agent("codex", "--scrolls", "--swallow", "1", height=12)
    await woken.terminal.inject(wake(BODY))
    woken.tmux.type("and I")
    woken.tmux.see("and I")
    waits = await woken.terminal.readiness(wake(BODY, 2, 1))
    assert (waits.state, waits.reason) == (Ready.BUSY, "no_composer")
    assert woken.agent.submitted == []
