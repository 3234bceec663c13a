"""``srjt readers`` as a person runs it: what it prints and writes, and what it says about bad
input."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from srjt.auditing.blind_readings import worklist_lines
from srjt.auditing.review_log import Decisions
from srjt.data import read
from srjt.data.sources.readers_folder import read_readers_folder
from srjt.errors import SrjtError

from .conftest import Srjt


@pytest.fixture(autouse=True)
def quick(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither figures nor the intervals of the readers are tested here."""
    monkeypatch.setattr("srjt.readers.intervals._DRAWS", 2)


def simulated(
    *, items: int = 40, readers: int = 3, per_item: int = 2, classes: int = 4, seed: int = 0
) -> pd.DataFrame:
    """A long table: ``per_item`` random readers grade each item, mostly right, otherwise by one
    grade."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(classes, size=items)
    item = np.repeat(np.arange(items), per_item)
    reader = np.concatenate([draw.permutation(readers)[:per_item] for _ in range(items)])
    step = draw.choice([-1, 0, 0, 0, 1], size=len(item))
    grade = np.clip(truth[item] + step, 0, classes - 1)
    return pd.DataFrame(
        {
            "image": [f"{i:03d}.png" for i in item],
            "reader": [f"r{r}" for r in reader],
            "grade": grade,
            "patient": [f"p{i // 2}" for i in item],
        }
    )


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of 30 images."""
    folder = tmp_path / "images"
    folder.mkdir()
    for place in range(30):
        Image.new("L", (8, 8), place).save(folder / f"{place:02d}.png")
    return folder


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "readings.csv"
    simulated().to_csv(path, index=False)
    return path


def save(tmp_path: Path, frame: pd.DataFrame) -> Path:
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_it_prints_agreement_and_readers_on_one_screen(command: Srjt, table: Path) -> None:
    said = command.prints("readers", table)
    words = " ".join(said.split())
    assert "80 readings of 40 images by 3 readers." in words
    for part in ("Krippendorff’s α", "same grade", "reader ┃", "wrong consensus grades"):
        assert part in words
    assert lines_of(said) <= 24


def lines_of(text: str) -> int:
    return sum(len(textwrap.wrap(line, 80)) for line in text.splitlines())


@pytest.mark.slow
def test_the_folder_holds_page_consensus_readings_and_worklist(
    command: Srjt, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    said = command.prints("readers", table, "--out", out, "--next", 5)
    assert {path.name for path in out.iterdir()} == {
        "report.html", "readers.json", "consensus.csv", "readings.csv", "worklist.csv", "checksums.json",
        ".backup",
    }  # fmt: skip
    assert "srjt review" not in said  # there are no images to show
    assert lines_of(said.replace(str(tmp_path), "")) <= 24  # the list itself is in the file
    consensus = pd.read_csv(out / "consensus.csv")
    assert len(consensus) == 40
    assert consensus.filter(like="p_true_").sum(axis=1).to_numpy() == pytest.approx(
        np.ones(40), abs=1e-6
    )
    readings = pd.read_csv(out / "readings.csv")
    assert len(readings) == 80
    assert readings["probability"].between(0, 1).all()
    worklist = pd.read_csv(out / "worklist.csv")
    assert len(worklist) == 5
    assert set(worklist["image"]) <= set(readings["image"])
    (table.parent / worklist["image"][0]).touch()
    assert "srjt review" in command.prints("readers", table, "--out", out, "--next", 5, "--force")
    facts = json.loads((out / "readers.json").read_text())
    assert (sorted(facts["readers"]), facts["items"], facts["readings"]) == (
        ["r0", "r1", "r2"],
        40,
        80,
    )
    assert facts["grades"] == ["0", "1", "2", "3"]
    # the consensus is a table like any other, with the same labels as --several-readings consensus
    again = read(out / "consensus.csv", grades=facts["grades"])
    direct = read(table, several_readings="consensus", grades=facts["grades"])
    assert again.labels.tolist() == direct.labels.tolist()
    assert again.posterior == pytest.approx(direct.posterior, abs=1e-6)
    # its own output is read again
    assert command("readers", out / "readings.csv", "--out", out)[0] == 0


def test_a_folder_with_other_files_is_refused(command: Srjt, table: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    assert "contains other files" in command.refuses("readers", table, "--out", tmp_path / "full")


def test_the_page_is_there_although_nobody_reads_the_output(
    command: Srjt, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(page: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("srjt.cli.readers.show", show)
    assert command("readers", table, "--out", tmp_path / "out")[0] == 141
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_a_worklist_needs_a_number(command: Srjt, table: Path) -> None:
    assert "--per-reader needs --next" in command("readers", table, "--per-reader", 2)[2]
    assert "--next-for needs --next" in command("readers", table, "--next-for", "readers")[2]
    assert "One more reading of these helps most" in command("readers", table, "--next", 3)[1]


@pytest.mark.slow
def test_a_language_model_is_one_more_reader(command: Srjt, table: Path, tmp_path: Path) -> None:
    """Its answers are kept with the readings, and --next-for asks for what tells of the readers."""
    items = pd.read_csv(table)["image"].drop_duplicates()
    file = tmp_path / "model.csv"
    pd.DataFrame({"image": items, "answer": 1}).to_csv(file, index=False)
    out = tmp_path / "o"
    words = ("--answers", file, "--next", 4, "--next-for", "readers", "--out", out)
    assert command("readers", table, *words)[0] == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "the variance of the reader&#x27;s error rate" in page.replace("&#39;", "&#x27;")
    kept = pd.read_csv(out / "readings.csv")
    assert (kept["reader"] == "model").sum() == len(items)
    assert len(pd.read_csv(out / "worklist.csv")) == 4
    said = command("readers", table, "--next", 4, "--next-for", "model")[2]
    assert "--next-for model is about a network: add its --probabilities." in " ".join(said.split())


def test_nothing_is_left_to_read(command: Srjt, tmp_path: Path) -> None:
    """A crowd without names cannot be asked, and everybody has read everything."""
    crowd = save(tmp_path, simulated().drop(columns="reader"))
    status, said, _ = command("readers", crowd, "--next", 5, "--out", tmp_path / "o")
    assert "same grade 50% 40 images" in " ".join(said.split())  # of two readings of the same image
    assert status == 0
    assert "Nothing to read next" in said
    assert not (tmp_path / "o" / "worklist.csv").exists()


@pytest.mark.slow
def test_where_everybody_has_read_everything_a_new_reader_is_asked(
    command: Srjt, tmp_path: Path
) -> None:
    both = save(tmp_path, simulated(items=20, readers=2))
    out = tmp_path / "o"
    said = command.prints("readers", both, "--next", 3, "--out", out)
    assert "Every reader has read every image in doubt: ask a new reader." in " ".join(said.split())
    assert f"Worklist: {out / 'worklist.csv'} (3 readings: new reader 3)" in said
    folder, worklist = read_readers_folder(out), out / "worklist.csv"
    assert set(pd.read_csv(worklist)["reader"]) == {"new reader"}
    for name, problem in (("dora", "no image files"), ("r0", "has nothing for the reviewer 'r0'")):
        with pytest.raises(
            SrjtError, match=problem
        ):  # dora has three images, but there are no files to show
            worklist_lines(worklist, folder, reviewer=name)


def test_without_a_folder_it_says_how_to_get_the_lists(command: Srjt, tmp_path: Path) -> None:
    doubtful = save(tmp_path, simulated(items=20, seed=1))
    said = command("readers", doubtful)[1]
    assert "to a folder, use --out DIR. To list what to read next, add --next N." in said
    assert "add --next N" not in command("readers", doubtful, "--next", 3)[1]


@pytest.mark.slow
def test_a_folder_of_other_readings_is_spared(command: Srjt, table: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "o", save(tmp_path, simulated(seed=1))
    assert command("readers", table, "--out", out, "--next", 3)[0] == 0
    before = {file: file.read_bytes() for file in out.glob("*.*") if file.is_file()}
    assert command("readers", table, "--out", out, "--next", 3)[0] == 0  # the same once more
    for words, problem in (
        ((other,), "has the consensus of other readings"),
        ((table, "--next", 5), "is another worklist"),
    ):
        assert problem in command.refuses("readers", *words, "--out", out)
    assert {file: file.read_bytes() for file in out.glob("*.*") if file.is_file()} == before
    (out / "readers.json").write_text('{"format": 3}')  # of an earlier version
    refused = command.refuses("readers", other, "--out", out)
    assert ("has format 3" in refused, "or pass --force" in refused) == (True, True)
    assert command("readers", other, "--out", out, "--force")[0] == 0
    assert (out / "consensus.csv").read_bytes() != before[out / "consensus.csv"]


@pytest.mark.slow
def test_the_page_names_grades_and_only_readers_writes_it_again(
    command: Srjt, table: Path, tmp_path: Path
) -> None:
    out, names = tmp_path / "o", "0=none,1=mild,2=moderate,3=severe"
    assert command("readers", table, "--out", out, "--grade-names", names)[0] == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "2 (moderate)" in page
    assert json.loads((out / "readers.json").read_text())["grades"] == ["0", "1", "2", "3"]
    assert f"srjt readers {out}" in command.refuses("report", out)
    assert (out / "report.html").read_text(encoding="utf-8") == page
    assert (
        command("readers", table, "--out", out, "--grade-names", names.replace("mild", "slight"))[0]
        == 0
    )
    assert "1 (slight)" in (out / "report.html").read_text(encoding="utf-8")
    assert "there is none for 3" in command("readers", table, "--grade-names", "0=a,1=b,2=c")[2]


@pytest.mark.slow
def test_predictions_are_one_more_witness(command: Srjt, table: Path, tmp_path: Path) -> None:
    names = sorted(set(pd.read_csv(table)["image"]))
    chances = pd.DataFrame(np.full((len(names), 4), 0.25), columns=[f"p_{g}" for g in range(4)])
    file = tmp_path / "predictions.csv"
    chances.assign(image=[f"/images/{name}" for name in names]).to_csv(file, index=False)
    into = ("--probabilities", file, "--out", tmp_path / "o")
    assert [command("readers", table, *into)[0] for _ in range(2)] == [0, 0]
    chances.assign(image=names, p_0=0.4, p_1=0.1).to_csv(
        file, index=False
    )  # another network, the same name
    assert "of other readings or networks" in command("readers", table, *into)[2]
    assert command("readers", table, *into, "--force", "--next", 1)[1].count("(1 reading: ") == 1
    chances.assign(image="other.png").to_csv(file, index=False)
    assert "names none of the 40 images" in command("readers", table, "--probabilities", file)[2]
    chances.assign(image=names, quality=1, suggested=0).to_csv(file, index=False)
    assert "is the list of an audit" in command("readers", table, "--probabilities", file)[2]
    chances.drop(columns="p_3").assign(image=names).to_csv(file, index=False)
    assert "has no column 'p_3'" in command("readers", table, "--probabilities", file)[2]


# --- bad input: a sentence, no traceback, nothing lost
# ---------------------------------------------------------


SINGLE = simulated(readers=1, per_item=1)
ALONE = SINGLE.assign(reader="alone", image="other-" + SINGLE["image"])
SAME = simulated().drop_duplicates("image").assign(reader="same", grade=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (SINGLE, "Nothing can be learnt about the readers. Each image has one reading only."),
        (SINGLE.assign(reader=["anna", "bo"] * 20), "No image was read by two readers"),
        (pd.concat([simulated(), ALONE]), ""),
        (
            pd.concat([simulated(), SAME]),
            "Always the same grade, which says nothing about an image: same (2).",
        ),
        (pd.concat([simulated(), simulated().head(10)]), "same grade, read again 100%"),
        (simulated().assign(histology=[0] * 10 + [None] * 70), "equal to 5 trusted grades"),
    ],
)
def test_odd_tables_have_a_page_too(
    command: Srjt, tmp_path: Path, frame: pd.DataFrame, sentence: str
) -> None:
    said = command.prints(
        "readers", save(tmp_path, frame), "--grades", "0,1,2,3", "--out", tmp_path / "o"
    )
    assert sentence in " ".join(said.split())
    assert (tmp_path / "o" / "report.html").exists()


@pytest.mark.slow
def test_names_are_neither_run_nor_interpreted(command: Srjt, tmp_path: Path) -> None:
    frame = simulated()
    frame["reader"] = frame["reader"].map(
        {"r0": "=cmd()", "r1": "<script>alert(1)</script>", "r2": "[red]x\x1b[31m"}
    )
    frame["image"] = frame["image"].replace({"000.png": "=HYPERLINK(1)"})
    out = tmp_path / "o"
    said = command.prints("readers", save(tmp_path, frame), "--out", out, "--next", 10)
    assert "\x1b[31m" not in said
    assert "[red]x" in said
    page = (out / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    for name in ("consensus.csv", "readings.csv", "worklist.csv"):
        cells = pd.read_csv(out / name, dtype=str, keep_default_na=False).to_numpy().ravel()
        assert not any(str(cell).startswith("=") for cell in cells)


@pytest.mark.parametrize(
    ("text", "about", "says"),
    [
        ("image,reader,grade\na,x,low\na,y,high\n", "grades_without_order grades", ""),
        ("image,reader\na,x\n", "missing_column grade_column", ""),
        ("image,reader,grade\n", "unusable_samples", ""),
    ],
)
def test_tables_that_cannot_be_read_are_one_sentence(
    command: Srjt, tmp_path: Path, text: str, about: str, says: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    command.fails(about, says, "readers", path)


@pytest.mark.slow
def test_inspect_recognises_both_forms(command: Srjt, tmp_path: Path) -> None:
    long = simulated()
    wide = (
        long.pivot(index="image", columns="reader", values="grade")
        .add_prefix("grade_")
        .reset_index()
    )
    said = command.prints("data", "inspect", save(tmp_path, long), "--no-decode")
    assert "3 readers (column reader), 2 readings of each image." in said
    assert "The grades below are their consensus" in " ".join(said.split())
    (tmp_path / "table.srjt.yaml").unlink()  # how the other table is read
    said = command.prints("data", "inspect", save(tmp_path, wide), "--no-decode")
    assert "grade_r0, grade_r1, grade_r2" in " ".join(said.split())
    assert "The grades below are their consensus" in " ".join(said.split())


@pytest.mark.parametrize(
    ("grades", "about"), [("3", "too_few grades"), ("0,1,1,2", "not_unique grades")]
)
def test_a_study_does_not_begin_with_an_impossible_scale(
    command: Srjt, images: Path, grades: str, about: str
) -> None:
    asked = ("--ask", "anna,bo", "--grades", grades, "--next", 5, "--out", "study")
    assert command.refuses("readers", images, *asked).about == about
    assert not Path("study").exists()


def test_a_table_that_another_program_has_changed_is_restored(
    command: Srjt, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert command("readers", table, "--out", out)[0] == 0
    before = (out / "readings.csv").read_bytes()
    for damage in (before + b"x\n", None):
        (out / "readings.csv").unlink()
        if damage is not None:
            (out / "readings.csv").write_bytes(damage)
        for name in ("readers", "plan"):
            command.fails("damaged_file", f"srjt readers {out} --force", name, out)
        assert command("readers", out, "--force")[0] == 0
        assert (out / "readings.csv").read_bytes() == before
    # of an earlier version: the table itself helps
    shutil.rmtree(out / ".backup")
    (out / "readings.csv").write_bytes(before + b"x\n")
    command.fails("damaged_file", "its table and --force", "readers", out, "--force")
    assert command("readers", table, "--out", out, "--force")[0] == 0
    assert command("readers", out)[0] == 0


@pytest.fixture
def study(command: Srjt, images: Path) -> Path:
    """A study of 30 images, of which anna and bo have read the same 20."""
    asked = ("--ask", "anna,bo", "--grades", "0,1,2", "--next", 20, "--out", "study")
    assert command("readers", images, *asked)[0] == 0
    read_worklist("study", {"anna": 0, "bo": 1})
    assert command("readers", "study")[0] == 0
    return Path("study")


def read_worklist(study: Path | str, shifts: dict[str, int]) -> None:
    """These readers grade their images, each a little differently."""
    worklist = pd.read_csv(Path(study, "worklist.csv"))
    decisions = Decisions(Path(study, "decisions.sqlite"))
    for image, reader in worklist[["image", "reader"]].itertuples(index=False):
        if reader in shifts:
            number = int(image[:2])
            grade = min(number % 3 + shifts[reader] * (number % 5 == 0), 2)
            decisions.add_answer(image, purpose="read", reviewer=reader, grade=str(grade))
    decisions.close()


def asked_of(study: Path) -> pd.DataFrame:
    return pd.read_csv(study / "worklist.csv")


def test_new_images_of_a_study_are_for_all_its_readers(command: Srjt, study: Path) -> None:
    """As many readers as so far read each image, as the plan of the study wants."""
    assert "Only" not in command.prints("readers", study, "--next", 8)
    listed = asked_of(study)
    assert listed["reader"].value_counts().to_dict() == {"anna": 4, "bo": 4}
    assert (listed.groupby("image")["reader"].nunique() == 2).all()
    assert set(listed["image"]) <= set(pd.read_csv(study / "unread.csv")["id"])
    assert "Only 20 readings" in command.prints("readers", study, "--next", 500)
    assert len(asked_of(study)) == 20
    assert "Only 20 images" in command.prints("readers", study, "--again", 21)


def test_a_study_gets_one_more_reader(command: Srjt, study: Path) -> None:
    """The others keep what they still have to read; most is learnt from images that they read."""
    command("readers", study, "--next", 4)
    before = asked_of(study)
    command("readers", study, "--ask", "carl", "--next", 20)
    after = asked_of(study)
    assert after["reader"].value_counts().to_dict() == {"anna": 2, "bo": 2, "carl": 20}
    assert after.head(4)["image"].tolist() == before["image"].tolist()
    of_carl = set(after.loc[after["reader"] == "carl", "image"])
    assert of_carl == set(pd.read_csv(study / "readings.csv")["image"])
    read_worklist(study, {"carl": 0})
    command("readers", study)
    assert json.loads((study / "readers.json").read_text())["readers"] == ["anna", "bo", "carl"]
    command.fails("name_in_use ask", "carl", "readers", study, "--ask", "carl", "--next", 5)
    command.fails("missing_option ask", "--next", "readers", study, "--ask", "dan")
    command.fails("conflict ask", "--again", "readers", study, "--ask", "dan", "--again", 5)


def test_a_study_finds_its_images_in_another_folder(
    command: Srjt, study: Path, images: Path, tmp_path: Path
) -> None:
    images.rename(tmp_path / "moved")
    command("readers", study, "--next", 4)
    command.fails("no_match images", "none of the 30", "readers", study, "--images", study)
    assert command("readers", study, "--images", tmp_path / "moved", "--next", 4)[0] == 0
    found = read_readers_folder(study).images
    assert {Path(name).parent for name in found} == {tmp_path / "moved"}
    command.fails(
        "option_without_effect grades", "folder of a study", "readers", study, "--grades", "0,1"
    )


def test_a_folder_of_images_is_no_study(command: Srjt, images: Path) -> None:
    command.fails("wrong_file ask", "--ask", "readers", images)
    command.fails("wrong_file", "srjt readers", "plan", images)
    asked = ("--grades", "0,1", "--next", 5, "--out", "study")
    command.fails("wrong_values ask", "anna,bo", "readers", images, "--ask", ",", *asked)
    command.fails("not_unique ask", "anna", "readers", images, "--ask", "anna,bo,anna", *asked)


@pytest.mark.parametrize("names", ["anna", "anna,bo"])
def test_the_next_step_of_a_small_study_works(command: Srjt, images: Path, names: str) -> None:
    """A plan needs 20 images with two readers; until then more are read."""
    asked = ("--ask", names, "--grades", "0,1,2", "--next", 5, "--out", "study")
    assert "20 images" in command.prints("readers", images, *asked)
    for _ in range(3):
        readers = set(asked_of(Path("study"))["reader"])
        read_worklist("study", {reader: reader == "bo" for reader in readers})
        out = command.prints("readers", "study")
        if "srjt plan" in out:
            break
        words = out.partition("Next: srjt ")[2].split()
        assert command(*(word.replace("NAME", "bo") for word in words))[0] == 0
    assert command("plan", "study")[0] == 0
