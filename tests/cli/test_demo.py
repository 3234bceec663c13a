"""``srjt demo`` in small."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from PIL import Image

Srjt = Callable[..., tuple[int, str, str]]


def test_a_table_curves_and_what_to_do_next(command: Srjt) -> None:
    code, out, err = command("demo", "--images", 200, "--epochs", 2, "--out", "shown")
    assert (code, err) == (0, "")
    log = ("standard: ", "co-teaching: ", "co-teaching+ours: ")  # only lines of a log may be long
    assert all(len(line) <= 80 or line.startswith(log) for line in out.splitlines())
    assert "200 images of 20 patients" in out
    assert "mean over the last 2 epochs" in out
    for method in ("standard", "co-teaching", "co-teaching+ours"):
        (row,) = re.findall(rf"^│ {re.escape(method)} +│(.*)│$", out, flags=re.MULTILINE)
        numbers = [float(cell) for cell in row.split("│")]
        assert len(numbers) == 4
        assert all(0 <= number <= 3 for number in numbers)
        assert (Path("shown") / method / "summary.json").exists()
    assert re.search(r"^│ naive +│ +0\.\d+ │ +\d\.\d+ │ +│ +│$", out, flags=re.MULTILINE)
    with Image.open("shown/curves.png") as picture:
        assert picture.width > 800
    assert out.splitlines()[-1].endswith("srjt train labels.csv --method srjt --fold 0 --out runs/mine")
    assert "standard: epoch 1/2" in out
    code, again, _ = command("demo", "--images", 200, "--epochs", 2, "--out", "shown")
    assert code == 0
    assert again.count("is already finished: nothing to do.") == 3
    assert out[out.index("┏") : out.index("└")] == again[again.index("┏") : again.index("└")]
