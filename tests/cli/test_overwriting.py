"""A file that exists is spared: known before any work, and overwritten only when told to."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest

import srjt
from srjt.cli import check_inputs_are_kept
from srjt.errors import SrjtError

from .conftest import Srjt

SOURCE = Path(srjt.__file__).parent
MINE = "what I have written myself\n"
SMALL = [
    "--backbone",
    "tiny",
    "--no-pretrained",
    "--image-size",
    32,
    "--crop",
    28,
    "--device",
    "cpu",
]
COMMANDS = {
    "export": (["export", "RUN"], "model.pt2"),
    "features": (["features", "LABELS", *SMALL], "rows.npz"),
    "corrupt": (
        ["data", "corrupt", "LABELS", "--rate", 0.2, "--grade-column", "true_grade"],
        "noisy.csv",
    ),
    "split": (["data", "split", "LABELS", "--grade-column", "true_grade"], "folds.csv"),
    "evaluate": (["evaluate", "RUN", "LABELS", "--side", "test", "--device", "cpu"], "found.json"),
    "predict": (["predict", "RUN", "LABELS", "--device", "cpu"], "mine.csv"),
    "report": (["report", "RUN"], "page.html"),
}


def exports_are_slow(commands: Iterable[str]) -> list[object]:
    """An export takes as long as all others together."""
    return [
        pytest.param(which, marks=pytest.mark.slow) if which == "export" else which
        for which in commands
    ]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("which", exports_are_slow(COMMANDS))
def test_an_existing_file_is_overwritten_only_when_told_to(
    command: Srjt, finished: Path, labelled: Path, which: str
) -> None:
    words, name = COMMANDS[which]
    order = [{"RUN": finished, "LABELS": labelled}.get(str(word), word) for word in words]
    Path(name).write_text(MINE)
    code, out, err = command(*order, "--out", name)
    assert (code, out) == (2, "")
    assert (
        err
        == f"srjt: {name} already exists: choose another file, or pass --force to overwrite it.\n"
    )
    assert Path(name).read_text() == MINE
    command.prints(*order, "--out", name, "--force")
    assert Path(name).read_bytes() != MINE.encode()
    assert [file.name for file in Path().iterdir()] == [name]


@pytest.mark.parametrize("which", COMMANDS)
def test_it_is_known_before_anything_is_read(command: Srjt, which: str) -> None:
    words, name = COMMANDS[which]
    Path(name).write_text(MINE)
    assert f"{name} already exists" in command.refuses(*words, "--out", name)
    assert "already exists" not in command.refuses(*words, "--out", name, "--force")
    assert Path(name).read_text() == MINE  # what fails overwrites nothing


def test_a_name_that_srjt_chooses_is_spared_too(command: Srjt, labelled: Path) -> None:
    order = ["data", "corrupt", labelled, "--rate", 0.2, "--grade-column", "true_grade"]
    assert command(*order)[0] == 0
    (made,) = Path().iterdir()
    before = made.read_bytes()
    err = command.refuses(*order)
    assert f"{made} already exists: choose another file, or pass --force to overwrite it." in err
    assert command(*order, "--force")[0] == 0
    assert made.read_bytes() == before  # the same seed


def test_a_link_stays_one_and_what_it_leads_to_is_written(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    Path("made.csv").write_text("")
    Path("link").symlink_to(Path("made.csv").resolve())
    command.prints("predict", finished, labelled, "--device", "cpu", "--out", "link", "--force")
    assert Path("link").is_symlink()
    assert Path("made.csv").read_text().startswith("image,")


@pytest.mark.slow
def test_standard_output_is_never_spared(finished: Path, labelled: Path, tmp_path: Path) -> None:
    """Also where it leads to a file, as after ``> made.csv``."""
    made = tmp_path / "made.csv"
    with made.open("wb") as file:
        order = [sys.executable, "-m", "srjt", "predict", finished, labelled, "--device", "cpu"]
        done = subprocess.run([*map(str, order), "--out", "/dev/stdout"], stdout=file, check=False)
    assert done.returncode == 0
    assert len(pd.read_csv(made)) == len(pd.read_csv(labelled))  # the table and nothing else


# ------------------------------------------------------------------------------------------------ a
# full disk

FULL_DISK = {
    **{which: (*COMMANDS[which], "--force") for which in COMMANDS},
    "inspect": (["data", "inspect", "LABELS"], "contact_sheet.png"),
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("which", exports_are_slow(FULL_DISK))
def test_on_a_full_disk_the_old_file_stays_whole(
    command: Srjt, finished: Path, labelled: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Writes to the disk fail when they are flushed to it; a writer that does not ask has replaced
    the file by then."""
    words, name, *force = FULL_DISK[which]
    order = [{"RUN": finished, "LABELS": labelled}.get(str(word), word) for word in words]
    option = [] if which == "inspect" else ["--out", name]
    Path(name).write_text(MINE)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in command.refuses(*order, *option, *force)
    assert Path(name).read_text() == MINE
    assert list(Path().glob(".*.tmp")) == []


def test_nothing_is_written_past_the_atomic_writers() -> None:
    """Files grow line by line, or are parts of a folder that is renamed when complete, in these
    modules only."""
    allowed = {
        "files.py", "download.py", "training/checkpoint.py", "data/images/store.py",
        "data/sources/features.py",
        "data/sources/folders.py",  # a key that is created once, and must not exist before
        "training/workers.py",  # a switch of the kernel, not a file
    }  # fmt: skip
    direct = re.compile(
        r"\.write_text\(|\.write_bytes\(|\.to_csv\((?!index)|open\([^)\n]*[\"'][wax]b?\+?[\"']"
    )
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if direct.search(path.read_text(encoding="utf-8"))
    }
    assert found - allowed == set()


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("predict RUN LABELS --out LABELS", "LABELS"),
        ("data corrupt LABELS --rate 0.2 --out LABELS", "LABELS"),
        ("evaluate RUN LABELS --html LABELS", "LABELS"),
        ("predict RUN LABELS --calibrate-on OTHER --out OTHER", "OTHER"),
        ("predict RUN LABELS --out new.csv --skipped LABELS --on-bad-image skip", "LABELS"),
        ("report RUN --out RUN/run.json", "RUN/run.json"),
        ("evaluate RUN LABELS --out RUN/metrics.csv", "RUN/metrics.csv"),
        ("export RUN --out RUN/weights.safetensors", "RUN/weights.safetensors"),
        ("explain RUN IMAGES --out IMAGES/x.png", "IMAGES/x.png"),
    ],
)
def test_what_a_command_reads_is_not_overwritten(
    command: Srjt, finished: Path, labelled: Path, words: str, kept: str
) -> None:
    """With --force, too: it was meant for an earlier result."""
    run = shutil.copytree(finished, "run")
    Path("images").mkdir()
    files = {"RUN": str(run), "LABELS": "labels.csv", "OTHER": "other.csv", "IMAGES": "images"}
    for name in ("labels.csv", "other.csv", "images/x.png"):
        shutil.copy(labelled, name)
    order = re.sub("|".join(files), lambda found: files[found.group()], words).split()
    file = Path(re.sub("|".join(files), lambda found: files[found.group()], kept))
    before = file.read_bytes()
    force = [] if "--skipped" in words else ["--force"]
    command.fails("file_exists", str(file), *order, *force)
    assert file.read_bytes() == before


def test_a_list_of_unusable_samples_replaces_nothing_else(
    command: Srjt, finished: Path, labelled: Path
) -> None:
    Path("mine.csv").write_text(MINE)
    words = ("data", "split", labelled, "--on-bad-image", "skip", "--skipped", "mine.csv")
    command.fails("file_exists skipped", "mine.csv", *words)
    assert Path("mine.csv").read_text() == MINE
    Path("mine.csv").write_text("severity,kind,where,detail\n")
    assert command(*words)[0] == 0


@pytest.mark.parametrize("path", [str, Path])
def test_what_is_read_is_spared_as_text_and_as_a_path(
    path: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether typer has converted the options by then depends on its version."""
    monkeypatch.chdir(tmp_path)
    Path("labels.csv").write_text(MINE)
    Path("notes.csv").write_text(MINE)
    check_inputs_are_kept({"labels": path("labels.csv"), "out": path("new.csv")})
    with pytest.raises(SrjtError, match=r"labels\.csv") as refused:
        check_inputs_are_kept({"labels": path("labels.csv"), "out": path("labels.csv")})
    assert refused.value.code == "file_exists"
    with pytest.raises(SrjtError, match=r"notes\.csv") as refused:
        check_inputs_are_kept({"skipped": path("notes.csv"), "on_bad_image": "skip"})
    assert (refused.value.code, refused.value.option) == ("file_exists", "skipped")
