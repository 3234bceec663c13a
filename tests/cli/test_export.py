"""``srjt explain`` and ``srjt export``."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image

import srjt
from srjt.data.images import decode
from srjt.ordinal.decoding import GradeRule
from srjt.reports.aspects.grading import grade_in_words
from srjt.reports.standalone_predict import find_files, read_image

from .conftest import Srjt

# ``srjt explain`` as a person runs it.


@pytest.mark.slow
def test_the_training_data_are_read_with_the_same_options(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    """The table is not beside its images, and names its columns in its own way."""
    table = Path("table.csv")
    shutil.copy(labelled, table)
    renamed = table.read_text().replace("image,", "picture,", 1).replace(",grade,", ",reading,", 1)
    table.write_text(renamed)
    how = ("--images", labelled.parent, "--image-column", "picture", "--grade-column", "reading")
    code, _, err = command("explain", finished, table, "--training", table, "--limit", 2, *how)
    assert (code, err) == (0, "")
    assert Path("explanation.html").read_text().count("labelled") >= 2 * 4
    # a folder of new images, which is no table
    code, said, _ = command(
        "explain", finished, labelled.parent, "--training", table, "--limit", 2, "--force", *how
    )
    assert (code, said[:8]) == (0, "2 images")


@pytest.mark.slow
def test_a_page_without_a_suffix_gets_one(command: Srjt, finished: Path, labelled: Path) -> None:
    code, said, _ = command("explain", finished, labelled, "--limit", 1, "--out", "maps")
    assert (code, "explained in maps.html" in " ".join(said.split())) == (0, True)
    assert Path("maps.html").read_text().startswith("<!doctype html>")
    assert command("report", finished, "--out", "page")[0] == 0
    assert sorted(path.name for path in Path().iterdir()) == ["maps.html", "page.html"]


# ``srjt export`` as a person runs it.


@pytest.mark.slow
def test_it_says_what_the_file_takes_and_how_it_was_checked(command: Srjt, finished: Path) -> None:
    out = command.prints("export", finished, "--out", "new/model.pt2")
    assert "takes images uint8 (N, 32, 32, 3)" in out
    assert "checked in torch on" in out
    facts = {"srjt.json": ""}
    torch.export.load("new/model.pt2", extra_files=facts)
    assert json.loads(facts["srjt.json"])["grades"] == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_the_suffix_says_the_format(command: Srjt, finished: Path) -> None:
    err = command.refuses("export", finished, "--out", "model.bin")
    assert "The format of model.bin is not clear from its name" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (["--out", "/proc/x/model.pt2"], "unwritable_file", "/proc/x/model.pt2"),
        (["--out", "m.pt"], "wrong_file out", "m.pt"),
    ],
)
def test_mistakes(
    command: Srjt, finished: Path, arguments: list[str], about: str, says: str
) -> None:
    command.fails(about, says, "export", finished, *arguments)


def test_a_network_of_ones_own_needs_python(command: Srjt, finished: Path) -> None:
    facts = json.loads((finished / "run.json").read_text())
    Path("own").mkdir()
    Path("own/run.json").write_text(json.dumps({**facts, "own_network": True}))
    assert 'srjt.load_run("own", network=…)' in command.refuses("export", "own")


def test_an_unfinished_run(command: Srjt, finished: Path) -> None:
    Path("half").mkdir()
    Path("half/run.json").write_text((finished / "run.json").read_text())
    assert "half has not finished training" in command.refuses("export", "half", "--out", "m.pt2")


# ``srjt export --folder``: what is written works without srjt and without torch.

WITHOUT_SRJT = """
import runpy, sys
for name in ("srjt", "torch", "pandas", "monai"):
    sys.modules[name] = None  # importing it fails
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_script(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SRJT, str(folder / "predict.py"), *map(str, arguments)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    # onnxruntime may warn about the machine
    ran.stderr = "".join(
        line for line in ran.stderr.splitlines(True) if ":onnxruntime:" not in line
    )
    return ran


@pytest.mark.slow
def test_the_script_predicts_as_srjt_predict_without_srjt_and_torch(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    out = command.prints("export", finished, "--folder", "to_send", "--target-metric", "qwk")
    assert "to_send/predict.py IMAGES" in out
    folder, images = Path("to_send").resolve(), labelled.parent
    assert {path.name for path in folder.iterdir()} == {
        "MODEL_CARD.md", "config.json", "model.onnx", "predict.py", "requirements.txt",
    }  # fmt: skip

    Path("broken.png").write_bytes(b"no image")
    ran = run_script(folder, images, "broken.png")
    assert ran.returncode == 1
    *others, broken = ran.stderr.splitlines()  # other tests may have put tables beside the images
    assert broken.startswith("broken.png cannot be read as an image")
    assert any(
        "labels.csv is left out: its suffix is not that of an image." in line for line in others
    )
    assert (
        command("predict", finished, images, "--out", "srjt.csv", "--target-metric", "qwk")[0] == 0
    )
    ours = pd.read_csv("srjt.csv", dtype={"grade": str}).set_index("image")
    theirs = (
        pd.read_csv(StringIO(ran.stdout), dtype={"grade": str}).set_index("image").loc[ours.index]
    )
    assert len(theirs) == 120
    assert theirs["grade"].tolist() == ours["grade"].tolist()
    numbers = ["p_0", "p_1", "p_2", "p_3", "expected_grade"]
    assert theirs[numbers].to_numpy() == pytest.approx(ours[numbers].to_numpy(), abs=1e-4)

    config = json.loads((folder / "config.json").read_text())
    assert config["grades"] == ["0", "1", "2", "3"]
    assert config["grade_names"] is None
    assert (config["input"]["shape"], config["preprocessing"]["resize"]) == (
        ["N", 32, 32, 3],
        "squash",
    )
    assert config["grade_rule"]["without_fit"]  # the validation side is too small for thresholds
    _, metadata, card = (folder / "MODEL_CARD.md").read_text().split("---\n", 2)
    assert "onnx" in yaml.safe_load(metadata)["tags"]
    rule = grade_in_words(GradeRule(**config["grade_rule"]))
    assert f"A grade is {rule}." in card  # the card is of the exported choice
    assert "python predict.py IMAGES" in card

    assert "to_send is not empty" in command.refuses("export", finished, "--folder", "to_send")


@pytest.mark.slow
def test_a_model_of_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grades = np.arange(90) % 3
    rows = (rng.normal(size=(90, 4)) + grades[:, None]).astype(np.float32)
    data = srjt.data.from_arrays(rows, grades)
    names = {"0": "none", "1": "some", "2": "much"}
    run = srjt.train(data, out=tmp_path / "run", method="standard", epochs=2, grade_names=names)
    srjt.export(run, tmp_path / "to_send")
    np.savez(tmp_path / "new.npz", features=rows, ids=[f"row {k}" for k in range(90)])
    ran = run_script(tmp_path / "to_send", tmp_path / "new.npz")
    assert (ran.returncode, ran.stderr) == (0, "")
    table, ours = pd.read_csv(StringIO(ran.stdout), dtype=str), srjt.predict(run, data)
    assert table["image"].tolist()[:2] == ["row 0", "row 1"]
    assert table["grade"].tolist() == ours["grade"].tolist()
    assert table["grade_name"].tolist() == [names[grade] for grade in ours["grade"]]
    (tmp_path / "new.csv").write_text("f0,f1\n1,2\n")
    ran = run_script(tmp_path / "to_send", tmp_path / "new.csv")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)
    assert "new.csv cannot be read as features: a .npy file, or a .npz file" in ran.stderr


def test_a_script_names_the_files_of_a_folder_that_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.png", "IM0001", "b.dcm", "c.csv", ".hidden"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in find_files([tmp_path])] == [
        "IM0001",
        "a.png",
        "b.dcm",
    ]  # a DICOM file is an error
    assert (
        capsys.readouterr().err
        == f"{tmp_path / 'c.csv'} is left out: its suffix is not that of an image.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (["--folder", "new", "--out", "m.onnx"], "conflict folder", ""),
        (["--folder", "full"], "folder_in_use overwrite", ""),
        (["--folder", "file"], "wrong_file", ""),
        (["--folder", "/proc/x/new"], "unwritable_file", "/proc/x/new"),
    ],
)
def test_mistakes_of_the_folder(
    command: Srjt, finished: Path, arguments: list[str], about: str, says: str
) -> None:
    Path("full").mkdir()
    Path("full/mine.txt").write_text("keep me")
    Path("file").write_text("")
    command.fails(about, says, "export", finished, *arguments)
    assert [path.name for path in Path("full").iterdir()] == ["mine.txt"]


MODES = ("RGB", "L", "LA", "RGBA", "P", "1", "CMYK", "I;16", "I", "F")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("resize", ["squash", "crop"])
def test_the_script_reads_an_image_as_srjt_does(mode: str, resize: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (90, 70, 3), dtype=np.uint8)
    picture = Image.fromarray(values)
    if mode == "I;16":
        picture = Image.fromarray(rng.integers(0, 65536, (90, 70), dtype=np.uint16))
    elif mode in ("LA", "RGBA"):
        picture.putalpha(Image.fromarray(values[..., 0]))
        picture = picture.convert(mode)
    else:
        picture = picture.convert(mode)
    path = tmp_path / ("x.tif" if mode in ("I", "F", "CMYK") else "x.png")
    picture.save(path)
    expected = decode.read_image(path, size=32, resize=resize)
    assert np.array_equal(read_image(path, size=32, resize=resize), expected)


@pytest.mark.parametrize(
    "values", [(0.0, 1.0), (0.25, 0.5, math.nan), (-3.0, 9.0, math.inf), (4.0,)]
)
def test_the_script_reads_floats_as_srjt_does(values: tuple[float, ...], tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).choice(values, (40, 50)).astype(np.float32)
    Image.fromarray(pixels).save(tmp_path / "x.tif")
    expected = decode.read_image(tmp_path / "x.tif", size=32)
    assert np.array_equal(read_image(tmp_path / "x.tif", size=32, resize="squash"), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["colour.jpg", "grey.tif"])
def test_the_script_turns_an_image_upright(name: str, orientation: int, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (300, 420, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / name
    Image.fromarray(values if name == "colour.jpg" else values[..., 0]).save(path, exif=exif)
    assert np.array_equal(
        read_image(path, size=32, resize="squash"),
        decode.read_image(path, size=32, resize="squash"),
    )
