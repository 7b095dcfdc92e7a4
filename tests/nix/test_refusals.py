"""Each bad topology is refused with the path of the option; beside it stand the good ones."""

from typing import Any

import pytest

from tests.nix import nix, refused_names, refused_together, refused_values, topologies

GROUPS = {
    "name": refused_names.NAMES,
    "unknown": refused_names.UNKNOWN,
    "value": refused_values.VALUES,
    "together": refused_together.TOGETHER,
}
CASES = [
    pytest.param(case, id=f"{group}-{case.name}")
    for group, cases in GROUPS.items()
    for case in cases
]


@pytest.mark.parametrize("case", CASES)
def test_refused_with_the_path(case: topologies.Refusal) -> None:
    with pytest.raises(nix.NixError) as refused:
        nix.render(case.topology)
    assert refused.value.message == case.message


def agents_of(topology: str) -> dict[str, Any]:
    found: dict[str, Any] = nix.render(topology)["agents"]
    return found


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param("{ }", id="nothing"),
        pytest.param(topologies.agent("{ }"), id="agent"),
        pytest.param(topologies.source("{ }"), id="source"),
        pytest.param(topologies.exec_with("{ }"), id="exec"),
        pytest.param(topologies.two("{ }", "{ }"), id="two agents"),
    ],
)
def test_what_the_refused_ones_are_made_of_is_accepted(topology: str) -> None:
    assert nix.render(topology)["version"] == 1


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(f"{{ agents.{'a' * 31}.sources.s = {topologies.ECHO}; }}", id="agent name"),
        pytest.param(f"{{ agents.a.sources.{'s' * 31} = {topologies.ECHO}; }}", id="source name"),
        pytest.param(topologies.agent(f'{{ user = "{"u" * 31}"; }}'), id="user"),
        pytest.param(topologies.source("{ read_count = 1; }"), id="whole number"),
        pytest.param(f'{{ paths.state = "/{"p" * 254}"; }}', id="path"),
        pytest.param(f'{{ redis.socket = "/{"r" * 106}"; }}', id="redis socket"),
        pytest.param(
            f'{{ agents.a.sources.s = {topologies.ECHO}; paths.runtime = "/{"r" * 91}"; }}',
            id="agent socket",
        ),
        pytest.param(
            topologies.exec_with(f'{{ environment.{"E" * 128} = ""; }}'), id="environment name"
        ),
        pytest.param(
            topologies.exec_with(
                '{ command = [ (builtins.concatStringsSep "" '
                '(builtins.genList (_: "c") 500000)) ]; }'
            ),
            id="a program's name of any length ends no regular expression",
        ),
    ],
)
def test_accepted_at_the_limit(topology: str) -> None:
    assert nix.render(topology)["version"] == 1


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        pytest.param(
            f'{{ paths.state = "/{"p" * 255}"; }}',
            "paths.state: must have at most 255 bytes, not 256",
            id="path",
        ),
        pytest.param(
            topologies.exec_with(f'{{ environment.{"E" * 129} = ""; }}'),
            "agents.a.sources.s.runner.environment.<a string of 129 bytes>: "
            "is not the name of an environment variable",
            id="environment name",
        ),
    ],
)
def test_refused_one_past_the_limit(topology: str, message: str) -> None:
    with pytest.raises(nix.NixError) as refused:
        nix.render(topology)
    assert refused.value.message == message


def test_derived_names_that_would_meet_are_named_with_both_options() -> None:
    """No topology can produce this: names are derived. The check is there for a change of them."""
    entries = '[ { option = "agents.a"; value = "k"; } { option = "agents.b"; value = "k"; } ]'
    found = nix.evaluate(nix.with_lib(f'corral.checks.repeated "key" {entries}'))
    assert found == ['agents.b: key "k" is already that of agents.a']
    alone = '[ { option = "agents.a"; value = "k"; } { option = "agents.b"; value = "l"; } ]'
    assert nix.evaluate(nix.with_lib(f'corral.checks.repeated "key" {alone}')) == []


def test_no_error_repeats_a_value_of_an_environment() -> None:
    with pytest.raises(nix.NixError) as refused:
        nix.render(topologies.exec_with('{ environment.TOKEN = [ "hunter2" ]; }'))
    assert "hunter2" not in str(refused.value)
