"""Strict reading of a JSON file into a model; every fault is named by the path of its key.

Refused beyond what the model refuses: repeated keys (validators keep the last one, which would
hide the first), lone surrogates, NaN and Infinity, text that is not UTF-8, and files over a size.
No value of the file is repeated in an error except where the model's own validators do so.
"""

import difflib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from corral.core.errors import ConfigError

ModelT = TypeVar("ModelT", bound=BaseModel)
KeyPath = tuple[str, ...]

_PLAIN_KEY = re.compile(r"[!-~]+\Z")
_OWN_WORDS = {
    "missing": "is missing",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "string_type": "must be a string",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "union_tag_not_found": "is missing",
}


@dataclass(frozen=True)
class Problem:
    """One fault of a file: the path of its key ("" for the whole file), and what is wrong."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class RefusedError(ConfigError):
    """A refused file. `problems` has every fault that was found, the message shows the first."""

    def __init__(self, problems: list[Problem], *, hint: str = "") -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}", hint=hint)
        self.problems = problems


class KeyPathError(ValueError):
    """Raised by a validator; `path` leads from the value that it validates to the key at fault."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


def read_text(path: Path, *, max_bytes: int) -> str:
    """The text of a file of at most `max_bytes`. Raises RefusedError that begins with its path."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        problem = Problem(str(path), f"cannot be read: {error.strerror}")
        raise RefusedError(
            [problem], hint="is the name right, and may this user read it?"
        ) from None
    if len(data) > max_bytes:
        _refuse(str(path), f"is longer than {max_bytes} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        _refuse(str(path), f"is not UTF-8 at byte {error.start}")


def parse(model: type[ModelT], text: str, *, unions: Collection[KeyPath] = ()) -> ModelT:
    """Validates JSON text. Raises RefusedError with all problems.

    `unions` are the paths ("*" for any key) of values that the model tells apart by a tag: the
    tag is in the validator's location of a fault, but no key of the file.
    """
    _refuse_loose_json(text)
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        known = _keys_of(model.model_json_schema())
        problems = [_problem(detail, unions, known) for detail in details]
    raise RefusedError(problems)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as written, with its repeated keys."""


def _refuse_loose_json(text: str) -> None:
    try:
        document = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_no_constant)
        _refuse_loose_parts(document, ())
    except json.JSONDecodeError as error:
        _refuse("", f"not JSON: {error.msg}, line {error.lineno} column {error.colno}")
    except RecursionError:
        _refuse("", "not JSON that can be read: nested too deeply")
    except ValueError as error:
        _refuse("", f"not JSON: {error}")
    if not isinstance(document, _Pairs):
        _refuse("", "must be a JSON object")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _refuse_loose_parts(value: object, path: tuple[str | int, ...]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, child in value:
            if key in seen:
                _refuse(_dotted((*path, key)), "is there twice")
            seen.add(key)
            _refuse_surrogates(key, (*path, key))
            _refuse_loose_parts(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            _refuse_loose_parts(child, (*path, index))
    elif isinstance(value, str):
        _refuse_surrogates(value, path)


def _refuse_surrogates(text: str, path: tuple[str | int, ...]) -> None:
    """The validator's JSON reader refuses them, too, but names no key."""
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(_dotted(path), "must not contain a lone surrogate")


def _problem(detail: ErrorDetails, unions: Collection[KeyPath], known: set[str]) -> Problem:
    kind, context = detail["type"], detail.get("ctx", {})
    path = list(detail["loc"])
    if path[-1:] == ["[key]"]:  # the fault is in the key itself
        del path[-1]
    for union in unions:
        if len(path) > len(union) and _leads(path, union):
            del path[len(union)]
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        path.append(context["discriminator"].strip("'"))
    cause = context.get("error")
    if isinstance(cause, KeyPathError):
        path.extend(cause.path)
    if kind == "extra_forbidden":
        message = _unknown_key(str(path[-1]), known)
    elif kind == "union_tag_invalid":
        message = f"must be one of {context['expected_tags']}"
    elif kind in {"too_short", "too_long"}:
        bound = "at least {min_length}" if kind == "too_short" else "at most {max_length}"
        message = f"must have {bound.format(**context)} items, has {context['actual_length']}"
    elif isinstance(cause, ValueError):
        message = str(cause)
    else:
        message = _OWN_WORDS.get(kind) or detail["msg"].replace("Input should", "must")
    return Problem(_dotted(tuple(path)), message)


def _leads(path: Sequence[str | int], union: KeyPath) -> bool:
    return all(key in {"*", at} for key, at in zip(union, path, strict=False))


def _unknown_key(key: str, known: set[str]) -> str:
    if key in known:
        return "is not a key of this part"
    near = difflib.get_close_matches(key, known, n=1)
    return f"unknown key; did you mean {near[0]!r}?" if near else "unknown key"


def _keys_of(schema: dict[str, Any]) -> set[str]:
    parts = [schema, *schema.get("$defs", {}).values()]
    return {key for part in parts for key in part.get("properties", {})}


def _dotted(path: tuple[str | int, ...]) -> str:
    """`sources.a2a.read_count`; a key that is empty or would not print is shown quoted."""
    keys = (str(key) for key in path)
    return ".".join(key if _PLAIN_KEY.match(key) else json.dumps(key) for key in keys)


def _refuse(path: str, message: str) -> NoReturn:
    raise RefusedError([Problem(path, message)])
