"""What the shell offers for arguments of `tamq`: names and ids as they are now.

Nothing is offered where nothing can be read, or where TAMQ does not answer at once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from corral.core.errors import CorralError
from corral.tamq import host
from corral.tamq.ask import Place
from corral.tamq.requests import PAGE_DEFAULT

TIMEOUT_S: Final = 1.0

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def repos(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """Names of the registry."""
    from corral.core.settings import load
    from corral.tamq.registry import Registry
    from corral.tamq.settings import TamqSettings

    _place(context)
    try:
        registry = Registry(load(TamqSettings).gita_repos)
        registry.refresh()
    except CorralError:
        return []
    return _items(registry.names(), start)


def profiles(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """Built-in profiles and those of the operator's file."""
    from corral.core.settings import load
    from corral.tamq.sessions import Sessions
    from corral.tamq.settings import TamqSettings

    _place(context)
    try:
        return _items(sorted(Sessions(load(TamqSettings).profiles).profiles), start)
    except CorralError:
        return []


def endpoints(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """Ids of live sessions."""
    found = _asked(context, {"op": "endpoints"}).get("endpoints", [])
    return [
        CompletionItem(one["endpoint_id"], help=",".join(one["repos"]))
        for one in found
        if one["endpoint_id"].startswith(start)
    ]


def messages(state: str | None = None) -> Complete:
    """Ids of the newest messages, in one state or in any."""

    def complete(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
        page = {"op": "history", "state": state, "limit": PAGE_DEFAULT}
        found = _asked(context, page).get("messages", [])
        return _items((str(one["message_id"]) for one in found), start)

    return complete


def message_argument(state: str | None = None) -> Callable[[CommandT], CommandT]:
    """The argument MESSAGE_ID, completed from those in one state or in any."""
    return click.argument("message_id", shell_complete=messages(state))


def _place(context: click.Context) -> Place:
    """As the program's group makes it, which does not run while a line is completed."""
    given = context.find_root().params
    host.adopt(given.get("user"))
    return Place(given.get("socket"), given.get("user"))


def _asked(context: click.Context, fields: Mapping[str, object]) -> dict[str, Any]:
    try:
        return _place(context).ask(fields, TIMEOUT_S)
    except CorralError:
        return {}


def _items(names: Iterable[str], start: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(start)]
