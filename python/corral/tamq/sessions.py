"""From what `register` says of a session to the terminal that writes into it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.core.errors import UsageError
from corral.tamq.terminal import address, open_terminal, profiles
from corral.tamq.terminal.base import Terminal


class Sessions:
    """Opens terminals with the built-in profiles and those of the operator's file."""

    def __init__(self, file: Path | None) -> None:
        self.profiles = dict(profiles.BUILT_IN) if file is None else profiles.load(file)

    def check(self, fields: Mapping[str, Any], profile: str) -> None:
        """`UsageError` for a description that no terminal has, and for an unknown profile."""
        address.parse(fields)
        self.profile(profile)

    def open(self, fields: Mapping[str, Any], profile: str) -> Terminal:
        """The terminal; `UsageError` as in `check`."""
        return open_terminal(address.parse(fields), self.profile(profile))

    def profile(self, name: str) -> profiles.Profile:
        """By its name; `UsageError` when there is none."""
        if name not in self.profiles:
            raise UsageError(
                f"profile: there is no {name!r}", hint=f"one of {', '.join(sorted(self.profiles))}"
            )
        return self.profiles[name]
