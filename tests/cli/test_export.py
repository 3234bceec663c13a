"""``srjt export`` as a person runs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

Srjt = Callable[..., tuple[int, str, str]]


def test_it_says_what_the_file_takes_and_how_it_was_checked(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    code, out, err = command(
        "export", finished, "--out", "new/model.pt2", "--check", labelled.parent / "p000"
    )
    assert (code, err) == (0, "")
    assert "takes images uint8 (N, 32, 32, 3)" in out
    assert "Checked in torch on" in out
    facts = {"srjt.json": ""}
    torch.export.load("new/model.pt2", extra_files=facts)
    assert json.loads(facts["srjt.json"])["grades"] == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_the_suffix_or_the_option_says_the_format(command: Srjt, finished: Path) -> None:
    assert command("export", finished, "--out", "model.bin", "--format", "torch.export")[0] == 0
    code, _, err = command("export", finished, "--out", "model.bin")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "The format of model.bin is not clear from its name" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "onx"], "Unknown format 'onx': did you mean 'onnx'?"),
        (["--out", "/proc/x/model.pt2"], "/proc/x/model.pt2 cannot be written"),
        (["--out", "m.pt2", "--check", "nowhere"], "nowhere does not exist"),
        (["--out", "m.pt"], "TorchScript is deprecated by PyTorch: export to .onnx, or to .pt2"),
    ],
)
def test_mistakes(command: Srjt, finished: Path, arguments: list[str], said: str) -> None:
    code, _, err = command("export", finished, *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert said in err


def test_a_network_of_ones_own_needs_python(command: Srjt, finished: Path) -> None:
    facts = json.loads((finished / "run.json").read_text())
    Path("own").mkdir()
    Path("own/run.json").write_text(json.dumps({**facts, "own_network": True}))
    code, _, err = command("export", "own")
    assert (code, len(err.splitlines())) == (2, 1)
    assert 'srjt.export(srjt.load_run("own", network=…), "model.onnx")' in err


def test_an_unfinished_run(command: Srjt, finished: Path) -> None:
    Path("half").mkdir()
    Path("half/run.json").write_text((finished / "run.json").read_text())
    code, _, err = command("export", "half", "--out", "m.pt2")
    assert code == 2
    assert "half has not finished training" in err
