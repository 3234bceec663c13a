"""The manifest, and cells that a spreadsheet would run."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import srjt
from refusals import refuses
from srjt.data import Manifest, Problem, drop_unusable, write_problems
from srjt.data.manifest import neutralise_formula, warn_about_formulas


def manifest(**columns: object) -> Manifest:
    table = pd.DataFrame({"id": list("abc"), "image": list("abc"), "grade": [0, 2, 1], **columns})
    return Manifest(table=table, grades=("mild", "moderate", "severe"))


def test_select_takes_positions_masks_and_the_images_along() -> None:
    assert manifest().select([2, 0]).ids == ["c", "a"]
    assert manifest().select(np.array([False, True, True])).ids == ["b", "c"]
    pixels = np.arange(3, dtype=np.uint8)[:, None, None, None] * np.ones(
        (1, 2, 2, 3), dtype=np.uint8
    )
    whole = Manifest(table=manifest().table, grades=("0", "1", "2"), arrays=pixels)
    chosen = whole.select([2, 1]).arrays
    assert chosen[:, 0, 0, 0].tolist() == [2, 1]


def test_noise_keeps_the_first_truth() -> None:
    noisy = manifest().with_noisy_labels([1, 1, 1]).with_noisy_labels([2, 2, 2])
    assert noisy.labels.tolist() == [2, 2, 2]
    assert noisy.true_labels.tolist() == [0, 2, 1]


def test_labels_may_be_changed_without_changing_the_manifest() -> None:
    whole = manifest(true_grade=[0, 1, 2])
    whole.labels[:] = 0
    whole.true_labels[:] = 0
    assert whole.labels.tolist() == [0, 2, 1]
    assert whole.table["true_grade"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("columns", "refused"),
    [
        ({"id": ["a", "a", "b"]}, ("not_unique", "", "'a'")),
        ({"grade": [0, 1, 3]}, ("unknown_grade",)),
        ({"grade": [-1, 1, 0]}, ("unknown_grade",)),
    ],
)
def test_what_cannot_be_is_refused(
    columns: dict[str, list[object]], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        manifest(**columns)


def test_formulas_become_text_and_other_cells_are_unchanged() -> None:
    for text in ("=1+1", "@SUM(A1)", "+cmd", "-x", "\t=1", "＝1+1", "＠x"):
        assert neutralise_formula(text) == f"'{text}"
    for text in ("", "-", "-1", "+2.5", "-1e5", "a=b", "anna"):
        assert neutralise_formula(text) == text


def test_formulas_of_the_source_are_reported() -> None:
    table = pd.DataFrame({"image": ["=a.png", "b.png"], "x": [-1.0, 2.0]})
    with pytest.warns(
        UserWarning, match=r"formulas \(1; the first is '=a.png' in the column 'image'\)"
    ):
        warn_about_formulas(table, Path("out.csv"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_about_formulas(table[1:], Path("out.csv"))


def test_problems_are_text(tmp_path: Path) -> None:
    write_problems([Problem("ignored-file", "=1+1.txt", "not an image")], tmp_path / "problems.csv")
    assert "'=1+1.txt" in (tmp_path / "problems.csv").read_text()


def test_reading_returns_the_samples_with_its_report() -> None:
    data = srjt.data.from_arrays([[0.1], [0.2], [0.3]], [0, 1, None])
    assert len(data) == 2
    assert [problem.kind for problem in data.report.problems] == ["missing-grade"]
    assert data.left_out["problem"].tolist() == ["missing-grade"]
    assert data.select([0]).report == srjt.data.ReadReport()
    with refuses("unusable_samples", "on_bad_image", says="1 row or image"):
        drop_unusable(data)
    usable = drop_unusable(data, on_bad_image="skip")
    assert usable.report.problems == ()
    assert usable.left_out_counts == {"missing-grade": 1}
    assert drop_unusable(usable) is usable


def test_names_of_earlier_versions_warn() -> None:
    data = srjt.data.from_arrays([[0.1], [0.2], [0.3]], [0, 1, None])
    with pytest.warns(DeprecationWarning, match=r"leave out \.manifest"):
        manifest = data.manifest  # type: ignore[attr-defined]
    assert manifest.ids == data.ids
    assert manifest.report == srjt.data.ReadReport()
    with pytest.warns(DeprecationWarning, match=r"write \.report\.kind"):
        assert data.kind == "arrays"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        data.other  # type: ignore[attr-defined]  # noqa: B018
