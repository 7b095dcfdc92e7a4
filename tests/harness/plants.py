"""Planted bugs."""


def plant(name: str) -> None:
    raise LookupError(name)
