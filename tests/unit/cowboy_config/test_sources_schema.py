"""The published JSON Schema: equal to the model's, and of one mind with the model."""

import json
from pathlib import Path

import jsonschema
import pytest

from corral.core.errors import ConfigError
from corral.cowboy.config import json_schema, parse_sources
from tests.unit.cowboy_config import samples
from tests.unit.cowboy_config.samples import BAD, GOOD, HOSTILE_NAMES, Bad, Document

PUBLISHED = Path(__file__).parents[3] / "docs" / "reference" / "sources.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def model_takes(file: Document) -> bool:
    try:
        parse_sources(json.dumps(file))
    except ConfigError:
        return False
    return True


def test_the_published_schema_is_the_models() -> None:
    """To publish a changed one: `cowboy schema > docs/reference/sources.schema.json`."""
    assert json.loads(PUBLISHED.read_text()) == json_schema()


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("edit", GOOD.values(), ids=GOOD.keys())
def test_both_take_the_good(edit: samples.Edit) -> None:
    file = samples.edited(edit)
    assert model_takes(file)
    assert VALIDATOR.is_valid(file)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.id)
def test_both_refuse_the_bad_where_a_schema_can_say_it(bad: Bad) -> None:
    file = samples.edited(bad.edit)
    assert not model_takes(file)
    assert VALIDATOR.is_valid(file) is not bad.schema


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_both_refuse_hostile_names(name: str) -> None:
    for edit in (samples.named(name), samples.for_agent(name)):
        file = samples.edited(edit)
        assert not model_takes(file)
        assert not VALIDATOR.is_valid(file)


def test_every_setting_is_described() -> None:
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for key, value in part.get("properties", {}).items():
            assert key == "kind" or value.get("description"), key
