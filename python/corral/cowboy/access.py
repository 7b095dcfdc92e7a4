"""How a person's command reaches Redis: as the operator, from inside Redis' network namespace."""

import json
import shlex
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from corral.core.errors import ConfigError, UnavailableError
from corral.core.settings import load
from corral.cowboy import netns
from corral.cowboy.settings import CowboySettings, RedisEndpoint

OPERATOR: Final = "operator"
ENV_MAX_BYTES: Final = 65_536


def operator_endpoint(settings: CowboySettings) -> RedisEndpoint:
    """Redis as the operator, or as the user that the settings name; enters the namespace.

    Without a `redis_url` the host's `operator_env` is read, as a shell would. Raises ConfigError,
    NamespaceError, and UnavailableError when only root may read that file.
    """
    settings = with_operator_env(settings)
    endpoint = settings.redis_endpoint(OPERATOR)
    name = configured_namespace(settings)
    # The path of a Unix socket leads there from every network namespace.
    if name is not None and endpoint.socket is None:
        netns.enter(name)
    return endpoint


def configured_namespace(settings: CowboySettings) -> str | None:
    """The namespace of Redis: a setting, or what the host's configuration says beside agents."""
    if settings.redis_netns is not None:
        return settings.redis_netns
    try:
        found: Any = json.loads((settings.config_dir / "namespace.json").read_text())
        return str(found["name"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def with_operator_env(settings: CowboySettings) -> CowboySettings:
    """The settings, completed from `operator_env` when they have no `redis_url`."""
    if settings.redis_url is not None:
        return settings
    try:
        with settings.operator_env.open("rb") as file:
            text = file.read(ENV_MAX_BYTES).decode()
    except FileNotFoundError:
        return settings
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(
            f"{settings.operator_env} cannot be read: {getattr(error, 'strerror', 'not text')}",
            hint="run this as root, or set COWBOY_REDIS_URL and a credential",
        ) from None
    found = parse_env(text)
    if "REDIS_URL" not in found:
        raise ConfigError(f"operator_env: {settings.operator_env} does not set REDIS_URL")
    url, username, password = split_url(found["REDIS_URL"])
    return load(
        CowboySettings,
        redis_url=url,
        redis_username=settings.redis_username or username,
        redis_password=settings.redis_password or found.get("REDISCLI_AUTH") or password,
        redis_netns=settings.redis_netns or found.get("COWBOY_REDIS_NETNS"),
        config_dir=settings.config_dir,
    )


def parse_env(text: str) -> dict[str, str]:
    """The variables of a file of `NAME=value` lines, quoted as for a shell or not."""
    found = {}
    for line in text.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        for word in words[1:] if words[:1] == ["export"] else words[:1]:
            name, equals, value = word.partition("=")
            if equals:
                found[name] = value
    return found


def split_url(url: str) -> tuple[str, str | None, str | None]:
    """The URL without user and password, and those."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return urlunsplit(parts._replace(netloc=place)), username, password


def is_set_up(settings: CowboySettings) -> bool:
    """Whether this host says how to reach Redis: by a setting or by the operator's file."""
    if settings.redis_url is not None:
        return True
    try:
        settings.operator_env.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # it is there, or may be: reading it gives the reason
    return True
