import copy

from corral.core import errors
from corral.core.errors import ConfigError, CorralError

# Stable API: an entry is added, never changed.
CODES = {
    "CorralError": ("internal", 1),
    "ConfigError": ("config_invalid", 78),
    "UsageError": ("usage", 64),
    "UnavailableError": ("unavailable", 69),
    "StorageError": ("storage", 74),
    "ForeignDatabaseError": ("foreign_database", 74),
    "GuardError": ("guard_failed", 70),
}


def test_codes_and_exit_codes_are_the_published_ones() -> None:
    found = {
        name: (kind.code, kind.exit_code)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, CorralError)
    }
    assert found == CODES
    assert len({code for code, _ in found.values()}) == len(found)


def test_the_text_is_the_message_with_the_hint() -> None:
    assert str(CorralError("it broke")) == "it broke"
    assert str(CorralError("it broke", hint="mend it")) == "it broke (mend it)"


def test_as_dict_has_the_shape_that_leaves_a_service() -> None:
    ids = {"turn_id": "scout.a2a.1.7-0"}
    error = ConfigError("sources: missing", hint="add it", ids=ids)
    ids["turn_id"] = "changed afterwards"
    assert error.as_dict() == {
        "code": "config_invalid",
        "message": "sources: missing",
        "hint": "add it",
        "ids": {"turn_id": "scout.a2a.1.7-0"},
    }


def test_an_error_survives_being_copied() -> None:
    error = ConfigError("a", hint="b", ids={"c": "d"})
    assert copy.copy(error).as_dict() == error.as_dict()
