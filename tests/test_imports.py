"""The structure of the package: imports run down only, and there is no circle."""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import srjt

SOURCE = Path(srjt.__file__).parent

# From the ground up. A file may import from its own room, from rooms on lower floors, and from
# rooms to the left of its own on the same floor, nothing else.
FLOORS = (
    (
        "_version",
        "text",
        "errors",
        "lazy",
        "process",
        "json_values",
        "validation",
        "notebook",
        "console",
        "progress",
        "files",
        "download",
        "hub",
        "settings",
    ),
    ("ordinal", "noise", "readers"),
    ("methods", "torch", "networks", "integrations", "data"),
    ("training",),
    ("inference", "estimator", "ranges"),
    ("auditing", "studies"),
    ("reports",),
    ("run", "cli"),
)
FLOOR = {room: number for number, room in enumerate(room for rooms in FLOORS for room in rooms)}
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
FRONT_DOORS = {"srjt", "srjt.__main__"}  # they import what they show


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those within a node, whatever block they are in: expressions, most of a file, have none."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, block, []):
            yield inner
            yield from statements(inner)


@cache
def imports(path: Path) -> list[str]:
    """Every module of ours that a file imports, wherever in the file: at the top, in a function,
    for types."""
    modules = []
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            modules += [name if name in MODULES else node.module for name in whole]
    return [module for module in modules if module.split(".")[0] == "srjt"]


def room(module: str) -> str:
    """The longest name in the table that contains the module."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in FLOOR:
            return ".".join(parts[:length])
    raise AssertionError(f"{module} belongs to no room: add it to FLOORS")


def test_imports_run_down_only() -> None:
    upward = []
    for module, path in MODULES.items():
        below = FLOOR[room(module)] if module not in FRONT_DOORS else len(FLOOR)
        others = [one for one in imports(path) if one != "srjt" and FLOOR[room(one)] > below]
        upward += [(module, imported) for imported in others]
    assert upward == []


def test_no_file_imports_itself_by_a_detour() -> None:
    """Packages name what they hold, so the edges into a package's own __init__ from inside it do
    not count."""
    edges = {
        module: {
            imported
            for imported in imports(path)
            if imported != module
            and imported not in FRONT_DOORS
            and not module.startswith(f"{imported}.")
        }
        for module, path in MODULES.items()
        if module not in FRONT_DOORS
    }
    finished: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in finished:
            return
        for imported in sorted(edges.get(module, ())):
            visit(imported, (*trail, module))
        finished.add(module)

    for module in sorted(edges):
        visit(module, ())


def test_the_benchmarks_import_what_exists() -> None:
    """They are run by hand, long after a name has moved."""
    missing = [
        f"{script.name}: {node.module}.{alias.name}"
        for script in (Path(__file__).parents[1] / "benchmarks").rglob("*.py")
        for node in statements(ast.parse(script.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "srjt"
        for alias in node.names
        if f"{node.module}.{alias.name}" not in MODULES
        and not hasattr(importlib.import_module(node.module or ""), alias.name)
    ]
    assert missing == []


@pytest.mark.slow
def test_the_benchmarks_call_what_exists() -> None:
    """With the arguments that it takes: mypy knows, without running them for hours."""
    pytest.importorskip("mypy")
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "benchmarks"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert "checked " in done.stdout, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith("[call-arg]")] == []
