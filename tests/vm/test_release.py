"""What another release of Corral is put under: every service of ours, and nothing else."""

from tests.vm.programs.release import read

SHOWN = """\
ExecStart={ path=/nix/store/x/bin/cowboy ; argv[]=/nix/store/x/bin/cowboy runner scout ; ignore=no }
Id=cowboy-runner-scout.service

ExecStart={ path=/nix/store/x/bin/a2a-bridge ; argv[]=/nix/store/x/bin/a2a-bridge run ; ignore=no }
Id=a2a-bridge.service

ExecStart={ path=/nix/store/x/bin/sh ; argv[]=/nix/store/x/bin/sh -c cowboy ; ignore_errors=no }
Id=cowboy-ns.service

Id=cowboy-without-a-command.service
"""


def test_the_services_are_found_by_their_programs() -> None:
    assert read(SHOWN) == {
        "cowboy-runner-scout.service": ("cowboy", "runner scout"),
        "a2a-bridge.service": ("a2a-bridge", "run"),
    }
