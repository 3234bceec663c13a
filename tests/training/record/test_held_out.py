"""Predictions for the validation and test sides, kept with the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import srjt
from srjt.errors import SrjtError
from srjt.training.record.held_out import HeldOut, read_held_out, write_held_out

SETTINGS = {
    "network": "tiny",
    "image_size": 32,
    "crop": 28,
    "epochs": 1,
    "noise_rate": 0.2,
    "tune_cpu": False,
}


def some_side(*, patients: bool) -> HeldOut:
    rng = np.random.default_rng(0)
    names = ["a", "0\r7", 'é,\n"x', "\udce9"]
    return HeldOut(
        ids=names,
        probabilities=rng.dirichlet(np.ones(3), (2, 4)).astype(np.float32),
        labels=np.array([0, 1, 2, 1]),
        verified_labels=np.array([-1, 1, -1, -1]),
        patients=["1", "1", "01", "nan"] if patients else None,
        groups=["1", "1", "01", "nan"] if patients else None,
        images=["/a b.png", "/c,d.png", "/é.png", "/\udce9.png"] if patients else None,
        columns={"reader": ["A", "", "B", "nan"], "eye": ["L", "R", "é,\n", "L"]} if patients else {},
    )


def assert_equal(found: HeldOut, expected: HeldOut) -> None:
    for name, value in vars(expected).items():
        other = getattr(found, name)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(other, value)
            assert other.dtype == value.dtype
        else:
            assert other == value, name


@pytest.mark.parametrize("patients", [True, False])
def test_what_is_written_is_read_to_the_bit(patients: bool, tmp_path: Path) -> None:
    side = some_side(patients=patients)
    other = some_side(patients=False)
    write_held_out(tmp_path, {"validation": side, "test": other})
    again = read_held_out(tmp_path, networks=2, classes=3)
    assert_equal(again["validation"], side)
    assert_equal(again["test"], other)


def test_a_run_keeps_its_held_out_predictions(tmp_path: Path) -> None:
    data = srjt.data.synthetic.generate(images=80, patients=20, size=32)
    # a column may have the name of one of ours
    data.table["reader"], data.table["p1_0"], data.table["side"] = "A", np.arange(80) // 4, "left"
    kept = ["reader", "p1_0", "side", "patient"]
    run = srjt.train(
        data, out=tmp_path / "run", split=srjt.data.folds(data)[0], keep_columns=kept, **SETTINGS
    )
    assert set(run.held_out) == {"validation", "test"}
    again = srjt.load_run(tmp_path / "run")
    for name, side in run.held_out.items():
        assert_equal(again.held_out[name], side)
        rows = [data.ids.index(i) for i in side.ids]
        samples = data.select(rows)
        np.testing.assert_allclose(
            run.probabilities(samples.arrays)[0], side.probabilities, rtol=0, atol=1e-5
        )
        assert (side.labels == samples.labels).all()
        assert side.patients == samples.patients
        assert side.columns == {
            "reader": ["A"] * len(rows),
            "p1_0_source": [str(row // 4) for row in rows],
            "side_source": ["left"] * len(rows),
        }
        assert list(side.table) == [
            "id",
            "patient",
            "reader",
            "p1_0",
            "side",
        ]  # as `per` and `coverage_by` name them


def test_nothing_that_says_who_somebody_is(tmp_path: Path) -> None:
    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    planted = ("MRN", "ssn", "nhs_number", "phone", "email", "Geburtsdatum", "姓名", "eye")
    for name in planted:
        data.table[name] = [f"secret-{name}-{k // 4}" for k in range(40)]
    split = srjt.data.folds(data)[0]
    run = srjt.train(data, out=tmp_path / "run", split=split, **SETTINGS)
    assert all(side.columns == {} for side in run.held_out.values())
    assert srjt.load_run(tmp_path / "run").held_out["test"].patients == data.select(split.test).patients
    for file in filter(Path.is_file, (tmp_path / "run").rglob("*")):
        content = file.read_bytes()
        assert b"secret" not in content
        assert not [name for name in planted if len(name) > 3 and name.encode() in content], file
    with pytest.raises(SrjtError, match=r"Unknown column .*`keep_columns`.* 'eyes': did you mean 'eye'"):
        srjt.train(data, keep_columns=["eyes"], **SETTINGS)
    with pytest.raises(SrjtError, match=r"keep_columns was \(\) and is now \('eye',\)"):
        srjt.train(
            data,
            out=tmp_path / "run",
            split=split,
            keep_columns=["eye"],
            **SETTINGS,
        )


def test_without_sides_there_is_no_file(tmp_path: Path) -> None:
    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    run = srjt.train(data, out=tmp_path / "run", **SETTINGS)
    assert run.held_out == {}
    assert not (tmp_path / "run" / "held_out.csv").exists()
    assert srjt.load_run(tmp_path / "run").held_out == {}


@pytest.mark.parametrize(
    "damage", ["side,id\nvalidation,a\n", "\0", "side,id,grade,p1_0,p1_1,p1_2\nx,a,9,1,0,0\n"]
)
def test_a_damaged_file_is_an_error(damage: str, tmp_path: Path) -> None:
    (tmp_path / "held_out.csv").write_text(damage)
    with pytest.raises(SrjtError, match=r"held_out\.csv is damaged or not from srjt"):
        read_held_out(tmp_path, networks=1, classes=3)
