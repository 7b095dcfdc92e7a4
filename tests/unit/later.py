"""A release after this one: its schema has a column more in every table.

The model tests of cowboy and TAMQ work on such a schema, as after a rollback: what they find out
holds on that one, too. The other tests have the schema of this release.
"""

import contextlib
import functools
import sqlite3
from collections.abc import Sequence

from corral.core.sqlfiles import statements

TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


def later(migrations: Sequence[str]) -> list[str]:
    """Its migrations: the last one leaves the schema usable for this release."""
    return _later(tuple(migrations))


@functools.cache
def _later(migrations: tuple[str, ...]) -> list[str]:
    with contextlib.closing(sqlite3.connect(":memory:")) as conn:
        for text in migrations:
            for statement in statements(text):
                conn.execute(statement)
        tables = [name for (name,) in conn.execute(TABLES)]
    added = [f"ALTER TABLE {name} ADD COLUMN of_later TEXT DEFAULT 'later';" for name in tables]
    return [*migrations, "\n".join([f"-- oldest: {len(migrations)}", *added])]
