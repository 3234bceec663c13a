"""``inspect_source``: columns by what they hold, grades that are typing errors, and all problems in
one go."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from refusals import refuses
from srjt.data.inspection import inspect_source
from srjt.reports.pages.inspection import inspection_page

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a table of 40 images; ``columns`` replace or extend the usual ones, None leaves one
    out."""

    def write(*, folder: str = "images", **columns: object) -> Path:
        (tmp_path / folder).mkdir(exist_ok=True)
        names = [f"{row:03d}.png" for row in range(40)]
        for row, name in enumerate(names):
            pixels = np.random.default_rng(row).integers(0, 255, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / name)
        table = {
            "image": names,
            "grade": [str(row % 4) for row in range(40)],
            "patient": [f"p{row // 2}" for row in range(40)],
        }
        table |= columns  # type: ignore[arg-type]
        path = tmp_path / "labels.csv"
        pd.DataFrame({name: cells for name, cells in table.items() if cells is not None}).to_csv(
            path, index=False
        )
        return path

    return write


def names() -> list[str]:
    return [f"{row:03d}.png" for row in range(40)]


def graded(**others: str) -> list[str]:
    """Grades 0 to 3, with others in some rows: ``row7="44"``."""
    cells = [str(row % 4) for row in range(40)]
    for row, cell in others.items():
        cells[int(row[3:])] = cell
    return cells


def test_the_usual_names_need_no_option(make: Make) -> None:
    found = inspect_source(make(), {})
    assert found.options == {}
    assert found.guessed == ()
    assert found.unusable == []
    assert found.sizes == {(32, 24): 40}


def test_columns_are_found_by_what_they_hold(make: Make) -> None:
    path = make(
        folder="raw", image=None, grade=None, patient=None, id=list(range(40)), leaf_photo=names(),
        how_bad=graded(), SubjectNo=[row // 2 for row in range(40)], age=[20 + row for row in range(40)],
    )  # fmt: skip
    found = inspect_source(path, {})
    assert found.options == {
        "image_column": "leaf_photo", "images": path.parent / "raw", "patient_column": "SubjectNo",
        "grade_column": "how_bad",
    }  # fmt: skip
    assert "those of 'id' are not" in found.guessed[0]
    assert found.manifest.class_counts.tolist() == [10, 10, 10, 10]


def test_names_without_a_suffix_are_found_in_a_folder_of_any_name(make: Make) -> None:
    path = make(folder="fotos", image=None, number=[f"{row:03d}" for row in range(40)])
    found = inspect_source(path, {})
    assert found.options == {"image_column": "number", "images": path.parent / "fotos"}
    assert found.unusable == []


@pytest.mark.slow
def test_a_column_that_may_be_the_patients_is_named_and_not_assumed(make: Make) -> None:
    cases = [f"F{row // 2}" for row in range(40)]
    path = make(patient=None, Fall=cases, eye=["l", "r"] * 20, visit=list(range(40)))
    found = inspect_source(path, {})
    assert found.perhaps_patients == ("Fall",)
    assert found.manifest.patients is None
    assert any("--patient-column Fall." in text for text in inspection_page(found).warnings)
    assert inspect_source(path, {"patient_column": "Fall"}).perhaps_patients == ()


@pytest.mark.parametrize("name", ["pat_id", "PatientNo", "subject"])
def test_patients_are_found_by_a_word_in_the_name(make: Make, name: str) -> None:
    path = make(patient=None, **{name: [f"F{row // 2}" for row in range(40)]})
    assert len(set(inspect_source(path, {}).manifest.patients)) == 20


@pytest.mark.parametrize("name", ["pat_sex", "patient_age", "pt_score"])
def test_what_is_known_about_patients_does_not_name_them(make: Make, name: str) -> None:
    numbers = [str(20 + row % 17) for row in range(40)]
    assert inspect_source(make(patient=None, **{name: numbers}), {}).manifest.patients is None
    both = make(patient=None, **{name: numbers}, pat_id=[f"F{row // 2}" for row in range(40)])
    assert len(set(inspect_source(both, {}).manifest.patients)) == 20


def test_what_is_asked_is_not_guessed(make: Make) -> None:
    path = make(grade=None, badness=graded(), ugliness=graded(row3="1"))
    assert inspect_source(path, {"grade_column": "ugliness"}).options == {
        "grade_column": "ugliness"
    }


def test_two_columns_that_may_be_the_grade_are_for_a_person_to_choose(make: Make) -> None:
    found = inspect_source(make(grade=None, badness=graded(), ugliness=graded(row3="1")), {})
    assert not found.graded
    assert "It may be one of 'badness', 'ugliness'" in found.unresolved[0]


def test_the_line_of_a_typing_error_is_named(make: Make) -> None:
    found = inspect_source(make(grade=graded(row7="33")), {})
    assert found.options == {"grades": ("0", "1", "2", "3")}
    assert found.guessed == ("grades: 0, 1, 2, 3; probably typing errors: line 9 has '33'",)
    assert [(problem.kind, problem.detail) for problem in found.unusable] == [
        ("invalid-grade", "line 9: '33' is not one of 0, 1, 2, 3")
    ]


@pytest.mark.slow
def test_a_grade_that_does_not_occur_is_no_typing_error(make: Make) -> None:
    cells = ["5" if cell == "3" else cell for cell in graded()]
    found = inspect_source(make(grade=cells), {})
    assert "none of 3, 4" in found.unresolved[0]
    assert found.proposed == {"grades": ("0", "1", "2", "3", "4", "5")}
    assert inspect_source(found.source, found.proposed).graded


def test_the_order_of_names_is_proposed_and_not_assumed(make: Make) -> None:
    words = ["severe", "none", "mild", "moderate"]
    cells = [words[row % 4] for row in range(40)]
    cells[11] = "moderat"
    found = inspect_source(make(grade=cells), {})
    assert found.proposed == {"grades": ("none", "mild", "moderate", "severe")}
    assert any(
        problem.where == "line 13" and "perhaps 'moderate'" in problem.detail
        for problem in found.unusable
    )
    assert "grades" not in found.options


def test_all_problems_are_found_at_once(make: Make) -> None:
    path = make(image=None, leaf_photo=names(), grade=graded(row7="33", row9=""))
    folder = path.parent / "images"
    (folder / "000.png").unlink()
    (folder / "001.png").write_bytes((folder / "001.png").read_bytes()[:100])
    (folder / "003.png").write_bytes((folder / "002.png").read_bytes())
    found = inspect_source(path, {})
    kinds = {problem.kind for problem in found.problems}
    assert kinds >= {
        "invalid-grade", "missing-grade", "missing-image", "unreadable-image", "identical-images-other-grade",
    }  # fmt: skip
    assert found.pairs.tolist() == [
        [found.manifest.ids.index("002.png"), found.manifest.ids.index("003.png")]
    ]
    assert len(found.usable) == 36
    assert found.usable.left_out_rows is not None
    assert len(found.usable.left_out_rows) == 4
    page = inspection_page(found)
    assert page.title == "4 of 40 rows cannot be used"
    slugs = [section.slug for section in page.sections]
    assert slugs == ["problems", "grades", "duplicates", "patients", "sizes", "how"]


def test_images_are_checked_although_the_grades_are_not_known(make: Make) -> None:
    path = make(grade=["b" if row % 2 else "a" for row in range(40)])
    (path.parent / "images" / "000.png").unlink()
    found = inspect_source(path, {})
    assert {problem.kind for problem in found.unusable} == {"unknown-grades", "missing-image"}
    assert "not known yet" in inspection_page(found).title


def test_without_images_and_grades_both_are_said(make: Make) -> None:
    path = make(image=None, grade=None, note=["x"] * 40)
    with refuses("missing_column", "image_column", says="`grade_column`"):
        inspect_source(path, {})


@pytest.mark.slow
def test_shapes_that_a_square_would_change_are_said(make: Make) -> None:
    sentence = "In 100% of the images one side is more than a quarter longer"
    assert any(
        warning.startswith(sentence)
        for warning in inspection_page(inspect_source(make(), {})).warnings
    )


def twice_read(path: Path, *, reader: str) -> Path:
    """Every image by Ana and by Bo, who differ on the first ten."""
    table = pd.read_csv(path, dtype=str)
    second = table.assign(grade=["3" if k < 10 else g for k, g in enumerate(table["grade"])])
    both = pd.concat([table.assign(**{reader: "Ana"}), second.assign(**{reader: "Bo"})])
    both.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("reader", ["doctor", "rater", "annotator", "reader"])
def test_a_column_of_readers_makes_a_consensus(make: Make, reader: str) -> None:
    """Otherwise the images on which they differ would be left out."""
    found = inspect_source(twice_read(make(), reader=reader), {})
    assert found.options == {"several_readings": "consensus"}
    assert len(found.manifest) == 40
    assert not found.unusable
    assert "The grades below are their consensus." in found.readers


def test_a_column_of_readers_that_is_not_found_is_asked_for(make: Make) -> None:
    path = twice_read(make(), reader="Arzt")
    found = inspect_source(path, {})
    assert "several_readings" not in found.options
    assert any("--reader-column COLUMN" in sentence for sentence in found.readers)
    named = inspect_source(path, {"reader_column": "Arzt"})
    assert named.options["several_readings"] == "consensus"
    assert not any("--reader-column" in sentence for sentence in named.readers)
    wide = make(anna=graded(), bo=graded(row1="2"), grade=None)
    readers = inspect_source(wide, {"grade_column": ("anna", "bo")}).readers
    assert not any("--reader-column" in sentence for sentence in readers)
