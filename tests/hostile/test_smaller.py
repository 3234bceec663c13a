"""Settings, images, links and limits that once ended in a traceback, or were accepted without a
word."""

import io
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import srjt
from refusals import refuses
from srjt.cli import main
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.images.store import open_store
from srjt.settings import load_config


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["srjt", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out + said.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1: 2\n", " 1"),
        ("~: 2\n", "None"),
        ("method_options: {3.5: 1}\n", "3.5"),
        ("epochs: 3\nepochs: 4\n", "'epochs'"),
        ("method_options: {a: 1, a: 2}\n", "'a'"),
    ],
)
def test_settings_without_a_name_or_twice(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with refuses("wrong_file", says=says):
        load_config(tmp_path / "c.yaml")


def test_a_tiff_file_of_several_pages_is_refused(tmp_path: Path) -> None:
    """Which of them was graded? A DICOM file of several frames was refused already."""
    pages = [Image.new("L", (8, 8), shade) for shade in (0, 200)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(BadImageError, match="the TIFF file has 2 pages"):
        read_image(tmp_path / "a.tif", size=8)
    pages[0].save(tmp_path / "b.tif")
    assert read_image(tmp_path / "b.tif", size=8).shape == (8, 8, 3)


def test_only_this_user_reads_decoded_images(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    for row in range(4):
        (tmp_path / f"{row}.png").write_bytes(file.getvalue())
    (tmp_path / "a.csv").write_text(
        "image,grade\n" + "".join(f"{row}.png,{row % 2}\n" for row in range(4))
    )
    before = os.umask(0o022)
    try:
        store = open_store(srjt.data.read(tmp_path / "a.csv"), size=16, cache=tmp_path / "cache")
    finally:
        os.umask(before)
    assert store.path is not None
    assert stat.S_IMODE((store.path / "pixels").stat().st_mode) == 0o600
    for folder in (store.path, store.path.parent, tmp_path / "cache"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_many_columns_are_read_in_seconds(tmp_path: Path) -> None:
    columns, rows = 20_000, 12
    lines = [",".join([*(f"f{column}" for column in range(columns)), "grade"])]
    lines += [",".join([*["0.5"] * (columns - 1), str(row), str(row % 3)]) for row in range(rows)]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    begun = time.process_time()
    manifest = srjt.data.read(tmp_path / "wide.csv", feature_columns="f*")
    assert manifest.arrays is not None
    assert manifest.arrays.shape == (rows, columns)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("words", [("report",), ("report", "--out")])
def test_a_link_that_leads_to_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("run").mkdir()
    given = ("loop",) if len(words) == 1 else ("loop/a.html",)
    arguments = (*words, *given) if len(words) == 1 else ("report", "run", "--out", *given)
    code, said = run(monkeypatch, capsys, *arguments)
    assert (code, said.count("\n")) == (2, 1), said


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    x: Any = np.random.default_rng(0).standard_normal((40, 3))
    data = srjt.data.from_arrays(
        x, np.digitize(x[:, 0], [0.0]), patients=[f"p{row}" for row in range(40)]
    )
    out = tmp_path / "alone" / "run"
    srjt.train(
        data, split=srjt.data.folds(data)[0], out=out, epochs=1, method="standard", network="linear"
    )
    return out


def test_a_checklist_as_markdown(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both files have the same name then; the sentence about the second one was an IndexError."""
    target = tmp_path / "c.md"
    code, said = run(
        monkeypatch, capsys, "report", finished, "--checklist", "tripod-ai", "--out", target
    )
    assert (code, f"The checklist is in {target}." in " ".join(said.split())) == (0, True), said
    assert target.read_text(encoding="utf-8").startswith("#")


@pytest.mark.slow
def test_few_open_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "f0,f1,grade\n" + "".join(f"{row},1,{row % 2}\n" for row in range(30))
    )
    script = f"ulimit -n 16; exec {sys.executable} -m srjt train a.csv --feature-columns 'f*' --fold 0 --out run"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 2)
