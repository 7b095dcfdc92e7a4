"""Addresses of terminals as JSON, as `register` carries them and the store keeps them."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from corral.core.errors import UsageError
from corral.tamq.terminal.base import Address, ProcessId, PtyAddress, TmuxAddress

PATH_MAX_BYTES: Final = 107  # of a Unix socket: sun_path less its end
PANE_MAX_CHARS: Final = 12
BOOT_ID_MAX_CHARS: Final = 64
NUMBER_MAX: Final = 2**63 - 1


class AddressError(UsageError):
    """The description of a terminal is not one. The message begins with the path of the key."""


def as_dict(address: Address) -> dict[str, object]:
    """The JSON object of an address; `parse` reads it."""
    fields: dict[str, object] = {"socket": address.socket}
    match address:
        case TmuxAddress():
            fields |= {"kind": "tmux", "pane": address.pane, "server": _process(address.server)}
        case PtyAddress():
            fields |= {"kind": "pty", "host": _process(address.host)}
    return fields | {"process": _process(address.process)}


def parse(fields: Mapping[str, object]) -> Address:
    """`AddressError` for everything that `as_dict` does not write."""
    kind = fields.get("kind")
    if kind == "tmux":
        _only(fields, {"kind", "socket", "pane", "server", "process"})
        return TmuxAddress(
            _path(fields), _parse_process(fields, "server"), _pane(fields), _target(fields)
        )
    if kind == "pty":
        _only(fields, {"kind", "socket", "host", "process"})
        return PtyAddress(_path(fields), _parse_process(fields, "host"), _target(fields))
    raise AddressError("terminal.kind: must be tmux or pty")


def _target(fields: Mapping[str, object]) -> ProcessId:
    return _parse_process(fields, "process")


def _process(process: ProcessId) -> dict[str, object]:
    return dict(process._asdict())


def _only(fields: Mapping[str, object], known: set[str], at: str = "terminal") -> None:
    for key in sorted(set(fields) ^ known):
        raise AddressError(f"{at}.{key}: {'unknown key' if key in fields else 'is missing'}")


def _path(fields: Mapping[str, object]) -> str:
    path = fields["socket"]
    if not isinstance(path, str) or "\0" in path or not PurePosixPath(path).is_absolute():
        raise AddressError("terminal.socket: must be an absolute path")
    if len(path.encode(errors="surrogatepass")) > PATH_MAX_BYTES:
        raise AddressError(f"terminal.socket: longer than {PATH_MAX_BYTES} bytes")
    return path


def _pane(fields: Mapping[str, object]) -> str:
    pane = fields["pane"]
    valid = isinstance(pane, str) and pane.isascii() and len(pane) <= PANE_MAX_CHARS
    if not valid or not isinstance(pane, str) or pane[:1] != "%" or not pane[1:].isdecimal():
        raise AddressError("terminal.pane: must be the id of a pane, as %7", hint="see $TMUX_PANE")
    return pane


def _parse_process(fields: Mapping[str, object], key: str) -> ProcessId:
    value = fields[key]
    if not isinstance(value, Mapping):
        raise AddressError(f"terminal.{key}: must be an object")
    _only(value, set(ProcessId._fields), f"terminal.{key}")
    boot_id = value["boot_id"]
    if not isinstance(boot_id, str) or not 0 < len(boot_id) <= BOOT_ID_MAX_CHARS:
        raise AddressError(f"terminal.{key}.boot_id: must be a text of 1 to {BOOT_ID_MAX_CHARS}")
    return ProcessId(_number(value, key, "pid"), _number(value, key, "start_ticks"), boot_id)


def _number(value: Mapping[str, object], key: str, name: str) -> int:
    number = value[name]
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= NUMBER_MAX:
        raise AddressError(f"terminal.{key}.{name}: must be a whole number above 0")
    return number
