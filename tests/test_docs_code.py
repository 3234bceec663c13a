"""The code blocks of the documentation, run page by page in the order they are printed.

Blocks marked ``python`` share one namespace per page; of shell blocks those are run in which every line is an
``srjt`` command (marked ``bash``, every line must be one); YAML that begins with ``# NAME.yaml`` becomes that
file. The page's folder holds a small data set and a finished run (see ``prepared``). Trainings get options that
make them small where the page gives none. ``<!-- not run: why -->`` above a block leaves it out, ``<!-- slow -->``
above any leaves the page to ``make test-all``.
"""

import re
import shlex
import shutil
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from srjt import methods
from srjt.data import Manifest, folds, write_splits
from srjt.inference import aspects
from srjt.training import frozen

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ +)?srjt ")

SMALL = {
    "--network": "tiny", "--image-size": "32", "--crop": "28", "--epochs": "2", "--batch-size": "16",
    "--learning-rate": "1e-3", "--device": "cpu",
}  # fmt: skip
TRAINS = {"train": SMALL, "audit": SMALL | {"--folds": "2"}}


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    note: str  # what the comment above it says
    line: int


def blocks(text: str) -> list[Block]:
    """What can be run, and what a note says cannot."""
    found = []
    for match in BLOCK.finditer(text):
        note, language, code = match.groups(default="")
        lines = [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]
        if language == "" and all(COMMAND.match(line) for line in lines):
            language = "bash"
        if language in ("python", "bash") or (language == "yaml" and code.startswith("# ")):
            found.append(Block(language, code, note, text[: match.start(3)].count("\n")))
    return found


# Pages whose commands train for longer than a second.
TRAINING = ("README.md", "settings.md")


def pages() -> list[object]:
    """Every page that has something to run; the slow ones marked."""
    chosen: list[object] = []
    for page in PAGES:
        here = [b for b in blocks(page.read_text()) if not b.note.startswith("not run")]
        slow = page.name in TRAINING or any(b.note == "slow" for b in here)
        marks = [pytest.mark.slow] if slow else []
        if here:
            chosen.append(pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks))
    return chosen


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """labels.csv and its images, noisy.csv with true grades too, new_images/, features.npz, and
    runs/mine."""
    from srjt import noise
    from srjt.data.synthetic import generate, write
    from srjt.training.train import train

    folder = tmp_path_factory.mktemp("prepared") / "here"
    data = generate(images=80, patients=16, size=32)
    write(data, folder)
    clean = data.table[["image", "grade", "patient"]]
    clean.to_csv(folder / "labels.csv", index=False)
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.1)
    wrong = noise.corrupt(data.labels, matrix, seed=0)
    noisy = clean.assign(true_grade=data.labels, grade=wrong)
    noisy.to_csv(folder / "noisy.csv", index=False)
    (folder / "new_images").mkdir()
    for number, image in enumerate(data.table["image"][:3]):
        shutil.copy(folder / image, folder / "new_images" / f"{number}.png")
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(80, 8)) + data.labels[:, None]).astype(np.float32)
    patients = data.table["patient"].to_numpy(str)
    np.savez(folder / "features.npz", features=rows, grade=data.labels, patient=patients)
    _other_sources(folder, data)
    train(
        data, out=folder / "runs/mine", noise_rate=0.2, network="tiny", image_size=32, crop=28, epochs=2,
        batch_size=16, device="cpu",
    )  # fmt: skip
    return folder


def _other_sources(folder: Path, data: Manifest) -> None:
    """The same images in the layouts that are recognised."""
    from srjt.data.synthetic import generate, write

    other = generate(images=80, patients=16, size=32, seed=1)  # of other patients
    write(other, folder / "other")
    names = [f"other/{image}" for image in other.table["image"]]
    table = other.table[["grade", "patient"]].assign(
        image=names, patient="o" + other.table["patient"]
    )
    table.to_csv(folder / "other_labels.csv", index=False)
    write_splits(folder / "splits.csv", data, folds(data))
    lines = ["image,level"]
    rows = zip(data.table["image"], data.labels, data.table["patient"], strict=True)
    for number, (image, grade, patient) in enumerate(rows):
        named = (
            folder / "by-grade" / ("none", "mild", "moderate", "severe")[grade] / f"{number}.png"
        )
        limuc = folder / "limuc" / str(int(patient[1:]) + 1) / f"Mayo {grade}" / f"{number}.bmp"
        eye = folder / "dr" / "train" / f"{number // 2}_{('left', 'right')[number % 2]}.jpeg"
        for target in (named, limuc, eye):
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.open(folder / image).save(target)
        lines.append(f"{eye.stem},{grade}")
    (folder / "dr" / "trainLabels.csv").write_text("\n".join(lines) + "\n")
    sides = {"train": slice(0, 50), "val": slice(50, 60), "test": slice(60, 80)}
    images = {f"{side}_images": data.arrays[rows] for side, rows in sides.items()}
    labels = {f"{side}_labels": data.labels[rows][:, None] for side, rows in sides.items()}
    np.savez(folder / "retinamnist.npz", **images, **labels)


@pytest.fixture
def here(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(prepared, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(
        methods, "_REGISTRY", dict(methods._REGISTRY)
    )  # methods that a page adds are its own
    monkeypatch.setattr(aspects, "_ASPECTS", dict(aspects._ASPECTS))
    monkeypatch.setitem(frozen.SMALL, "epochs", 2)  # without weights, this network is trained
    return tmp_path / "here"


def commands(code: str) -> list[list[str]]:
    """The words of each line behind ``srjt``; small settings where the page gives none."""
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S+", words[0]):  # SRJT_CACHE=… srjt …
            words.pop(0)
        if words:
            assert words[0] == "srjt", f"not an srjt command: {line}"
            whole = words[1] in ("review", "study") and words[2] not in ("export", "status")
            assert not whole, f"serves a page, or takes too long for a test: {line}"
            of_images = not words[2].startswith("features")  # which choose their own head
            for option, value in TRAINS.get(words[1], {}).items():
                if option not in words and (of_images or option != "--network"):
                    words += [option, value]
            found.append(words[1:])
    return found


def srjt(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from srjt.cli import main

    monkeypatch.setattr(sys, "argv", ["srjt", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in (0, None), f"srjt {shlex.join(words)}"


@pytest.mark.parametrize("page", pages())
@pytest.mark.usefixtures("here", "undrawn")
def test_the_code_of_a_page_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("page_" + re.sub(r"\W", "_", page.stem))
    monkeypatch.setitem(
        sys.modules, module.__name__, module
    )  # dataclasses look themselves up there
    for block in blocks(page.read_text()):
        if block.note.startswith("not run"):
            continue
        if block.language == "yaml":
            Path(block.code.splitlines()[0][2:]).write_text(block.code)
        elif block.language == "python":
            lines = "\n" * block.line + block.code  # so that a traceback names the page's own line
            exec(compile(lines, str(page), "exec"), module.__dict__)
        else:
            for words in commands(block.code):
                srjt(words, monkeypatch)


def test_the_page_of_files_names_what_a_run_writes(prepared: Path) -> None:
    section = (ROOT / "docs/files.md").read_text().partition("## A run\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall("`(.+?)`", row)}
    written = {path.name + "/" * path.is_dir() for path in (prepared / "runs/mine").iterdir()}
    assert {name for name in written if not name.startswith(".")} <= named


def test_blocks_are_left_out_for_a_reason_only() -> None:
    found = [block for page in PAGES for block in blocks(page.read_text())]
    left_out = [block for block in found if block.note.startswith("not run")]
    assert all(re.fullmatch(r"not run: .{4,}", block.note) for block in left_out)
    assert all(block.note == "slow" or block in left_out for block in found if block.note)
    assert len(left_out) < len(found) / 3  # most of what is printed is run


def test_these_tests_see_blocks_and_their_notes() -> None:
    text = "<!-- not run: opens a page -->\n```bash\nsrjt review a\n```\n\n```python\nx = 1\n```\n"
    text += "```\nplain\n```\n```\nsrjt methods\n```\n"
    found = [(b.language, b.note, b.line) for b in blocks(text)]
    assert found == [("bash", "not run: opens a page", 2), ("python", "", 6), ("bash", "", 12)]
    assert commands("srjt train a.csv --epochs 9 \\\n  --out r  # a comment\n")[0][:6] == [
        "train", "a.csv", "--epochs", "9", "--out", "r",
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="not an srjt command"):
        commands("rm -rf x")
