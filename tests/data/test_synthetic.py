"""The synthetic data set: reproducible to the byte, sortable by eye, and honest about its
arguments."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from hypothesis import given, strategies as st
from PIL import Image
from typer.testing import CliRunner

from refusals import refuses
from srjt.cli.data import synthetic
from srjt.data.manifest import Manifest
from srjt.data.synthetic import _population, generate, read_labels, stamp, write


@pytest.fixture(scope="module")
def data() -> Manifest:
    return generate(images=160, patients=20, size=32, seed=3)


def digest(manifest: Manifest) -> str:
    severity = manifest.table["severity"].to_numpy().tobytes()
    return hashlib.sha256(
        manifest.arrays.tobytes() + severity + "".join(manifest.ids).encode()
    ).hexdigest()


def test_bytes_are_the_ones_of_the_first_release() -> None:
    # Published results name this data by its seed: a change here changes them all.
    assert digest(generate(images=24, patients=6, size=32, seed=7)) == (
        "58d40a0cdbcd1da0bc758fb95996e2a5e6aff1ecadf6f9c3ca0b34a62bc57a86"
    )


def test_every_seed_and_row_is_another_image() -> None:
    images = [
        image for s in (0, 1) for image in generate(images=8, patients=4, size=32, seed=s).arrays
    ]  # type: ignore[union-attr]
    assert len({image.tobytes() for image in images}) == 16


def test_size_changes_the_resolution_and_not_the_scene() -> None:
    small, large = (generate(images=12, patients=4, size=s).arrays for s in (32, 128))
    shrunk = large.reshape(12, 32, 4, 32, 4, 3).mean((2, 4))
    for a, b in zip(small, shrunk, strict=True):
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.9


def test_table(data: Manifest) -> None:
    assert data.arrays.shape == (160, 32, 32, 3)
    assert data.arrays.dtype == np.uint8
    assert list(data.table.columns) == ["id", "image", "grade", "patient", "severity"]
    assert data.grades == ("0", "1", "2", "3")
    assert data.table["patient"].nunique() == 20
    assert (data.labels == np.floor(data.table["severity"])).all()
    assert data.table["image"].is_unique
    folders = data.table["image"].str.partition("/")[0]
    assert (folders == data.table["patient"]).all()


def test_mild_grades_are_common_and_images_of_a_patient_alike() -> None:
    patient, severity = _population(1200, 120, 4, 0)
    shares = np.bincount(severity.astype(int)) / 1200
    assert shares == pytest.approx([0.54, 0.27, 0.11, 0.08], abs=0.03)
    within = pd.Series(severity).groupby(patient).std().mean()
    assert 0.3 * severity.std() < within < 0.7 * severity.std()


@given(st.integers(2, 10), st.integers(1, 60), st.integers(1, 12), st.integers(0, 2**32))
def test_every_grade_and_every_patient_is_present(
    grades: int, patients: int, each: int, seed: int
) -> None:
    images = max(grades, patients * each)
    patient, severity = _population(images, patients, grades, seed)
    counts = np.bincount(severity.astype(int), minlength=grades)
    assert set(patient) == set(range(patients))
    assert len(counts) == grades
    assert (np.diff(counts) <= 0).all()
    assert counts.min() >= min(5, images // grades)


@pytest.mark.parametrize(
    ("images", "patients", "grades"), [(1200, 120, 4), (1200, 120, 10), (120, 12, 4)]
)
def test_every_grade_has_patients_for_five_folds(images: int, patients: int, grades: int) -> None:
    for seed in range(5):
        patient, severity = _population(images, patients, grades, seed)
        assert all(len(set(patient[severity.astype(int) == g])) >= 5 for g in range(grades))


def test_redness_follows_severity_but_does_not_give_it_away(data: Manifest) -> None:
    red, green, _ = np.moveaxis(data.arrays.astype(float), 3, 0)
    redness = pd.Series((red - green).mean((1, 2)))
    assert 0.5 < redness.rank().corr(data.table["severity"].rank()) < 0.95


@pytest.mark.parametrize(
    ("wrong", "refused"),
    [
        ({"images": 3}, ("out_of_bounds", "", "not 3")),
        ({"images": 10, "patients": 11}, ("out_of_bounds", "", ("10", "not 11"))),
        ({"size": 31}, ("out_of_bounds", "", ("32", "256"))),
        ({"grades": 11}, ("out_of_bounds", "", "10")),
        ({"seed": -1}, ("out_of_bounds", "", "0 or larger")),
    ],
)
def test_impossible_arguments_are_refused(wrong: dict[str, int], refused: tuple[str, ...]) -> None:
    with refuses(*refused):
        generate(**wrong)


def test_written_and_read_back(data: Manifest, tmp_path: Path) -> None:
    labels = write(data, tmp_path / "new" / "folder")
    table = pd.read_csv(labels)
    assert list(table.columns) == ["image", "grade", "patient", "severity"]
    pd.testing.assert_frame_equal(table, data.table.drop(columns="id"), check_dtype=False)
    for name, pixels in zip(table["image"], data.arrays, strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(labels.parent / name)), pixels)
    assert len(list(labels.parent.rglob("*.png"))) == len(data)


def test_write_refuses_what_it_cannot_do(data: Manifest, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with refuses("folder_in_use"):
        write(data, tmp_path)
    with refuses("wrong_file"):
        write(data, tmp_path / "notes.txt")
    with refuses("unwritable_file", says="below"):
        write(data, tmp_path / "notes.txt" / "below")
    with refuses("unsupported", says="in memory"):
        write(Manifest(table=data.table, grades=data.grades), tmp_path / "new")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_command_writes_and_names_the_next_one(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(synthetic)
    arguments = [
        str(tmp_path / "uc"),
        "--images",
        "12",
        "--patients",
        "3",
        "--size",
        "32",
        "--grades",
        "3",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(tmp_path / "uc" / "labels.csv")) == 12
    assert (
        result.stdout.splitlines()[-1]
        == f"Next: srjt data inspect {tmp_path / 'uc' / 'labels.csv'}"
    )


def test_a_dot_is_drawn_where_it_is_and_clipped_at_the_border() -> None:
    canvas = np.zeros((32, 32), np.float32)
    stamp(canvas, np.array([[0.5, 0.25], [0.0, 1.0], [1.5, 0.5]]), 0.1)
    assert canvas[16, 8] == 1
    assert canvas[0, 31] > 0.9
    assert canvas[31].max() == 0  # the last dot lies outside
    y, x = np.nonzero(canvas)
    near = np.minimum(np.hypot(y + 0.5 - 16, x + 0.5 - 8), np.hypot(y + 0.5, x + 0.5 - 32))
    assert near.max() < 3.2


@pytest.mark.slow
def test_a_reader_errs_near_boundaries_by_one_grade_and_to_one_side() -> None:
    severity = np.arange(4000) / 1000
    names = [f"{row}.png" for row in range(4000)]
    columns = {
        "id": names,
        "image": names,
        "grade": severity.astype(np.int64),
        "severity": severity,
    }
    data = Manifest(table=pd.DataFrame(columns), grades=("0", "1", "2", "3"))
    labels, true = read_labels(data, seed=5), data.labels
    wrong = labels != true
    assert 0.2 < wrong.mean() < 0.45
    assert (np.abs(labels - true)[wrong] == 1).mean() > 0.9
    from_upper = 1 - severity[1000:3000] % 1  # of grades 1 and 2, which have two neighbours
    wrong_low, wrong_high = (labels < true)[1000:3000], (labels > true)[1000:3000]
    assert wrong_high[from_upper < 0.25].mean() > 3 * wrong_high[from_upper > 0.75].mean()
    assert wrong_low[from_upper > 0.75].mean() > 3 * wrong_low[from_upper < 0.25].mean()
    middle = (true == 1) | (true == 2)  # they can err to both sides
    assert (labels < true)[middle].sum() > 1.5 * (labels > true)[middle].sum()
    assert (read_labels(data, seed=5) == labels).all()
    assert (read_labels(data, seed=6) != labels).any()
    assert (read_labels(data, bias=0.0, spread=0.0) == true).all()


def test_a_reader_needs_severities() -> None:
    data = generate(images=30, patients=6, size=32)
    without = replace(data, table=data.table.drop(columns="severity"))
    with refuses("unsupported", says="severity"):
        read_labels(without)
    with refuses("out_of_bounds", "spread", says="-1"):
        read_labels(data, spread=-1.0)
