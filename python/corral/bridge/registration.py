"""The file that tells a homeserver of the bridge: where it listens, its tokens, its users.

Synapse reads it from `app_service_config_files`, at its start only. It is YAML; what is written
here is JSON, which every YAML reader takes, so that no value needs quoting rules of its own.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from corral.core.errors import ConfigError

if TYPE_CHECKING:
    from corral.bridge.settings import BridgeSettings

TOKEN_BYTES_MIN: Final = 16
# What a Matrix user id may have before the colon (historical ids had more; ours do not).
_LOCALPART: Final = re.compile(r"[a-z0-9._=/+-]{1,200}")


@dataclass(frozen=True)
class Registration:
    """One appservice. `ghosts` are localparts; the bridge's own user is `sender_localpart`."""

    id: str
    url: str
    server_name: str
    sender_localpart: str
    ghosts: tuple[str, ...]
    as_token: str = field(repr=False)
    hs_token: str = field(repr=False)


def of(settings: "BridgeSettings") -> Registration:
    """What the homeserver must know of this bridge."""
    return Registration(
        id=settings.appservice_id,
        url=settings.appservice_url,
        server_name=settings.server_name,
        sender_localpart=settings.sender_localpart,
        ghosts=tuple(settings.localpart(key) for key in settings.agents),
        as_token=settings.as_token.get_secret_value(),
        hs_token=settings.hs_token.get_secret_value(),
    )


def document(registration: Registration) -> dict[str, Any]:
    """The registration as Synapse reads it. `ConfigError` names what it would refuse."""
    _check(registration)
    users = sorted({registration.sender_localpart, *registration.ghosts})
    return {
        "id": registration.id,
        "url": registration.url,
        "as_token": registration.as_token,
        "hs_token": registration.hs_token,
        "sender_localpart": registration.sender_localpart,
        # The bridge bounds itself; a limit here would delay answers, and lose none.
        "rate_limited": False,
        "receive_ephemeral": False,
        "namespaces": {
            "users": [_exclusive(user, registration.server_name) for user in users],
            "aliases": [],
            "rooms": [],
        },
    }


def text(registration: Registration) -> str:
    """The same as the text of a file; it holds both tokens, so it belongs in a file of mode 0600
    (or 0640 with Synapse's group)."""
    return json.dumps(document(registration), indent=2, ensure_ascii=True) + "\n"


def _exclusive(localpart: str, server_name: str) -> dict[str, Any]:
    """Exactly one user: `@scout` must not claim `@scouting`, nor one of another server."""
    return {"exclusive": True, "regex": f"^{re.escape(f'@{localpart}:{server_name}')}$"}


def _check(registration: Registration) -> None:
    for localpart in (registration.sender_localpart, *registration.ghosts):
        if not _LOCALPART.fullmatch(localpart):
            raise ConfigError(
                f"registration: {localpart!r} cannot be the local part of a Matrix user id",
                hint="use a-z, 0-9 and . _ = - / +",
                ids={"localpart": localpart},
            )
    _distinct((registration.sender_localpart, *registration.ghosts))
    for name in ("as_token", "hs_token"):
        if len(getattr(registration, name).encode()) < TOKEN_BYTES_MIN:
            raise ConfigError(
                f"registration: {name} is shorter than {TOKEN_BYTES_MIN} bytes",
                hint="make one with: head -c 32 /dev/urandom | base64",
            )
    if registration.as_token == registration.hs_token:
        raise ConfigError(
            "registration: as_token and hs_token are the same",
            hint="each side proves itself with its own",
        )


def _distinct(localparts: Iterable[str]) -> None:
    seen: set[str] = set()
    for localpart in localparts:
        if localpart in seen:
            raise ConfigError(
                f"registration: the user {localpart} is named twice",
                hint="each agent needs a user of its own, beside the bridge's own",
                ids={"localpart": localpart},
            )
        seen.add(localpart)
