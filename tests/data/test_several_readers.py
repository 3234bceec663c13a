"""Tables with several readers: which columns they are, what is left out and said, and the consensus
as a manifest."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from data.test_tables import table
from refusals import refuses
from srjt.data import read, read_readings
from srjt.data.sources.readings import NO_READER, describe_readers
from srjt.data.sources.table import write_table

LONG = "image,reader,grade,patient\na.png,Kim,0,p\na.png,Lee,0,p\nb.png,Kim,2,q\nb.png,Lee,2,q\nc.png,Kim,1,q\n"
WIDE = "image,grade_Kim,grade_Lee,patient\na.png,0,0,p\nb.png,2,2,q\nc.png,1,,q\n"


def triples(path: Path | pd.DataFrame, **how: object) -> set[tuple[str, str, str]]:
    """{(item, reader, grade)} of a table."""
    r = read_readings(path, **how).readings  # type: ignore[arg-type]
    rows = zip(r.item.tolist(), r.reader.tolist(), r.grade.tolist(), strict=True)
    return {(r.items[item], r.readers[reader], r.grades[grade]) for item, reader, grade in rows}


def test_long_and_wide_tables_hold_the_same_readings(tmp_path: Path) -> None:
    long, wide = table(tmp_path, LONG), table(tmp_path, WIDE, "wide.csv")
    assert triples(long) == triples(wide)
    assert len(triples(long)) == 5
    for path in (long, wide):
        readings = read_readings(path).readings
        assert readings.readers == ["Kim", "Lee"]
        assert readings.groups == ["p", "q", "q"]
    said = [
        describe_readers(found.readings, found.columns)
        for found in map(read_readings, (long, wide))
    ]
    assert said[0] == "2 readers (column reader), 1 to 2 readings of each image."
    assert "columns grade_Kim, grade_Lee" in said[1]


@pytest.mark.parametrize(
    "columns",
    [
        ("reader1", "reader2"),
        ("Kim_score", "Lee_score"),
        ("Mayo (Kim)", "Mayo (Lee)"),
        ("rater A", "rater B"),
        ("label.1", "label.2"),
    ],
)
def test_columns_of_readers_are_recognised(columns: tuple[str, str]) -> None:
    first, second = columns
    frame = pd.DataFrame(
        {"image": ["a", "b"], first: [0, 1], second: [1, 0], "grade_date": ["x", "y"]}
    )
    assert len(read_readings(frame).readings) == 4


def test_columns_are_given_by_repetition_or_by_a_pattern() -> None:
    frame = pd.DataFrame({"image": ["a", "b"], "x1": [0, 1], "x2": [1, 0], "y": [1, 1]})
    both = triples(frame, grade_column=["x1", "x2"])
    assert both == triples(frame, grade_column="x*")
    assert {reader for _, reader, _ in both} == {"x1", "x2"}
    with refuses("missing_column", says="'x3'"):
        read_readings(frame, grade_column=["x1", "x3"])
    with refuses("missing_column", "grade_column", says="x1, x2"):
        read_readings(frame)


def test_items_come_before_images_and_images_are_resampled() -> None:
    frame = pd.DataFrame(
        {
            "item": ["i#A", "i#B", "j#A"],
            "image": ["i", "i", "j"],
            "reader": ["x"] * 3,
            "grade": [0, 1, 1],
        }
    )
    found = read_readings(frame)
    assert found.readings.items == ["i#A", "i#B", "j#A"]
    assert found.readings.groups == ["i", "i", "j"]
    assert any("3 items" in note for note in found.notes)


def test_a_reference_is_recognised_and_said() -> None:
    frame = pd.DataFrame({"image": list("aabb"), "reader": list("xyxy"), "grade": [0, 1, 2, 2]})
    frame["histology"] = ["", "1", "0", "2"]
    found = read_readings(frame)
    assert found.readings.reference.tolist() == [1, -1]
    assert [problem.kind for problem in found.problems] == ["conflicting-reference"]
    assert "reference: column 'histology'; images with a trusted grade: 1" in found.notes


def test_dates_are_read_and_day_and_month_are_not_guessed() -> None:
    frame = pd.DataFrame({"image": list("abcd"), "reader": ["x"] * 4, "grade": [0, 1, 0, 1]})
    iso = read_readings(frame.assign(date=["2024-05-01", "2024-06-01T12:00:00Z", "", "soon"]))
    times = iso.readings.times
    assert str(times[1]) == "2024-06-01T12:00:00"
    assert np.isnat(times[2:]).all()
    assert "readings without a date that can be read: 2" in iso.notes
    european = read_readings(
        frame.assign(date=["31/05/2024", "01/06/2024", "02/06/2024", "03/06/2024"])
    )
    assert str(european.readings.times[1]).startswith("2024-06-01")
    with refuses("ambiguous", "date_column"):
        read_readings(frame.assign(date=["01/05/2024", "01/06/2024", "02/06/2024", "03/06/2024"]))
    with refuses("wrong_values", "date_column", says="'later'"):
        read_readings(frame.assign(date=["later"] * 4))


def test_a_reading_that_is_repeated_with_its_date_counts_once() -> None:
    frame = pd.DataFrame({"image": list("aaab"), "reader": ["x"] * 4, "grade": [0, 0, 0, 1]})
    frame["date"] = ["2024-05-01", "2024-05-01", "2024-05-02", "2024-05-01"]
    found = read_readings(frame)
    assert len(found.readings) == 3  # the second reading of another day is kept
    assert [problem.kind for problem in found.problems] == ["duplicate-row"]
    assert len(read_readings(frame.drop(columns="date")).readings) == 4


def test_a_grade_outside_the_scale_is_left_out_and_named() -> None:
    frame = pd.DataFrame({"image": list("abc"), "grade_kim": [0, 1, 2], "grade_lee": [1, 9, 2]})
    with refuses("grades_with_gap", "grades"):
        read_readings(frame)
    found = read_readings(frame, grades=["0", "1", "2"])
    assert len(found.readings) == 5
    (problem,) = found.problems
    assert problem.kind == "invalid-grade"
    assert "lee: '9' is not one of 0, 1, 2; this reading is left out" in problem.detail


def test_readers_without_a_name_and_tables_without_readers() -> None:
    frame = pd.DataFrame({"image": list("aab"), "reader": ["x", "", ""], "grade": [0, 1, 1]})
    found = read_readings(frame)
    assert found.readings.readers == ["x", NO_READER]
    assert any(note.endswith(f"of one, {NO_READER!r}: 2") for note in found.notes)
    alone = read_readings(frame.drop(columns="reader"))
    assert alone.readings.readers == [NO_READER]
    assert (
        "no column of readers: they count as different readers who are equally good" in alone.notes
    )


@pytest.mark.parametrize(
    ("frame", "refused"),
    [
        ({"image": ["a"], "reader": ["x"], "grade": [""]}, ("too_few", "", "No sample has")),
        (
            {"image": ["", ""], "reader": ["x", "y"], "grade": [0, 1]},
            ("missing_column", "image_column", "names its image"),
        ),
        ({"reader": ["x"], "grade": [0]}, ("missing_column", "image_column", "looks like the")),
        ({"image": [], "reader": [], "grade": []}, ("too_few", "", "no rows")),
        ({"image": ["a"], "reader": ["x"], "grade": [0]}, ("too_few", "", "Only one grade")),
    ],
)
def test_tables_that_cannot_be_used_are_one_sentence(
    frame: dict[str, list[object]], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        read_readings(pd.DataFrame(frame))


@pytest.mark.parametrize("text", [LONG, WIDE])
def test_the_consensus_has_one_row_per_image(tmp_path: Path, text: str) -> None:
    reading = read(table(tmp_path, text), several_readings="consensus")
    manifest = reading
    assert manifest.ids == ["a.png", "b.png", "c.png"]
    assert manifest.labels.tolist() == [0, 2, 1]
    assert manifest.patients == ["p", "q", "q"]
    assert manifest.table["readings"].tolist() == ["2", "2", "1"]
    assert manifest.posterior.sum(axis=1) == pytest.approx(1)
    assert reading.report.readings.items == manifest.ids
    assert "reader" not in manifest.table


def test_the_posterior_survives_selection_and_saving_but_not_injected_noise(tmp_path: Path) -> None:
    manifest = read(table(tmp_path, LONG), several_readings="consensus")
    write_table(manifest, tmp_path / "saved.csv")
    again = read(tmp_path / "saved.csv")
    for other in (again, manifest.select([0, 1, 2])):
        assert other.posterior == pytest.approx(manifest.posterior)
    assert manifest.select([2]).posterior == pytest.approx(manifest.posterior[2:])  # type: ignore[index]
    assert manifest.with_noisy_labels([1, 1, 1]).posterior is None


def test_a_table_with_columns_of_readers_alone_says_what_to_do(tmp_path: Path) -> None:
    path = table(tmp_path, WIDE)
    with refuses("missing_option", "several_readings"):
        read(path)
    assert read(path, grade_column="grade_Kim").labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"several_readings": "majority"}, ("unknown_name", "several_readings", "'majority'")),
        ({"reader_column": "reader"}, ("missing_option", "reader_column")),
        (
            {"grade_column": ["grade", "reader"]},
            ("missing_option", "grade_column"),
        ),
    ],
)
def test_options_without_effect_are_errors(
    tmp_path: Path, options: dict[str, str], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        read(table(tmp_path, LONG), **options)  # type: ignore[arg-type]


def test_an_image_without_a_usable_reading_is_reported(tmp_path: Path) -> None:
    path = table(tmp_path, LONG + "d.png,Kim,,q\n,Lee,1,q\n")
    reading = read(path, several_readings="consensus")
    assert len(reading) == 3
    assert sorted(problem.kind for problem in reading.report.problems) == [
        "missing-grade",
        "missing-image",
    ]


def test_features_take_the_readings_of_a_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", features=np.eye(3), ids=["a.png", "b.png", "c.png"])
    labels = table(tmp_path, LONG)
    manifest = read(tmp_path / "f.npz", labels=labels, several_readings="consensus")
    assert manifest.labels.tolist() == [0, 2, 1]
    assert manifest.posterior is not None
    with refuses("missing_option", "several_readings"):
        read(tmp_path / "f.npz", several_readings="consensus")


def test_all_missing_columns_of_readings_are_named_at_once() -> None:
    table = pd.DataFrame({"Bild": ["a.png"], "Leser": ["kim"], "Grad": [1]})
    with refuses("missing_column", "grade_column", ("`image_column`", "`grade_column`", "Bild")):
        read_readings(table)


def test_an_ambiguous_date_is_named() -> None:
    cells = ["yesterday", "01/02/2024"]
    table = pd.DataFrame({"image": ["a", "b"], "reader": "kim", "grade": [0, 1], "date": cells})
    with refuses("ambiguous", "date_column", "01/02/2024"):
        read_readings(table)
