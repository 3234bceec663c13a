"""What is printed goes one way, on which control characters of somebody else's file are shown and
not executed."""

import ast
import re
from pathlib import Path

import pytest

import srjt
from srjt.cli import print_line, say
from srjt.console import Console
from srjt.progress import Lines

SOURCE = Path(srjt.__file__).parent
EVIL = "a\x1b]0;title\x07b\u202ec\x9b2Jd\u200b"

# file → what in it writes: the ways themselves, a protocol between two processes, a script without
# srjt, and two sentences of ours that are written while nothing else works any more
ALLOWED = {
    "cli/__init__.py": {"typer.secho"},
    "console.py": {"self.print"},
    "progress.py": {"print"},
    "data/images/decode.py": {"print"},
    "reports/standalone_predict.py": {"print"},
    "process.py": {"os.write"},
    "__main__.py": {"os.write"},
}
WRITERS = {
    "print",
    "typer.echo",
    "typer.secho",
    "click.echo",
    "click.secho",
    "rich.print",
    "os.write",
    "self.print",
}
WRITERS |= {
    f"sys.{stream}.{verb}"
    for stream in ("stdout", "stderr", "__stdout__")
    for verb in ("write", "writelines")
}

# unparse takes a while: the last part of the names above
MAY_WRITE = "print|echo|secho|write|writelines|console"


def last_name(call: ast.expr) -> str:
    return call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")


def test_no_module_writes_to_the_terminal_in_another_way() -> None:
    assert all(re.fullmatch(MAY_WRITE, name.rpartition(".")[2]) for name in WRITERS)
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(rf"\b(?:{MAY_WRITE})\(|rich\.console", text):
            continue
        tree = ast.parse(text)
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        names = {
            ast.unparse(call) for call in calls if re.fullmatch(MAY_WRITE, last_name(call))
        } & WRITERS
        imported = {
            f"from {node.module}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            and node.module == "rich.console"
            and path.name != "page.py"
        }
        if names | imported:
            found[path.relative_to(SOURCE).as_posix()] = names | imported
    assert found == ALLOWED


@pytest.mark.parametrize("way", ["say", "print_line", "Lines", "Console", "sentence"])
def test_control_characters_are_shown(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    ways = {
        "say": say,
        "print_line": print_line,
        "Lines": Lines().line,
        "Console": Console(markup=False).print,
        "sentence": Console().sentence,
    }
    ways[way](EVIL)
    printed = capsys.readouterr().out.removesuffix("\n")
    assert printed.isprintable()
    assert "title" in printed
