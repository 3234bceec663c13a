"""What the commands say and do about images that are the same."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from srjt.data.synthetic import generate, write

from .conftest import Srjt

TRAINING = [
    "--device", "cpu", "--network", "tiny", "--image-size", "32", "--crop", "28", "--epochs", "1",
]  # fmt: skip

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 images of 20 patients: 1 and 50 are identical with different grades, 2 and 55 nearly
    identical."""
    path = write(
        generate(images=60, patients=20, size=64), tmp_path_factory.mktemp("twins") / "set"
    )
    table = pd.read_csv(path)
    files = [path.parent / name for name in table["image"]]
    files[50].write_bytes(files[1].read_bytes())
    Image.open(files[2]).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(files[55])
    table.loc[50, "grade"] = (table.loc[1, "grade"] + 1) % 4
    table["part"] = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    table.to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_inspect_reports_both_kinds_and_draws_the_pairs(command: Srjt, twins: Path) -> None:
    table = pd.read_csv(twins)
    out = command.prints("data", "inspect", twins)
    said = " ".join(out.split())
    assert "1 identical-images-other-grade" in said
    assert "1 near-duplicates" in said
    assert f"same pixels as {table['image'][50]}" in said
    assert f"nearly the same image as {table['image'][55]}" in said
    assert "Published split: train 40, validation 10, test 10" in said
    width, height = Image.open("duplicates.png").size
    assert width > 600
    assert height > 112


@pytest.mark.slow
def test_split_tells_the_number_of_groups_once(command: Srjt, twins: Path) -> None:
    status, _, err = command("data", "split", twins, "--out", "exact.csv")
    assert status == 0
    assert err.count("2 images are identical to another: they make 1 group") == 1
    status, _, err = command("data", "split", twins, "--group-near-duplicates", "--out", "near.csv")
    assert status == 0
    assert (
        err.count("4 images are identical or nearly identical to another: they make 2 groups") == 1
    )
    ids = pd.read_csv(twins)["image"]
    for name, pairs in (("exact.csv", [(1, 50)]), ("near.csv", [(1, 50), (2, 55)])):
        for _, fold in pd.read_csv(name).groupby("fold"):
            side = fold.set_index("id")["split"]
            assert all(side[ids[one]] == side[ids[other]] for one, other in pairs)
