"""Write the tables of settings.md, files.md and data.md that say what the code says.

    python docs/reference.py             # writes them
    python docs/reference.py --check     # writes nothing; status 1 if a table is not that of the code

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; all else on a page is
written by hand.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

DOCS = Path(__file__).parent
PAGES = ("settings.md", "files.md", "data.md")
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

# Groups of settings: the name of the table and the dataclass.
GROUPS = {
    "train": "srjt.training.config:TrainConfig",
    "read": "srjt.data.options:ReadOptions",
    "answer": "srjt.inference.options:Evaluating",
}

# Files that a model describes, by the folder that they are in.
FILES = {
    "run: `run.json`": "srjt.training.folder:RunFile",
    "run: `summary.json`": "srjt.training.folder:SummaryFile",
    "run: `noise.json`": "srjt.training.folder:NoiseFile",
    "run: `head.json`": "srjt.training.folder:HeadFile",
    "study: `study.json`": "srjt.studies.folder:StudyFile",
    "audit: `audit.json`": "srjt.auditing.folder:AuditFile",
    "audit: `summary.json`": "srjt.auditing.folder:SummaryFile",
    "readers: `readers.json`": "srjt.data.sources.readers_folder:ReadersFile",
}


def pipes(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "&#124;") for cell in line) + " |\n" for line in lines
    )


def named(path: str) -> Any:
    """``module:name``."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def settings(group: type) -> str:
    """A row per field: its default as the help shows it, and what it says of itself."""
    hints = get_type_hints(group)
    rows = []
    for field in dataclasses.fields(group):
        default = shown_default(field)
        others = [
            choice
            for choice in choices(hints[field.name])
            if choice not in (field.default, *re.findall(r"[\w-]+", default))
        ]
        default += f"; or {', '.join(f'`{choice}`' for choice in others)}" if others else ""
        rows.append([f"`{field.name}`", default, field.metadata["help"] or field.metadata["more"]])
    return pipes(["setting", "default", "meaning"], rows)


def choices(hint: Any) -> list[str]:
    """The words that a type allows."""
    if get_origin(hint) is Literal:
        return [str(value) for value in get_args(hint)]
    return [value for part in get_args(hint) if part is not ... for value in choices(part)]


def shown_default(field: dataclasses.Field[Any]) -> str:
    if shown := field.metadata.get("shown"):
        return str(shown)
    default = (
        field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    )
    if default is None or default in ((), {}):
        return "–"
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else f"`{default}`"


def keys() -> str:
    """The keys of every JSON file that a model checks."""
    rows = []
    for file, model in FILES.items():
        names = named(model).model_fields
        rows.append([file, ", ".join(f"`{name}`" for name in names)])
    return pipes(["file", "keys"], rows)


def problems() -> str:
    """The kinds of problems of a data set, by severity; ``srjt data inspect`` prints what each
    means."""
    kinds = named("srjt.data.problems:KINDS")
    rows = []
    for severity in ("error", "warning"):
        names = [f"`{kind}`" for kind, (of, _) in kinds.items() if of == severity]
        rows.append([severity, ", ".join(names)])
    return pipes(["severity", "kinds"], rows)


def metrics() -> str:
    table = named("srjt.ordinal.metrics:METRICS")
    return ", ".join(f"`{name}` ({metric.long_name})" for name, metric in table.items()) + ".\n"


def filled(text: str, tables: dict[str, str]) -> str:
    return PLACE.sub(lambda match: match[1] + tables[match[2]] + match[3], text)


def contents() -> dict[Path, str]:
    """What each page should hold."""
    tables = {name: settings(named(group)) for name, group in GROUPS.items()}
    tables |= {"keys": keys(), "problems": problems(), "metrics": metrics()}
    pages = (DOCS / name for name in PAGES)
    return {page: filled(page.read_text(encoding="utf-8"), tables) for page in pages}


def main(words: Sequence[str]) -> int:
    old = [page for page, text in contents().items() if page.read_text(encoding="utf-8") != text]
    if "--check" not in words:
        for page, text in contents().items():
            page.write_text(text, encoding="utf-8")
    print(
        ", ".join(page.name for page in old) or "nothing",
        "to be written" if "--check" in words else "written",
    )
    return int("--check" in words and bool(old))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
