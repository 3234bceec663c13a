"""``srjt predict``, ``srjt evaluate`` and ``srjt compare``."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from pathlib import Path

import pandas as pd
import pytest

from srjt.inference.evaluate import evaluate_sides
from srjt.reports.pages.evaluation import judgement
from srjt.training.trained import load_run

from .conftest import Srjt

# ``srjt predict`` as a person runs it.


def read(path: str = "predictions.csv") -> pd.DataFrame:
    return pd.read_csv(path, dtype={"grade": str})


def test_a_folder(command: Srjt, finished: Path, labelled: Path) -> None:
    code, out, err = command("predict", finished, labelled.parent)
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("Warning: Left out: ")
    assert str(labelled) in err  # the table beside the images
    assert str(labelled) in pd.read_csv("skipped.csv")["where"].tolist()
    table = read()
    assert len(table) == 120
    assert table.filter(regex="^p_").sum(axis=1).to_numpy() == pytest.approx(1.0, abs=1e-4)
    counts = table["grade"].value_counts()
    assert f"120 images: most often grade {counts.idxmax()}. Expect an answer to be " in out
    assert all(f"{counts.get(g, 0)}  {counts.get(g, 0) / 120:.0%}" in out for g in "0123")
    assert out.splitlines()[-1] == "The results are in predictions.csv."
    # as the run's own page: a few epochs do not learn to grade
    title, _ = judgement(evaluate_sides(load_run(finished, device="cpu"))["test"])
    assert title.startswith("No better than one grade for all")
    assert out.startswith(f"{title}. ")


@pytest.mark.slow
def test_one_image_several_and_a_table_give_the_same(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    images = [labelled.parent / name for name in pd.read_csv(labelled)["image"][:3]]
    assert command("predict", finished, images[0], "--out", "sub/one.csv")[0] == 0
    assert command("predict", finished, *images, images[0], "--out", "three.csv")[0] == 0
    assert command("predict", finished, labelled, "--out", "table.csv")[0] == 0
    one, three, table = read("sub/one.csv"), read("three.csv"), read("table.csv")
    assert (len(one), len(three), len(table)) == (1, 3, 120)
    assert one["image"].tolist() == [str(images[0])]
    numbers = [c for c in one if c not in ("image", "grade")]
    assert one[numbers].to_numpy() == pytest.approx(three[numbers][:1].to_numpy(), abs=1e-5)
    assert three[numbers].to_numpy() == pytest.approx(table[numbers][:3].to_numpy(), abs=1e-5)


def test_into_a_pipe(command: Srjt, finished: Path, labelled: Path) -> None:
    os.mkfifo("pipe")
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe").read_text()))
    reader.start()
    code, out, err = command("predict", finished, labelled, "--out", "pipe")
    if code:
        Path("pipe").write_text("")  # or the reader would wait for ever
    reader.join()
    assert (code, out) == (0, "")  # where a table streams, the summary keeps off standard output
    assert "The results are in pipe." in err
    assert received[0].count("\n") == 121
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (["--network", "3"], "unknown_name network", "'3'"),
        (["--decode", "mode"], "unknown_name decoding", "'mode'"),
        (["--precision", "int8"], "unknown_name precision", "'int8'"),
        (["--views", "3"], "out_of_bounds views", ""),
        (["--out", "/proc/x/y.csv"], "unwritable_file", "/proc/x/y.csv"),
        (["--on-bad-image", "ignore"], "unknown_name on_bad_image", "'ignore'"),
    ],
)
def test_mistakes(
    command: Srjt, finished: Path, labelled: Path, arguments: list[str], about: str, says: str
) -> None:
    command.fails(about, says, "predict", finished, labelled, *arguments)


def test_nothing_there(command: Srjt, finished: Path, labelled: Path, tmp_path: Path) -> None:
    assert "nowhere is not the folder of a run" in command.refuses("predict", "nowhere", labelled)
    assert "nowhere.png does not exist" in command.refuses("predict", finished, "nowhere.png")
    Path("empty").mkdir()
    assert "There are no images in empty" in command.refuses("predict", finished, "empty")
    Path("none.csv").write_text("image,grade\n")
    command.refuses("predict", finished, "none.csv")


def test_an_image_that_cannot_be_read(command: Srjt, finished: Path, labelled: Path) -> None:
    shutil.copytree(labelled.parent / "p000", "images")
    good = len(list(Path("images").iterdir()))
    Path("images/broken.png").write_bytes(b"not an image")
    code, _, err = command("predict", finished, "images")
    assert code == 2
    assert "broken.png" in err
    assert len(err.splitlines()) == 1
    assert not Path("predictions.csv").exists()
    code, out, err = command("predict", finished, "images", "--on-bad-image", "skip")
    assert code == 0
    assert f". {good} images:" in out
    assert err == "1 image could not be read (images/broken.png): see skipped.csv.\n"
    assert "images/broken.png" in Path("skipped.csv").read_text()
    assert len(read()) == good


def test_features_for_a_run_that_reads_images(command: Srjt, finished: Path) -> None:
    Path("features.npz").write_bytes(b"")
    err = command.refuses("predict", finished, "features.npz")
    assert "This run takes images, and features.npz is a file of arrays" in err


@pytest.mark.parametrize("verb", ["predict", "evaluate", "compare"])
def test_an_option_of_features_for_a_run_that_reads_images(
    verb: str, command: Srjt, finished: Path, labelled: Path
) -> None:
    samples = [finished, "--test", labelled] if verb == "compare" else [labelled]
    code, _, err = command(verb, finished, *samples, "--feature-columns", "f*")
    sentence = "--feature-columns is about features, and this run takes images: leave it out."
    assert (code, err) == (2, f"srjt: {sentence}\n")


def test_every_row_that_is_left_out_is_counted_and_named(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    rows = labelled.read_text().splitlines()[:59]
    source = labelled.parent / "some.csv"
    source.write_text("\n".join([*rows, rows[1], "short", ",,,,"]))
    try:
        code, _, err = command("predict", finished, source)
        assert code == 2
        assert (
            "1 row or image cannot be used (1 malformed-row; the first: line 61: 1 cell where the header has"
            in err
        )
        code, out, err = command("predict", finished, source, "--on-bad-image", "skip")
    finally:
        source.unlink()
    assert code == 0
    assert ". 58 images: " in out
    assert "Left out: 1 malformed-row (line 61); 1 duplicate-row" in err
    listed = pd.read_csv("skipped.csv")
    assert sorted(listed["kind"]) == ["duplicate-row", "malformed-row"]
    assert "line 2, line 60" in listed["detail"].tolist()


def test_formulas_in_file_names_are_reported(command: Srjt, finished: Path, labelled: Path) -> None:
    name = '=HYPERLINK("http:,,evil").png'
    shutil.copy(labelled.parent / pd.read_csv(labelled)["image"][0], name)
    code, _, err = command("predict", finished, name)
    assert code == 0
    assert (
        "predictions.csv has cells that a spreadsheet may run as formulas (1; the first is '=HYPERLINK"
        in err
    )
    assert read()["image"].tolist() == [name]  # the name of a file must stay its name


@pytest.mark.slow
def test_file_names_of_any_bytes_get_a_sentence(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    image = labelled.parent / pd.read_csv(labelled)["image"][0]
    os.makedirs("bytes")
    for name in ("bytes/a.png", os.fsdecode(b"bytes/caf\xe9.png")):
        shutil.copy(image, name)
    err = command.refuses("predict", finished, "bytes")
    assert "bytes/caf\\udce9.png: its name is not UTF-8: rename the file" in err
    _, out, _ = command("predict", finished, "bytes", "--on-bad-image", "skip")
    assert ". 1 image: " in out
    assert b"caf\xe9.png" in Path("skipped.csv").read_bytes()
    code, _, err = command("predict", finished, os.fsdecode(b"bytes/caf\xe9.png"), "--force")
    assert (code, "is not UTF-8 text: rename it" in err) == (2, True)


@pytest.mark.slow
def test_ranges_that_cannot_be(command: Srjt, finished: Path, labelled: Path) -> None:
    for wrong, about in (
        (["--coverage", "2"], "out_of_bounds coverage"),
        (["--coverage", "0.7", "--calibrate-on", labelled], "seen_in_training calibrate_on"),
        (["--coverage-by", "grade"], "missing_option coverage_by"),
        (["--coverage", "0.7", "--views", "2"], "unsupported views"),
        (["--coverage", "0.7", "--coverage-by", "split"], "missing_column calibrate_on"),
    ):
        command.fails(about, "", "predict", finished, labelled, *wrong, "--out", "never.csv")
        assert not Path("never.csv").exists()


@pytest.mark.slow
def test_ranges_per_patient_and_of_a_table_with_other_columns(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    table = pd.read_csv(labelled).rename(columns={"patient": "person", "grade": "severity"})
    table["eye"] = ["LR"[k % 2] for k in range(len(table))]
    other = labelled.parent / "other.csv"
    unseen = table[table["split"] != "train"]
    unseen.drop(columns=["split", "true_grade"]).to_csv(other, index=False)
    patients, eyes = unseen["person"].nunique(), len(unseen[["person", "eye"]].drop_duplicates())
    options = (
        "predict",
        finished,
        labelled,
        "--coverage",
        "0.7",
        "--per",
        "patient",
        "--label-noise",
        "none",
    )
    out = command.prints(*options, "--out", "patients.csv")
    ranges = pd.read_csv("patients.csv")
    assert list(ranges.columns[:5]) == ["patient", "images", "grade", "grade_low", "grade_high"]
    assert (
        (ranges["grade_low"] <= ranges["grade"]) & (ranges["grade"] <= ranges["grade_high"])
    ).all()
    assert "70% of new patients, each by the highest of its images" in out
    # the columns of both tables have the same names
    code, out, _ = command(
        "evaluate", finished, other, "--grade-column", "severity", "--patient-column", "person", "--per", "patient",
        "--per", "eye", "--coverage", "0.7", "--calibrate-on", other, "--label-noise", "none",
    )  # fmt: skip
    assert code == 0
    said = f"calibrated on {patients} patients ({eyes} answers of {len(unseen)} samples)"
    assert said in " ".join(out.split())
    assert "give --calibrate-on with it" in command.refuses(
        *options, "--per", "split", "--out", "never.csv"
    )
    assert not Path("never.csv").exists()


# ``srjt evaluate`` as a person runs it.


@pytest.mark.usefixtures("terminal")
def test_metrics_confusion_and_calibration(command: Srjt, finished: Path, labelled: Path) -> None:
    tested = pd.read_csv(labelled)["split"] == "test"
    out = command.prints("evaluate", finished, labelled, "--side", "test", "--out", "found.json")
    assert f" on {tested.sum()} images of " in " ".join(out.split())
    assert "Compared with true grades." in out
    for word in ("accuracy", "mean absolute error", "macro-F1", "quadratic κ", "recall"):
        assert word in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert len(out.splitlines()) <= 24
    assert len(out.splitlines()) <= 24
    found = json.loads(Path("found.json").read_text())
    assert command("predict", finished, labelled)[0] == 0
    predicted = pd.read_csv("predictions.csv")["grade"][tested]
    true = pd.read_csv(labelled)["true_grade"][tested]
    assert found["intervals"]["accuracy"]["value"] == pytest.approx((predicted == true).mean())
    assert found["intervals"]["mae"]["value"] == pytest.approx((predicted - true).abs().mean())
    for interval in found["intervals"].values():
        assert interval["low"] <= interval["value"] <= interval["high"]
    assert [sum(row) for row in found["confusion"]] == [
        int((true == grade).sum()) for grade in range(4)
    ]
    assert found["by_patient"] is True
    table = pd.read_csv(labelled)
    training = table.loc[table["split"] == "train", "grade"]
    naive = {
        "accuracy": (true == training.mode()[0]).mean(),
        "mae": (true - training.median()).abs().mean(),
    }
    for name, value in naive.items():
        assert found["naive"][name] == pytest.approx(value)
        assert f"one grade: {value:.3f}" in out
    worse = found["intervals"]["mae"]["value"] >= naive["mae"]  # which the grades are for
    assert out.startswith("No better than one grade for all") == worse


@pytest.mark.slow
def test_samples_that_were_learnt_from_get_no_score_unless_asked_for(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    table = pd.read_csv(labelled)
    learnt = int((table["split"] == "train").sum())
    err = command.refuses("evaluate", finished, labelled)
    assert f"trained on {learnt} of the 120 images" in err
    assert (
        f"add --splits {finished} to use its test side, or give images that the run has not seen"
        in err
    )
    code, out, err = command("evaluate", finished, labelled, "--side", "train")
    assert code == 0
    assert f" on {learnt} images" in out
    assert f"The run was trained on {learnt} of these {learnt} samples" in err
    table[table["split"] == "test"].to_csv("test.csv", index=False)
    assert "trained on" not in command.prints(
        "evaluate", finished, "test.csv", "--images", labelled.parent
    )


@pytest.mark.parametrize("verb", ["evaluate", "predict", "export", "report"])
def test_a_file_where_a_run_is_expected(command: Srjt, labelled: Path, verb: str) -> None:
    Path("old.csv").write_text("image,grade\n")
    err = command.refuses(verb, "old.csv", *([labelled] if verb in ("evaluate", "predict") else []))
    if verb != "report":  # which takes studies and audits too
        assert "old.csv is a file: give the folder of a run, which srjt train --out wrote." in err
    assert "NotADirectoryError" not in err


@pytest.mark.slow
def test_one_side_of_a_split(command: Srjt, finished: Path, labelled: Path) -> None:
    table = pd.read_csv(labelled)
    code, out, _ = command("evaluate", finished, labelled, "--side", "test")
    assert code == 0
    assert f" on {int((table['split'] == 'test').sum())} images of" in out
    assert "trained on" not in out
    assert command("data", "split", labelled, "--out", "folds.csv")[0] == 0
    folds = pd.read_csv("folds.csv")
    tested = int(((folds["fold"] == 1) & (folds["split"] == "test")).sum())
    for how in (["--fold", "1"], ["--splits", "folds.csv", "--fold", "1"]):
        err = command.refuses("evaluate", finished, labelled, *how)
        assert re.search(rf"trained on \d+ of the {tested} images", err)
    assert "test" in command.refuses("evaluate", finished, labelled, "--side", "tset")


# ``srjt compare`` as a person runs it.


@pytest.fixture
def other(finished: Path, tmp_path: Path) -> Path:
    """The same run with other predictions: those of the test side are turned around."""
    folder = tmp_path / "other"
    shutil.copytree(finished, folder)
    table = pd.read_csv(folder / "held_out.csv")
    columns = [f"p{k}_{c}" for k in (1, 2) for c in range(4)]
    turned = [f"p{k}_{c}" for k in (1, 2) for c in reversed(range(4))]
    table[columns] = table[turned].to_numpy()
    table.to_csv(folder / "held_out.csv", index=False, float_format="%.9g")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(
        json.dumps({**summary, "files": {}})
    )  # or it would be noticed
    (folder / "checksums.json").unlink()
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_two_runs(command: Srjt, finished: Path, other: Path) -> None:
    out = command.prints("compare", finished, other, "--out", "c.json", "--html", "c.html")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert f"No difference is shown between {other.name} and {finished.name}" in " ".join(
        out.split()
    )
    assert len(out.splitlines()) <= 24
    found = json.loads(Path("c.json").read_bytes())
    table = pd.read_csv(finished / "held_out.csv")
    assert found["samples"] == (table["side"] == "test").sum()
    assert found["runs"] == ["run", "other"]
    assert b"<svg" in Path("c.html").read_bytes()
    for file in ("--out", "c.json"), ("--html", "c.html"):
        code, _, err = command("compare", finished, other, *file)  # wrapped
        assert (code, "--force" in err) == (2, True)


@pytest.mark.slow
def test_bad_input(command: Srjt, finished: Path, other: Path, labelled: Path) -> None:
    for arguments, about in (
        ((finished,), "too_few"),
        ((finished, "nothing"), "wrong_file"),
        ((finished, other, "--out", "c.html"), "wrong_file out"),
        ((finished, other, "--test", "nothing.csv"), "missing_file"),
        ((finished, other, "--test", labelled), "seen_in_training"),
        ((finished, other, "--images", "."), "missing_option images"),
    ):
        command.fails(about, "", "compare", *arguments)
    (other / "held_out.csv").unlink()
    command.fails("no_split test", "other", "compare", finished, other)


# Pages.


def test_a_page_of_predictions(command: Srjt, finished: Path, labelled: Path) -> None:
    new = labelled.parent / "p000"
    names = "0=none,1=some,2=more,3=<b>much"
    out = command.prints(
        "predict", finished, new, "--html", "deep/new.html", "--grade-names", names
    )
    assert "The page is in deep/new.html." in out
    page = Path("deep/new.html").read_text()
    assert f"{len(pd.read_csv('predictions.csv'))} images: " in page
    assert "srjt predict" in page  # the command
    assert "3 (&lt;b&gt;much)" in page
    assert "<b>much" not in page


@pytest.mark.slow
def test_a_page_of_an_evaluation(command: Srjt, finished: Path, labelled: Path) -> None:
    out = command.prints("evaluate", finished, labelled, "--side", "test", "--html", "found.html")
    assert "The page is in found.html." in out
    page = Path("found.html").read_text()
    assert "Compared with true grades." in page
    assert "data:image/jpeg" in page  # examples
    assert "used to fit" not in page  # the test side was not learnt from


@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (
            ["--html", "there.html"],
            "file_exists overwrite",
            "there.html",
        ),
        (["--html", "here"], "wrong_file html", ""),
        (["--html", "same.csv", "--out", "same.csv"], "conflict html", ""),
        (["--out", "page.html"], "wrong_file out", "page.html"),
    ],
)
def test_mistakes_about_pages(
    command: Srjt, finished: Path, labelled: Path, arguments: list[str], about: str, says: str
) -> None:
    Path("there.html").write_text("mine")
    Path("here").mkdir()
    command.fails(about, says, "predict", finished, labelled, *arguments)
    assert Path("there.html").read_text() == "mine"


def test_a_page_that_cannot_be_written_loses_no_predictions(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    err = command.refuses(
        "predict", finished, labelled.parent / "p000", "--html", "/proc/x/new.html"
    )
    assert "/proc/x/new.html cannot be written" in err
    assert len(pd.read_csv("predictions.csv")) > 0


# Decisions, answers per patient and grade names.

NAMES = "0=none,1=doubtful,2=minimal,3=severe"


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def held_out(command: Srjt, labelled: Path) -> Path:
    """The test side as a table, with eyes; its images are beside ``labelled``."""
    table = pd.read_csv(labelled)
    table["eye"] = ["LR"[k % 2] for k in range(len(table))]
    path = labelled.parent / "held_out.csv"
    table[table["split"] == "test"].drop(columns="split").to_csv(path, index=False)
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_refer_at_a_sensitivity_and_abstain(command: Srjt, finished: Path, held_out: Path) -> None:
    out = command.prints(
        "evaluate",
        finished,
        held_out,
        "--refer-from",
        "2",
        "--sensitivity",
        "0.9",
        "--abstain",
        "0.1",
        "--out",
        "found.json",
    )
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "Its true grades are known and were used." in words(out)
    for word in (
        "Refer if p(grade ≥ 2) ≥ 0.",
        "negative predictive value",
        "area under the ROC curve",
        "Without the",
    ):
        assert word in out
    decision = json.loads(Path("found.json").read_text())["decision"]
    out = command.prints(
        "predict",
        finished,
        held_out,
        "--refer-from",
        "2",
        "--sensitivity",
        "0.9",
        "--abstain",
        "0.1",
    )
    table = pd.read_csv("predictions.csv", dtype={"patient": str})
    assert f"Refer {decision['referred']} of" in words(out)
    assert "unsure: a person decides" in words(out)
    assert (table["refer"] == "yes").sum() == decision["referred"]
    assert (
        (table["p_2"] + table["p_3"] >= decision["threshold"] - 1e-5) == (table["refer"] == "yes")
    ).all()
    assert set(table["unsure"]) <= {"yes", "no"}
    assert table["patient"].tolist() == pd.read_csv(held_out)["patient"].tolist()


@pytest.mark.slow
def test_a_key_of_two_columns_and_columns_to_keep(
    command: Srjt, finished: Path, held_out: Path
) -> None:
    assert command("predict", finished, held_out, "--per", "patient", "--per", "eye")[0] == 0
    table = pd.read_csv("predictions.csv")
    assert list(table.columns[:4]) == ["patient", "eye", "images", "grade"]
    assert len(table) == len(pd.read_csv(held_out)[["patient", "eye"]].drop_duplicates())
    assert (
        command("predict", finished, held_out, "--keep", "eye", "--keep", "grade", "--force")[0]
        == 0
    )
    table, given = pd.read_csv("predictions.csv"), pd.read_csv(held_out)
    assert list(table.columns[:5]) == ["image", "patient", "eye", "grade_source", "grade"]
    assert table["grade_source"].tolist() == given["grade"].tolist()
    assert table["eye"].tolist() == given["eye"].tolist()


@pytest.mark.parametrize(
    ("options", "about", "says"),
    [
        (["--per", "patient", "--keep", "eye"], "conflict keep", ""),
        (["--refer-from", "7"], "unknown_name", "'7'"),
        (
            ["--sensitivity", "0.9"],
            "missing_option sensitivity",
            "",
        ),
        (
            ["--refer-from", "2", "--threshold", "high"],
            "wrong_type threshold",
            "",
        ),
        (["--per", "eyes"], "unknown_name", "'eye'"),
        (["--per", "patient,eye", "--pool", "learned"], "missing_column pool", ""),
        (["--per", ""], "wrong_type per", ""),
        (["--grade-names", "0=none"], "missing_option grade_names", ""),
        (["--grade-names", f"{NAMES},4=worse"], "unknown_name", "'4'"),
    ],
)
def test_bad_input_is_one_sentence(
    command: Srjt, finished: Path, held_out: Path, options: list[str], about: str, says: str
) -> None:
    command.fails(about, says, "predict", finished, held_out, *options)
    assert not Path("predictions.csv").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_names_of_grades_are_shown_and_not_stored_in_place_of_grades(
    command: Srjt, finished: Path, held_out: Path
) -> None:
    out = command.prints(
        "predict", finished, held_out, "--grade-names", NAMES, "--refer-from", "minimal"
    )
    assert "grade 2 (minimal)" in " ".join(out.split())
    table = pd.read_csv("predictions.csv", dtype={"grade": str})
    expected = dict(pair.split("=") for pair in NAMES.split(","))
    assert table["grade_name"].tolist() == [expected[grade] for grade in table["grade"]]
    _, out, _ = command("evaluate", finished, held_out, "--grade-names", NAMES, "--refer-from", "2")
    assert "p(grade ≥ 2 (minimal))" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    hostile = "0=<script>alert(1)</script>,1=b,2=c,3=$x$"
    assert (
        command("evaluate", finished, held_out, "--grade-names", hostile, "--html", "page.html")[0]
        == 0
    )
    page = Path("page.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "=HYPERLINK" in (names := "0==HYPERLINK(1),1=b,2=c,3=d")
    assert command("predict", finished, held_out, "--grade-names", names, "--force")[0] == 0
    assert not pd.read_csv("predictions.csv")["grade_name"].str.startswith("=").any()
