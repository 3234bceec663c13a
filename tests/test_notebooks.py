"""The notebooks run as they are, keep what they show, and stay small."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_six_in_their_order() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == list("123456")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_are_kept_with_their_outputs_and_small(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    cells = code_cells(json.loads(content))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), (
        "execute examples/execute.py"
    )
    assert any(cell["outputs"] for cell in cells)
    assert len(content) < 250_000
    for folder in ("home", "tmp", "root", "work"):  # of whoever executed them
        assert f"/{folder}/" not in content


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell, in a kernel of its own; the outputs have the kinds that are kept."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    try:
        from execute import execute

        executed = execute(path)
    finally:
        sys.modules.pop("execute", None)
    kept = json.loads(path.read_text(encoding="utf-8"))
    for now, before in zip(code_cells(executed), code_cells(kept), strict=True):
        results = [
            [set(output["data"]) for output in cell["outputs"] if output["output_type"] == "execute_result"]
            for cell in (now, before)
        ]
        assert results[0] == results[1]
