"""Mutants of the statistics: one expression is made wrong, and the test that is named has to fail.

    python tests/mutants.py            all of them, some minutes
    python tests/mutants.py holm ppi   those whose names contain one of these words

``mutants.yaml`` lists them. A mutant names the file and the function, and the expression (or
statement) that changes. Python's syntax tree decides whether it occurs: line breaks, comments and
the place in the file do not matter. ``test_mutants.py`` checks that each still applies and that its
test exists.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".yaml")
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # written in C where it was built
LIBRARIES = ("numpy", "pandas", "scipy.stats", "sklearn.metrics", "torch", "hypothesis", "pytest")

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Mutant(NamedTuple):
    name: str  # what is wrong then
    # "file under src/srjt: function", or a class, a method (Class.method) or a constant of a module
    function: str
    old: str  # an expression or a statement that occurs exactly once there
    new: str
    test: str  # under tests; it must fail

    @property
    def file(self) -> str:
        return self.function.partition(": ")[0]


class MutantError(Exception):
    """The mutant does not apply: the source has changed, or the entry is wrong."""


def read(text: str) -> list[Mutant]:
    return [Mutant(**entry) for entry in yaml.load(text, Loader=LOADER)]


MUTANTS = read(TABLE.read_text(encoding="utf-8"))


def mutated(mutant: Mutant, text: str) -> str:
    """The source of the file with this one change; a MutantError says why there is none."""
    return ast.unparse(mutated_tree(mutant, text)) + "\n"


def mutated_tree(mutant: Mutant, text: str) -> ast.Module:
    tree = ast.parse(text)
    _, _, name = mutant.function.partition(": ")
    place = _find(tree, name)
    if place is None:
        raise MutantError(f"{mutant.name}: there is no {name!r} in {mutant.file}")
    old, new = _parsed(mutant, mutant.old), _parsed(mutant, mutant.new)
    if isinstance(old, ast.expr) != isinstance(new, ast.expr):
        raise MutantError(
            f"{mutant.name}: an expression can only become an expression, a statement a statement"
        )
    wanted = ast.unparse(old)
    if wanted == ast.unparse(new):
        raise MutantError(f"{mutant.name}: the change changes nothing")
    alike = (node for node in ast.walk(place) if type(node) is type(old))  # unparse takes a while
    found = [node for node in alike if ast.unparse(node) == wanted]
    if len(found) != 1:
        times = f"occurs {len(found)} times" if found else "does not occur"
        raise MutantError(f"{mutant.name}: {wanted!r} {times} in {mutant.function}")
    _Replace(found[0], new).visit(tree if found[0] is place else place)
    return tree


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old = old
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _parsed(mutant: Mutant, source: str) -> ast.AST:
    try:
        body = ast.parse(source).body
    except SyntaxError as problem:
        raise MutantError(
            f"{mutant.name}: {source!r} is no expression and no statement: {problem.msg}"
        ) from None
    if len(body) != 1:
        raise MutantError(f"{mutant.name}: {source!r} is {len(body)} statements, not one")
    return body[0].value if isinstance(body[0], ast.Expr) else body[0]


def _find(tree: ast.Module, name: str) -> ast.AST | None:
    """The function, the class or the assignment of this qualified name."""
    place: ast.AST | None = tree
    for part in name.split("."):
        inner = ast.walk(place)
        next(inner)  # the place itself
        place = next((node for node in inner if part in _names(node)), None)
        if place is None:
            return None
    return place


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, Scope):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def run(tests: set[str], *, src: Path) -> int:
    """pytest's exit code: 0 all pass, 1 a test fails; anything else is a mistake.

    A forked process has the libraries already, whose import takes longer than most tests.
    """
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    process = multiprocessing.get_context(method).Process(target=_pytest, args=(sorted(tests), src))
    process.start()
    process.join()
    return int(process.exitcode or 0)


def _pytest(tests: list[str], src: Path) -> None:
    import pytest

    sys.path.insert(0, str(src))
    os.environ["PYTHONPATH"] = str(src)  # for the processes that tests start
    os.chdir(ROOT)
    with tempfile.TemporaryFile("w+") as output:
        shown = os.dup(2)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
        code = int(pytest.main([*options, *(f"tests/{test}" for test in tests)]))
        if code not in (0, 1):
            output.seek(0)
            os.write(shown, output.read()[-3000:].encode())
    sys.stdout.flush()
    os._exit(code)


def killed(mutant: Mutant, *, src: Path) -> bool:
    """Whether the named test fails while src, a copy of the source, has this one change."""
    path = src / "srjt" / mutant.file
    before = path.read_text(encoding="utf-8")
    bytecode = Path(importlib.util.cache_from_source(str(path)))
    changed = mutated(mutant, before)
    try:
        bytecode.unlink(
            missing_ok=True
        )  # Python would take it if the file had the same size and time
        path.write_text(changed, encoding="utf-8")
        return run({mutant.test}, src=src) == 1
    finally:
        bytecode.unlink(missing_ok=True)
        path.write_text(before, encoding="utf-8")


def main(words: list[str]) -> int:
    chosen = [
        one
        for one in MUTANTS
        if not words or any(word.lower() in one.name.lower() for word in words)
    ]
    if not chosen:
        print(f"No mutant's name contains {' or '.join(words)}.")
        return 1
    if run({one.test for one in chosen}, src=ROOT / "src") != 0:
        print("The tests do not pass without a mutation.")
        return 1
    dead = 0
    with tempfile.TemporaryDirectory() as folder:
        src = Path(shutil.copytree(ROOT / "src", Path(folder, "src")))
        for mutant in chosen:
            try:
                verdict = "killed  " if killed(mutant, src=src) else "SURVIVED"
            except MutantError as problem:
                print(f"DOES NOT APPLY {problem}", flush=True)
                continue
            dead += verdict.startswith("killed")
            print(f"{verdict} {mutant.name}", flush=True)
    print(f"{dead} of {len(chosen)} killed")
    return int(dead < len(chosen))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for library in LIBRARIES:
        importlib.import_module(library)
    sys.exit(main(sys.argv[1:]))
