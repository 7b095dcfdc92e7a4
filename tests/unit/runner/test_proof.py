"""Which processes belong to a run: the rules, on made-up process tables."""

from collections.abc import Callable, Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cowboy.runner import processes, recovery
from corral.cowboy.runner.processes import Process
from corral.cowboy.runner.proof import Marks, survivors
from corral.cowboy.runner.recovery import leftovers
from corral.cowboy.runner.store import RecordPhase, RunRecord

INIT, RUNNER, LEADER, OTHER = 1, 100, 200, 300
A, B = "a" * 32, "b" * 32
RUN = Marks(A, LEADER, 1000)
BESIDE = Marks(B, OTHER, 900)


def process(pid: int, ppid: int = RUNNER, **fields: int) -> Process:
    """Alive, in a group and session of its own, younger than every run, unless told otherwise."""
    return Process(
        pid,
        ppid,
        fields.get("pgid", pid),
        fields.get("session", fields.get("pgid", pid)),
        fields.get("start_ticks", 2000),
        bool(fields.get("alive", 1)),
    )


def table(*processes: Process) -> dict[int, Process]:
    always = [process(INIT, 0, start_ticks=0), process(RUNNER, INIT, start_ticks=10)]
    return {one.pid: one for one in [*always, *processes]}


def no_tokens(_: int) -> Collection[str]:
    return ()


def tokens(by_pid: Mapping[int, str]) -> Callable[[int], Collection[str]]:
    return lambda pid: {by_pid[pid]} if pid in by_pid else ()


def of_run(
    processes: Mapping[int, Process],
    tokens_of: Callable[[int], Collection[str]] = no_tokens,
    live: Collection[Marks] = (RUN, BESIDE),
) -> list[int]:
    found = survivors(processes, [RUN], live, RUNNER, tokens_of)
    return [one.pid for one in found[A]]


leader_zombie = process(LEADER, start_ticks=1000, alive=0)
other_leader = process(OTHER, start_ticks=900)


def test_a_leader_that_only_waits_to_be_reaped_is_nothing() -> None:
    assert of_run(table(leader_zombie, other_leader)) == []


@pytest.mark.parametrize(
    "member",
    [
        process(201, INIT, pgid=LEADER),
        process(201, INIT, pgid=201, session=LEADER),
        process(201, LEADER),
        process(201, RUNNER),
        process(201, INIT, pgid=LEADER, start_ticks=1000),
    ],
    ids=["group", "session", "child", "hidden orphan", "same tick"],
)
def test_what_belongs_to_a_run(member: Process) -> None:
    assert of_run(table(leader_zombie, other_leader, member)) == [201]


@pytest.mark.parametrize(
    "stranger",
    [
        process(201, INIT),
        process(201, OTHER),
        process(201, RUNNER, pgid=OTHER),
        process(201, RUNNER, pgid=LEADER, alive=0),
        process(201, RUNNER, start_ticks=999),
    ],
    ids=["elsewhere", "child of another run", "group of another run", "dead", "older"],
)
def test_what_does_not_belong_to_a_run(stranger: Process) -> None:
    assert of_run(table(leader_zombie, other_leader, stranger)) == []


def test_a_token_names_a_run_wherever_its_process_is() -> None:
    far = process(201, INIT)
    assert of_run(table(leader_zombie, far), tokens({201: A})) == [201]
    assert of_run(table(leader_zombie, other_leader, far), tokens({201: B})) == []


def test_the_token_of_no_run_that_lives_does_not_protect_a_hidden_orphan() -> None:
    orphan = process(201, RUNNER)
    assert of_run(table(leader_zombie, orphan), tokens({201: "c" * 32})) == [201]


def test_descendants_belong_to_the_run_of_any_ancestor() -> None:
    chain = [process(201, INIT), process(202, 201), process(203, 202), process(204, 203)]
    found = of_run(table(leader_zombie, *chain), tokens({202: A}))
    assert found == [202, 203, 204]


def test_a_process_of_two_runs_ends_with_either() -> None:
    nested = process(201, OTHER)
    processes = table(leader_zombie, other_leader, nested)
    found = survivors(processes, [RUN, BESIDE], [RUN, BESIDE], RUNNER, tokens({201: A}))
    assert {token: [one.pid for one in left] for token, left in found.items()} == {
        A: [201],
        B: [OTHER, 201],
    }


def test_the_runner_itself_and_its_parents_are_never_taken() -> None:
    """As when a run of an outer runner starts this one: it inherits group, session and token."""
    outer = process(RUNNER, LEADER, pgid=LEADER)
    assert of_run(table(leader_zombie, outer), tokens({RUNNER: A})) == []


def test_environments_are_read_of_young_processes_only() -> None:
    asked: list[int] = []

    def tokens_of(pid: int) -> Collection[str]:
        asked.append(pid)
        return ()

    old, young = process(201, INIT, start_ticks=999), process(202, INIT, start_ticks=1000)
    of_run(table(leader_zombie, old, young), tokens_of)
    assert asked == [202]


def test_a_table_that_was_not_taken_at_one_instant_makes_no_endless_loop() -> None:
    assert of_run(table(process(201, 202), process(202, 201), process(203, 999))) == []


pids = st.sampled_from([INIT, RUNNER, LEADER, OTHER, *range(201, 212)])


@given(
    st.dictionaries(
        st.integers(201, 211),
        st.builds(
            Process,
            st.just(0),
            pids,
            pids,
            pids,
            st.integers(995, 1005),
            st.booleans(),
        ),
    ),
    st.dictionaries(st.integers(201, 211), st.sampled_from([A, B])),
)
def test_whatever_the_table_only_living_young_processes_with_a_reason_are_taken(
    made: dict[int, Process], token_of: dict[int, str]
) -> None:
    seen = table(leader_zombie, other_leader, *(p._replace(pid=pid) for pid, p in made.items()))
    found = survivors(seen, [RUN], [RUN, BESIDE], RUNNER, tokens(token_of))[A]
    for one in found:
        assert one.alive
        assert one.start_ticks >= RUN.start_ticks
        assert one.pid not in {INIT, RUNNER}
        named = LEADER in {one.pgid, one.session} or token_of.get(one.pid) == A
        assert named or one.ppid in seen
    missed = {pid for pid, token in token_of.items() if token == A} & made.keys()
    missed = {pid for pid in missed if made[pid].alive and made[pid].start_ticks >= 1000}
    assert missed <= {one.pid for one in found}


# --- after the runner's death: numbers may have been given to strangers -----------------------


def record(**fields: object) -> RunRecord:
    made = RunRecord("t", 1, LEADER, 1000, LEADER, A, None, "boot", RecordPhase.WENT)
    return made._replace(**fields)  # type: ignore[arg-type]


def left(
    processes: Mapping[int, Process], tokens_of: Callable[[int], Collection[str]] = no_tokens
) -> list[int]:
    return [one.pid for one in leftovers(processes, [record()], RUNNER, tokens_of)]


living_leader = process(LEADER, INIT, start_ticks=1000)


@pytest.mark.parametrize("leader", [living_leader, leader_zombie], ids=["alive", "zombie"])
def test_the_leader_proves_that_its_numbers_are_still_the_runs(leader: Process) -> None:
    family = [process(201, INIT, pgid=LEADER), process(202, INIT, session=LEADER, pgid=202)]
    found = left(table(leader, *family, process(203, 202)))
    assert found == ([LEADER] if leader.alive else []) + [201, 202, 203]


def test_a_member_with_the_token_proves_it_too() -> None:
    family = [process(201, INIT, pgid=LEADER), process(202, INIT, pgid=LEADER)]
    assert left(table(*family), tokens({202: A})) == [201, 202]


@pytest.mark.parametrize(
    "strangers",
    [
        [process(LEADER, INIT, start_ticks=1001), process(201, INIT, pgid=LEADER)],
        [process(201, INIT, pgid=LEADER), process(202, 201)],
        [process(201, INIT, pgid=LEADER, start_ticks=999)],
    ],
    ids=["number given away", "group of a leader that is gone", "older than the run"],
)
def test_numbers_alone_prove_nothing(strangers: list[Process]) -> None:
    assert left(table(*strangers)) == []


def test_a_token_is_enough_and_brings_its_descendants() -> None:
    family = [process(201, INIT), process(202, 201), process(203, INIT)]
    assert left(table(*family), tokens({201: A})) == [201, 202]


def test_the_new_runner_is_not_taken_even_with_the_token() -> None:
    processes = table(process(RUNNER, LEADER, start_ticks=1500), living_leader)
    assert left(processes, tokens({RUNNER: A})) == [LEADER]


def test_no_records_no_leftovers() -> None:
    assert leftovers(table(living_leader), [], RUNNER, no_tokens) == []


def test_a_process_inside_execve_gets_time_to_show_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1000.0]
    veiled = {201}
    monkeypatch.setattr(recovery, "mono_s", lambda: now_s[0])
    monkeypatch.setattr(processes, "in_exec", lambda process: process.pid in veiled)
    made = table(process(201, INIT), process(202, INIT), process(203, INIT, start_ticks=999))
    looks = recovery._Veiled()
    assert not looks.none_new(made, 1000)
    now_s[0] += recovery.EXEC_MAX_S - 0.001
    assert not looks.none_new(made, 1000)
    veiled |= {202, 203}  # the last is older than any run
    now_s[0] += 0.001
    assert not looks.none_new(made, 1000)
    now_s[0] += recovery.EXEC_MAX_S
    assert looks.none_new(made, 1000)
    veiled.clear()
    assert looks.none_new(made, 1000)
    veiled.add(201)
    assert not looks.none_new(made, 1000)  # again inside one
