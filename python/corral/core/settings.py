"""How a service is configured: one model, five sources, errors that name the key.

The first source that has a value wins:

1. arguments of `load` (options of the command line);
2. the environment: `<PREFIX><FIELD>`;
3. a file named by the environment: `<PREFIX><FIELD>_FILE` (less one trailing newline);
4. systemd credentials: `$CREDENTIALS_DIRECTORY/<field>`, with `-` for `_` (less one newline);
5. the configuration file named by `<PREFIX>CONFIG`: TOML when its name ends in `.toml`, else
   JSON. A key that the model does not have is refused.

Secrets are fields of the type `SecretStr` and belong in 3 or 4. A value of a list or an object is
JSON in 2, 3 and 4.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from corral.core.errors import ConfigError

FILE_MAX_BYTES: Final = 1_048_576  # of a configuration file, and of each file with one value

Settings = TypeVar("Settings", bound="ServiceSettings")


class ServiceSettings(BaseSettings):
    """Base of the settings of one service; a subclass sets `env_prefix` (`"COWBOY_"`).

    Instances are immutable. Build them with `load`, which turns every error into one that an
    operator can act on.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (
            init_settings,
            env_settings,
            _FieldFiles(settings_cls, _named_file),
            _FieldFiles(settings_cls, _credential),
            _ConfigFile(settings_cls),
        )


def load(cls: type[Settings], **overrides: Any) -> Settings:
    """Read the settings. An override of `None` counts as not given.

    `ConfigError`, whose message begins with the path of the key, when a value is missing, wrong
    or unknown, or a file cannot be read. No message contains a value.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return cls(**given)
    except ValidationError as error:
        raise _config_error(cls, given, error) from None
    except SettingsError as error:
        # The environment source could not read the JSON of a list or an object.
        quoted = re.search(r'field "(\w+)"', str(error))
        field = quoted[1] if quoted else "settings"
        raise ConfigError(
            f"{field}: not valid JSON", hint=_origin(cls, given, field), ids={"key": field}
        ) from None


_UNKNOWN: Final = {"extra_forbidden": "there is no such setting"}  # instead of pydantic's words


def key_path(location: tuple[int | str, ...]) -> str:
    """The path of a key as all error messages write it: `sources.a2a.read_count`."""
    return ".".join(str(part) for part in location) or "settings"


def _config_error(
    cls: type[ServiceSettings], given: dict[str, Any], error: ValidationError
) -> ConfigError:
    problems = [
        (item["loc"], f"{key_path(item['loc'])}: {_UNKNOWN.get(item['type'], item['msg'])}")
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    location, first = problems[0]
    others = "".join(f"; {text}" for _, text in problems[1:])
    field = str(location[0]) if location else ""
    return ConfigError(
        first + others, hint=_origin(cls, given, field), ids={"key": key_path(location)}
    )


def _prefix(cls: type[BaseSettings]) -> str:
    return str(cls.model_config.get("env_prefix", ""))


def _origin(cls: type[BaseSettings], given: dict[str, Any], field: str) -> str:
    """Where the offending value came from, as a hint; the order is that of the sources."""
    if field in given:
        return "given as an argument"
    variable = f"{_prefix(cls)}{field}".upper()
    if field in cls.model_fields:
        if any(name.upper() == variable for name in os.environ):
            return f"set by the environment variable {variable}"
        for source, locate in (("the file", _named_file), ("the credential", _credential)):
            found = locate(cls, field)
            if found is not None:
                return f"set by {source} {found[1]}"
    config = os.environ.get(f"{_prefix(cls)}CONFIG")
    if config:
        return f"set in, or missing from, {config}"
    return f"set {variable}, or name a file in {_prefix(cls)}CONFIG"


# A locator answers the variable that names the file (for messages) and the file; None if not set.
_Locator = Callable[[type[BaseSettings], str], tuple[str, Path] | None]


def _named_file(cls: type[BaseSettings], field: str) -> tuple[str, Path] | None:
    if f"{field}_file" in cls.model_fields:  # then the variable is that field's own
        return None
    variable = f"{_prefix(cls)}{field}_FILE".upper()
    path = os.environ.get(variable)
    return (variable, Path(path)) if path else None


def _credential(cls: type[BaseSettings], field: str) -> tuple[str, Path] | None:
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    if not directory or field not in cls.model_fields:
        return None
    path = Path(directory) / field.replace("_", "-")
    return ("CREDENTIALS_DIRECTORY", path) if path.exists() else None


class _FieldFiles(PydanticBaseSettingsSource):
    """Fields whose value is the text of a file of their own."""

    def __init__(self, settings_cls: type[BaseSettings], locate: _Locator) -> None:
        super().__init__(settings_cls)
        self._locate = locate

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        found = self._locate(self.settings_cls, field_name)
        if found is None:
            return None, field_name, False
        variable, path = found
        text = _read_text(path, key=field_name, named_by=variable).removesuffix("\n")
        try:
            return self.prepare_field_value(field_name, field, text, False), field_name, False
        except ValueError:
            raise ConfigError(
                f"{field_name}: not valid JSON", hint=f"set by {path}", ids={"key": field_name}
            ) from None

    def __call__(self) -> dict[str, Any]:
        values = {}
        for name, field in self.settings_cls.model_fields.items():
            value, key, _ = self.get_field_value(field, name)
            if value is not None:
                values[key] = value
        return values


class _ConfigFile(PydanticBaseSettingsSource):
    """The configuration file, as a whole: its unknown keys reach the model, which refuses them."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False  # not used: __call__ answers the whole file

    def __call__(self) -> dict[str, Any]:
        variable = f"{_prefix(self.settings_cls)}CONFIG"
        name = os.environ.get(variable)
        return _parsed(Path(name), variable) if name else {}


def _parsed(path: Path, variable: str) -> dict[str, Any]:
    text = _read_text(path, key=variable, named_by=variable)
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        content = json.loads(text, object_pairs_hook=_unique_keys)
    except ConfigError as error:
        raise ConfigError(error.message, hint=f"in {path}", ids=error.ids) from None
    except json.JSONDecodeError as error:
        problem = f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except tomllib.TOMLDecodeError as error:
        problem = f"not valid TOML: {error}"
    except RecursionError:
        problem = "nested too deeply"
    else:
        if isinstance(content, dict):
            return content
        problem = "must be an object with the settings as its keys"
    raise ConfigError(f"{variable}: {path}: {problem}", ids={"key": variable})


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice}: appears twice", ids={"key": twice})
    return content


def _read_text(path: Path, *, key: str, named_by: str) -> str:
    """The text of a file of at most `FILE_MAX_BYTES`; `ConfigError` says why there is none."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX_BYTES + 1)
        if len(content) > FILE_MAX_BYTES:
            problem = f"is longer than {FILE_MAX_BYTES} bytes"
        else:
            return content.decode()
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    raise ConfigError(f"{key}: {path} {problem}", hint=f"named by {named_by}", ids={"key": key})
