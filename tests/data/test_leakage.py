"""Training samples are known again in other samples: rounded rows, re-encoded and mirrored images.
No false alarm."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from PIL import Image
from scipy.stats import beta

import srjt
from srjt.data import leakage
from srjt.data.leakage import find_copies, traces_of
from srjt.data.manifest import LeakageWarning, Manifest
from srjt.errors import SrjtError

Rows = npt.NDArray[np.floating[Any]]


def as_manifest(rows: Rows) -> Manifest:
    table = pd.DataFrame({"id": [f"s{row}" for row in range(len(rows))], "image": "", "grade": 0})
    return Manifest(table=table, grades=("0", "1"), arrays=rows.astype(np.float32))


def found(training: Rows, given: Rows) -> tuple[int, int]:
    known = find_copies(traces_of(as_manifest(training)), as_manifest(given), patients=None)
    return len(known.copies), len(known.near)


def rows(columns: int, count: int, seed: int) -> Rows:
    return np.random.default_rng(seed).standard_normal((count, columns))


CHANGES: dict[str, Callable[[Rows], Rows]] = {
    "exact": lambda x: x,
    "three digits": lambda x: x.round(3),
    "in another order": lambda x: x[::-1],
}


@pytest.mark.parametrize("columns", [1, 2, 5, 15, 64])
@pytest.mark.parametrize("change", CHANGES)
def test_copies_of_training_rows_are_found_with_any_number_of_columns(
    columns: int, change: str
) -> None:
    training = rows(columns, 300, 0)
    copied, _ = found(training, CHANGES[change](training[:100]))
    assert copied > 50


def test_rows_rounded_to_one_digit_are_found_where_columns_tell() -> None:
    training = rows(6, 300, 0)
    assert found(training, training[:100].round(1))[0] > 80


def test_a_single_copy_is_found() -> None:
    training, given = rows(5, 300, 0), rows(5, 100, 1)
    assert found(training, given) == (0, 0)
    given[7] = training[11]
    assert found(training, given)[0] == 1


@pytest.mark.parametrize("columns", [1, 2, 5, 30])
@pytest.mark.parametrize("kind", ["numbers", "whole numbers", "yes or no", "another centre"])
def test_other_samples_are_no_copies(columns: int, kind: str) -> None:
    """Also where rows coincide by chance, or the samples are of a narrower group."""
    for seed in range(5):
        training, given = rows(columns, 200, seed), rows(columns, 100, 100 + seed)
        if kind == "whole numbers":
            training, given = (5 * training).round(), (5 * given).round()
        elif kind == "yes or no":
            training, given = training > 0, given > 0
        elif kind == "another centre":
            given = 0.3 * given + 0.5
        assert found(training, given) == (0, 0), seed


def test_a_changed_copy_is_near() -> None:
    training = rows(20, 300, 0)
    moved = training[:100] + 0.3 * rows(20, 100, 1)
    copied, near = found(training, moved)
    assert (copied, near > 90) == (0, True)


def changed(pixels: npt.NDArray[np.uint8], how: str) -> npt.NDArray[np.uint8]:
    image = Image.fromarray(pixels)
    if how == "mirrored":
        return pixels[:, ::-1]
    if how == "cropped":
        width, height = image.size
        return np.asarray(image.crop((4, 4, width - 4, height - 4)).resize(image.size))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return np.asarray(Image.open(file))


@pytest.mark.slow
def test_copies_of_training_images_are_found() -> None:
    data = srjt.data.synthetic.generate(images=60, patients=20, size=200)
    assert data.arrays is not None
    training, others = data.select(np.arange(40)), data.select(np.arange(40, 60))
    traces = traces_of(training)
    assert len(find_copies(traces, others, patients=training.patients).near) == 0
    for how in ("mirrored", "re-encoded", "cropped"):
        arrays = np.stack([changed(np.asarray(image), how) for image in data.arrays[:20]])
        copied = replace(data.select(np.arange(20)), arrays=arrays)
        assert len(find_copies(traces, copied, patients=training.patients).copies) >= 18, how


@pytest.mark.slow
def test_a_run_in_a_folder_refuses_rounded_training_rows(tmp_path: Path) -> None:
    """Six columns, other ids, four digits: a run accepted them, promised a coverage of 0.9 and had
    0.54."""
    x = rows(6, 120, 0)
    grades = np.digitize(x[:, 0], [-0.5, 0.5])
    data = srjt.data.from_arrays(x, grades)
    split = srjt.data.folds(data, folds=4)[0]
    srjt.train(
        data, split=split, out=tmp_path / "run", epochs=1, method="standard", network="linear"
    )
    run = srjt.load_run(tmp_path / "run")
    learnt = split.train
    renamed = [f"new{row}" for row in range(len(learnt))]
    copied = srjt.data.from_arrays(x[learnt].round(4), grades[learnt], ids=renamed)
    with pytest.raises(
        SrjtError, match=rf"trained on {len(learnt)} of the {len(learnt)} samples .* copies"
    ):
        srjt.predict(run, x[:5], coverage=0.8, calibrate_on=copied)
    with pytest.warns(LeakageWarning, match=f"trained on {len(learnt)} of these"):
        srjt.evaluate(run, copied, resamples=2)
    other = srjt.data.from_arrays(rows(6, 80, 5), grades[:80])
    assert len(srjt.predict(run, x[:5], coverage=0.8, calibrate_on=other)) == 5


def test_few_rows_are_compared_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leakage, "MOST_ROWS", 50)
    training = rows(4, 400, 0)
    assert 40 <= found(training, training[:200])[0] <= 50


def test_ratios_by_hand() -> None:
    """The distance to the nearest row of another patient over that from there to the next one of a
    third patient."""
    own, codes = np.array([[0.0], [1.0], [3.0], [3.1]]), np.array([0, 1, 2, 2])
    # 0 → 1 → 3; 1 → 0 → 3; 3 → 1 → 0; 3.1 → 1 → 0
    assert leakage._ratios(own, own, codes, codes) == pytest.approx([1 / 2, 1 / 3, 2.0, 2.1])
    others = np.array([[0.9], [2.9]])  # 0.9 → 1 → 0; 2.9 → 3 → 1
    assert leakage._ratios(others, own, codes, np.array([-1, -1])) == pytest.approx([0.1, 0.05])


def test_where_ratios_are_small_by_chance_they_are_counted() -> None:
    """Three of 1,000 rows coincide with another: Clopper and Pearson's limit, and no power of the
    ratio."""
    ratios = np.concatenate([np.zeros(3), np.full(497, 0.9), np.full(500, 2.0)])
    assert leakage._chance_below(0.01, ratios) == pytest.approx(beta.ppf(0.99, 4, 997))
    assert leakage._chance_below(0.01, ratios[3:]) < 1e-6  # none of them: by the power


def test_so_many_hits_are_unlikely_or_not() -> None:
    """One or more of 100 by chance: 1 − (1 − p)^100, about 100 p."""
    assert not leakage._unlikely(1, 100, 2e-6)
    assert leakage._unlikely(1, 100, 0.5e-6)
    assert not leakage._unlikely(0, 100, 0.0)


def test_a_patient_with_many_rows_has_a_chance_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two patients with ten rows each: 1 − (1 − 0.1)^10."""
    asked: list[tuple[int, float]] = []

    def unlikely(hits: int, trials: int, chance: float) -> bool:
        asked.append((trials, chance))
        return False

    monkeypatch.setattr(leakage, "_chance_below", lambda limit, ratios: 0.1)
    monkeypatch.setattr(leakage, "_unlikely", unlikely)
    given = as_manifest(rows(3, 20, 1))
    given = replace(given, table=given.table.assign(patient=["a", "b"] * 10))
    find_copies(traces_of(as_manifest(rows(3, 40, 0))), given, patients=None)
    assert asked == [(2, pytest.approx(1 - 0.9**10))] * 4
