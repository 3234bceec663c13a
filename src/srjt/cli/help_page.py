"""The help pages, in panels as rich draws them. rich takes longer for them than all else that ``--help`` does."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import Any

import typer

__all__ = ["print_help"]

NAME = re.compile(
    r"(?P<required>\*)|(?<=/ )(?P<negative>--\S+)|(?P<option>--[\w-]+|^[a-z]+)|(?P<switch>-\w)|(?P<type>[^\s/,]+)"
)
TEXT = re.compile(r"(?<![\w-])(?P<option>--[a-z][\w-]+)|(?P<required>\[required\])|(?P<note>\[[^]]+\])")
STYLES: dict[str, dict[str, Any]] = {
    "required": {"fg": "red"},
    "option": {"fg": "cyan", "bold": True},
    "negative": {"fg": "magenta", "bold": True},
    "switch": {"fg": "green", "bold": True},
    "type": {"fg": "yellow", "bold": True},
    "note": {"dim": True},
}
ASCII = str.maketrans("╭╮╰╯─│−×′ετρ…", "++++-|-x'etp.")


def print_help(command: Any, context: Any) -> None:
    """Print the help of a command in the width of the terminal: usage, description, a panel per group of options."""
    width = max(40, shutil.get_terminal_size().columns)
    description = [
        f" {line}".rstrip()
        for paragraph in (command.help or "").split("\n\n")
        for line in [*_column(paragraph, width - 2), ""]
    ]
    panels = [_panel(title, rows, width) for title, rows in _rows(command, context).items() if rows]
    # a group with a verb that may be left out is used as this verb is
    usage = textwrap.indent(getattr(command, "default_command", command).get_usage(context), " ").replace(
        "Usage:", _style("Usage:", "type")
    )
    page = "\n".join(["", usage, "", *description, *(line for panel in panels for line in panel)])
    if not (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        page = page.translate(ASCII).encode("ascii", "replace").decode("ascii")
    typer.echo(page, color=context.color)


def _rows(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """What each panel lists: names, and what they do."""
    panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in getattr(command, "default_command", command).get_params(context):
        if record := parameter.get_help_record(context):  # None if the option is hidden
            name, text = record
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            rows = panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, [])
            rows.append((f"* {name}" if parameter.required else name, text))
    verbs = getattr(command, "commands", {}).items()
    panels["Commands"] = [(name, verb.help.split("\n\n")[0]) for name, verb in verbs if not verb.hidden]
    return panels


def _panel(title: str, rows: list[tuple[str, str]], width: int) -> list[str]:
    """Two columns in a box. A name that is longer than two fifths of the width gets lines of its own."""
    inner = width - 4
    if any(name[:2] == "* " for name, _ in rows):
        rows = [(name if name[:2] == "* " else f"  {name}", text) for name, text in rows]
    left = max((len(name) for name, _ in rows if len(name) <= inner * 2 // 5), default=8)
    lines = []
    for name, text in rows:
        right = _column(text, inner - left - 2)
        if len(name) <= left:
            lines.append(f"{_highlight(NAME, name.ljust(left))}  {right.pop(0)}")
        else:
            parts = textwrap.wrap(name, inner, break_on_hyphens=False)
            lines += [_highlight(NAME, part.ljust(inner)) for part in parts]
        lines += [f"{'':{left}}  {part}" for part in right]
    side = _style("│", "note")
    return [
        _style(f"╭─ {title} {'─' * (width - len(title) - 5)}╮", "note"),
        *(f"{side} {line} {side}" for line in lines),
        _style(f"╰{'─' * (width - 2)}╯", "note"),
    ]


def _column(text: str, width: int) -> list[str]:
    """The text in lines of ``width`` characters; a default in rich's markup is shown like any other."""
    text = re.sub(r"\[dim\](.*?)\[/\]", r"[\1]", " ".join(text.split()))
    text = re.sub(
        r"\[default: (\S+)",
        lambda found: found[0].replace(": ", ":\xa0" if len(found[0]) <= width else ": "),
        text,
    )  # no line ends between the two, if both fit in one
    lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    return _highlight(TEXT, "\n".join(line.ljust(width).replace("\xa0", " ") for line in lines)).split("\n")


def _highlight(pattern: re.Pattern[str], text: str) -> str:
    """The text with the groups of a pattern in their colours; a group may span lines."""
    return pattern.sub(
        lambda found: "\n".join(_style(line, found.lastgroup or "") for line in found[0].split("\n")), text
    )


def _style(text: str, name: str) -> str:
    return typer.style(text, **STYLES[name])
