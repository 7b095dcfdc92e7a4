"""The parts of docs/reference that come from the code: commands, settings, error codes.

`python -m tests.unit.cowboy_cli.reference` writes them; `test_reference.py` compares them.
A generated part stands between two comments of its page; what is around them is written by hand.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

import corral.core
import corral.cowboy
from corral.core.errors import CorralError
from corral.cowboy import gauges
from corral.cowboy.config import json_schema
from corral.cowboy.main import cli
from corral.cowboy.settings import CowboySettings

PAGES = Path(__file__).parents[3] / "docs" / "reference"
_PART = re.compile(
    r"(?P<head><!-- generated (?P<name>[a-z-]+) by: [^>]* -->\n)"
    r".*?"
    r"(?P<end><!-- end of the generated part -->)",
    re.DOTALL,
)


def table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


# --- commands ---------------------------------------------------------------------------------


def commands() -> str:
    return "\n".join(command_text(words, command) for words, command in leaves(("cowboy",), cli))


def leaves(
    words: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from leaves((*words, name), inner)
    else:
        yield words, command


def command_text(words: tuple[str, ...], command: click.Command) -> str:
    name = " ".join(words)
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option)]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    text, _, example = inspect.cleandoc(command.help or "").partition("\b\n")
    parts = [f"### `{name}`\n", f"```\n{usage}\n```\n", f"{text.strip()}\n"]
    if options:
        rows = [[f"`{_flags(o)}`", _default(o), o.help or ""] for o in options]
        parts.append(table(["option", "default", "meaning"], rows))
    if example:
        parts.append(f"```\n{inspect.cleandoc(example.split(chr(10), 1)[1])}\n```\n")
    return "\n".join(parts)


def _argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _flags(option: click.Option) -> str:
    shown = ", ".join(option.opts)
    if option.is_flag:
        return shown
    if isinstance(option.type, click.Choice):
        return f"{shown} " + "\\|".join(str(choice) for choice in option.type.choices)
    if isinstance(option.type, click.IntRange):
        return f"{shown} {option.type.min}..{option.type.max}"
    return f"{shown} {(option.metavar or 'TEXT').replace('|', chr(92) + '|')}"


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return option.show_default
    return "" if option.is_flag or not option.show_default else f"`{option.default}`"


def known_commands() -> list[tuple[str, ...]]:
    """The words of every command, `cowboy` left out: `("turns", "list")`."""
    return [words[1:] for words, _ in leaves(("cowboy",), cli)]


def cowboy_words(text: str) -> list[tuple[str, ...]]:
    """The words after `cowboy` in the commands of a page: in code, after a prompt or sudo."""
    return commands_in(text, "cowboy")


def commands_in(text: str, program: str) -> list[tuple[str, ...]]:
    """The same of any program."""
    code = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    code += re.findall(r"`([^`\n]+)`", text)
    found = [re.match(rf"(?:\$ |sudo )*{program} ([a-z][a-z -]*)", line.strip())
             for part in code for line in part.splitlines()]  # fmt: skip
    return [tuple(one[1].split()) for one in found if one is not None]


# --- settings ---------------------------------------------------------------------------------


def settings() -> str:
    rows = []
    for name, field in CowboySettings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        rows.append([f"`{name}`", f"`COWBOY_{name.upper()}`", default, field.description or ""])
    return table(["setting", "variable", "default", "meaning"], rows)


def sources() -> str:
    schema = json_schema()
    definitions = schema["$defs"]
    parts = [
        ("The file", schema),
        ("`limits`", definitions["AgentLimits"]),
        ("Each of `sources`", definitions["SourceConfig"]),
        ('`runner` with `"kind": "exec"`', definitions["ExecRunner"]),
        ('`runner` with `"kind": "tamq"`', definitions["TamqRunner"]),
        ('`runner` with `"kind": "echo"`', definitions["EchoRunner"]),
    ]
    return "\n".join(
        f"### {title}\n\n{table(['key', 'value', 'default', 'meaning'], _keys(part, definitions))}"
        for title, part in parts
    )


def _keys(part: dict[str, Any], definitions: dict[str, Any]) -> list[list[str]]:
    required = set(part["required"]) if "required" in part else set()
    rows = []
    for key, value in part["properties"].items():
        default = "required" if key in required else f"`{value.get('default', '{}')}`"
        meaning = value.get("description", "Which kind of runner.")
        rows.append([f"`{key}`", _value(value, definitions), default, meaning])
    return rows


def _value(value: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in value:
        value = definitions[value["$ref"].rsplit("/", 1)[1]]
    if "enum" in value:
        return " or ".join(f"`{choice}`" for choice in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if "minimum" in value:
        return f"{value['minimum']:,} to {value['maximum']:,}"
    if value.get("type") == "array":
        return f"list of {value['minItems']} to {value['maxItems']} strings"
    if "oneOf" in value or value.get("type") == "object":
        return "object"
    return "string"


# --- errors -----------------------------------------------------------------------------------


def errors() -> str:
    rows = []
    for code, kind in sorted(error_classes().items()):
        meaning = inspect.cleandoc(kind.__doc__ or "").split("\n\n", maxsplit=1)[0]
        if kind is CorralError:
            meaning = "A fault of the program itself."
        rows.append([f"`{code}`", str(exit_code(kind)), " ".join(meaning.split())])
    return table(["code", "exit status", "meaning"], rows)


def exit_code(kind: type[CorralError]) -> int:
    """What `cowboy` exits with: a fault without a code of its own is an internal one."""
    return 70 if kind.code == CorralError.code else kind.exit_code


def error_classes() -> dict[str, type[CorralError]]:
    """The class of each code; where several share one, the class nearest to the base."""
    for package in (corral.core, corral.cowboy):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found: dict[str, type[CorralError]] = {}
    level: list[type[CorralError]] = [CorralError]
    while level:
        for kind in sorted(level, key=lambda kind: kind.__qualname__):
            if kind.__module__.startswith(("corral.core.", "corral.cowboy.")):
                found.setdefault(kind.code, kind)
        level = [inner for kind in level for inner in kind.__subclasses__()]
    return found


# --- metrics ----------------------------------------------------------------------------------


def metrics() -> str:
    rows = [
        *([f"`cowboy_{n}`", "agent, source", doc] for n, doc in gauges.SOURCE.items()),
        *([f"`cowboy_{n}`", "agent, source, state", doc] for n, doc in gauges.STATE.items()),
        *([f"`cowboy_{n}`", "agent, source, kind", doc] for n, doc in gauges.KIND.items()),
        *([f"`cowboy_{n}`", "agent", doc] for n, doc in gauges.AGENT.items()),
    ]
    kinds = [[f"`{kind}`", meaning] for kind, meaning in gauges.KINDS.items()]
    states = ", ".join(f"`{state}`" for state in gauges.STATES)
    return (
        f"{table(['metric', 'labels', 'meaning'], rows)}\n`state` is one of {states}.\n\n"
        f"{table(['kind', 'counts'], kinds)}"
    )


# --- pages ------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "sources": sources,
    "errors": errors,
    "metrics": metrics,
}


def pages() -> list[Path]:
    return [page for page in sorted(PAGES.glob("*.md")) if _PART.search(page.read_text())]


def rendered(text: str) -> str:
    """The page with its generated parts made anew."""
    return _PART.sub(lambda part: f"{part['head']}\n{PARTS[part['name']]()}\n{part['end']}", text)


def names(text: str) -> list[str]:
    return [part["name"] for part in _PART.finditer(text)]


if __name__ == "__main__":
    for page in pages():
        page.write_text(rendered(page.read_text()))
