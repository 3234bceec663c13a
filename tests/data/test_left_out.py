"""Rows that are left out: they are counted and kept, and nobody moves to another side because of
them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import srjt
from refusals import refuses
from srjt.data import Manifest, Problem, drop_unusable, folds, read_splits
from srjt.data.images.store import open_store
from srjt.data.splits import assign_folds
from srjt.data.synthetic import generate, write


def sides_by_id(manifest: Manifest, **options: object) -> dict[str, int]:
    """Id → the part that it is in."""
    part = assign_folds(manifest, folds=5, **{"by": "random", **options})  # type: ignore[arg-type]
    return dict(zip(manifest.ids, part.tolist(), strict=True))


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return write(generate(images=60, patients=25, size=32), tmp_path / "set")


@pytest.mark.parametrize("by", ["random", "stratified"])
def test_samples_that_are_left_out_move_nobody(by: str) -> None:
    whole = generate(images=60, patients=25, size=32)
    bad = [Problem("unreadable-image", name) for name in whole.ids[::7]]
    rest = drop_unusable(whole, bad, on_bad_image="skip")
    assert len(rest) == len(whole) - len(bad)
    assert sides_by_id(rest, by=by).items() <= sides_by_id(whole, by=by).items()
    # without the memory of what was left out somebody moves: the test would notice
    forgotten = replace(rest, left_out_rows=None)
    assert not sides_by_id(forgotten, by=by).items() <= sides_by_id(whole, by=by).items()


def test_a_selection_is_a_data_set_of_its_own() -> None:
    whole = generate(images=60, patients=25, size=32)
    rest = whole.leave_out({3: ("unreadable-image", "cut short")})
    assert rest.left_out_rows is not None
    assert rest.left_out_rows[["id", "problem", "detail"]].values.tolist() == [
        [whole.ids[3], "unreadable-image", "cut short"]
    ]
    assert rest.left_out_rows["grade"].tolist() == [whole.grades[whole.labels[3]]]
    assert rest.select(np.arange(10)).left_out_rows is None
    twice = rest.leave_out({0: ("empty-image", "")})
    assert twice.left_out_rows is not None
    assert twice.left_out_rows["id"].tolist() == [whole.ids[3], whole.ids[0]]


@pytest.mark.slow
def test_a_missing_file_and_a_missing_grade_move_nobody(labels: Path, tmp_path: Path) -> None:
    whole = srjt.data.read(labels)
    part = sides_by_id(whole)
    table = pd.read_csv(labels, dtype=str)
    table.loc[7, "grade"] = ""
    table.to_csv(labels, index=False)
    with pytest.warns(UserWarning, match=r"Left out: 1 missing-grade"):
        reading = srjt.data.read(labels)
    assert sides_by_id(reading).items() <= part.items()
    reading.paths[0].unlink()
    reading.paths[20].write_bytes(b"")
    store = open_store(
        reading,
        size=32,
        cache=tmp_path / "cache",
        on_bad_image="skip",
        find_duplicates=True,
    )
    assert len(store.manifest) == len(whole) - 3
    assert sides_by_id(store.manifest).items() <= part.items()


def test_python_says_what_it_leaves_out(labels: Path) -> None:
    table = pd.read_csv(labels, dtype=str)
    table.loc[[2, 9], "grade"] = ["", "x"]
    table = pd.concat([table, table.iloc[[30]]])
    table.to_csv(labels, index=False)
    sentence = r"Left out: 1 missing-grade \(.*\); 1 invalid-grade \(.*\); 1 duplicate-row"
    with pytest.warns(UserWarning, match=sentence):
        reading = srjt.data.read(labels)
    assert reading.left_out["problem"].tolist() == [
        "missing-grade",
        "invalid-grade",
        "duplicate-row",
    ]
    assert reading.left_out["grade"].tolist() == ["", "x", table["grade"].iloc[30]]
    assert reading.left_out["detail"].tolist()[0] == "line 4: no grade"
    # what a command says that leaves them out
    with pytest.warns(UserWarning, match=sentence):
        drop_unusable(reading, reading.report.problems, on_bad_image="skip")


def test_a_line_with_too_few_cells_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,grade\na.png,0\nb.png\nc.png,1\n")
    with pytest.warns(UserWarning, match="1 malformed-row"):
        left_out = srjt.data.read(tmp_path / "labels.csv").left_out
    assert left_out[["id", "problem"]].values.tolist() == [["line 3", "malformed-row"]]


def test_nothing_is_left_out_of_a_good_table(
    labels: Path, recwarn: pytest.WarningsRecorder
) -> None:
    assert srjt.data.read(labels).left_out.empty
    assert not [warning for warning in recwarn if "Left out" in str(warning.message)]


def test_patients_joined_by_an_image_stay_joined_when_one_row_is_left_out(tmp_path: Path) -> None:
    whole = generate(images=60, patients=25, size=32)
    patients = np.array(whole.patients)
    one, other = (
        np.flatnonzero(patients == patients[0])[0],
        np.flatnonzero(patients != patients[0])[0],
    )
    code = np.arange(len(whole))
    code[other] = code[one]
    grouped = replace(whole, duplicates=code)
    lost = next(row for row in np.flatnonzero(patients == patients[other]).tolist() if row != other)
    rest = grouped.leave_out({lost: ("unreadable-image", "")})
    assert sides_by_id(rest).items() <= sides_by_id(grouped).items()


def test_the_sides_of_a_run_ignore_what_it_has_skipped(tmp_path: Path) -> None:
    whole = generate(images=60, patients=25, size=32)
    split = folds(whole)[0]
    run = tmp_path / "run"
    run.mkdir()
    lost = {int(split.train[0]), int(split.test[0])}
    side = {
        whole.ids[row]: name
        for name, rows in split.sides().items()
        for row in rows.tolist()
        if row not in lost
    }
    history = pd.DataFrame({"id": [name for name in side if side[name] == "train"]})
    history.to_csv(run / "history.csv", index=False)
    others = [(name, where) for name, where in side.items() if where != "train"]
    pd.DataFrame(others, columns=["id", "side"]).to_csv(run / "held_out.csv", index=False)
    with refuses("no_match", "splits", says="lacks"):
        read_splits(run, whole)
    pd.DataFrame({"id": [whole.ids[row] for row in lost], "reason": ""}).to_csv(
        run / "skipped.csv", index=False
    )
    again = read_splits(run, whole)[0]
    assert again.train.tolist() == [row for row in split.train.tolist() if row not in lost]
    assert again.test.tolist() == [row for row in split.test.tolist() if row not in lost]
    # and the other way round: the data lack what the file has
    rest = whole.leave_out({int(split.validation[0]): ("unreadable-image", "")})
    assert len(read_splits(run, rest)[0].validation) == len(split.validation) - 1
