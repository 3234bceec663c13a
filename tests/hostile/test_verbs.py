"""Every verb, with one of its files damaged or strange: a result or one sentence, in seconds, and never a traceback.

``SRJT_FUZZ=1000`` tries as many cases, ``SRJT_FUZZ_SEED`` others; by default every run tries the same.
"""

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import srjt
from hostile.corpus import picture
from hostile.strange import STRANGE
from hostile.test_inputs import mutate, time_limit
from srjt.cli import SUMMARIES, main

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("SRJT_FUZZ", "300"))
SEED = int(os.environ.get("SRJT_FUZZ_SEED", "0"))
LIMIT = 120  # seconds of a command: other tests may use the machine
FEATURES = ("--feature-columns", "f*")
QUICK = ("--epochs", "1", "--network", "linear")

# verb → words of a command, and the files that may be damaged; "new" is a name that is not used yet
COMMANDS: list[tuple[str, tuple[str, ...]]] = [
    ("train a.csv --fold 0 --out new --noise-rate 0.2", ("a.csv",)),
    ("train a.csv --out new --config c.yaml --fold 0 --dry-run", ("c.yaml",)),
    ("train a.csv --out new --splits s.csv --fold 0 --noise-rate 0.2", ("s.csv",)),
    ("train a.csv --out run --fold 0 --noise-rate 0.2", ("run/*",)),
    ("predict run a.csv --out new.csv", ("run/*", "a.csv")),
    ("predict run a.csv --out new.csv --coverage 0.8 --calibrate-on b.csv", ("b.csv",)),
    ("evaluate run b.csv --resamples 20", ("run/*", "b.csv")),
    ("compare run other --test b.csv --resamples 20", ("other/*", "b.csv")),
    ("report run --out new.html", ("run/*",)),
    ("report run --checklist claim --out new.html --also audit --also readers", ("audit/*", "readers/*")),
    ("report audit --out new.html", ("audit/*",)),
    ("report study --out new.html", ("study/*",)),
    ("study status study", ("study/*",)),
    ("study export study --out new.csv", ("study/*",)),
    ("study a.csv --out new --noise quasi:0.2 --method standard --dry-run", ("a.csv",)),
    ("audit a.csv --out new --folds 2 --noise-rate 0.2", ("a.csv",)),
    ("review export audit --out new.csv", ("audit/*",)),
    ("readers r.csv --out new", ("r.csv",)),
    ("readers r.csv --probabilities p.csv --out new", ("p.csv", "r.csv")),
    ("data inspect a.csv --out new", ("a.csv",)),
    ("data inspect images --out new", ("images/0/*",)),
    ("data split a.csv --out new.csv", ("a.csv",)),
    ("data corrupt a.csv --rate 0.2 --out new.csv", ("a.csv",)),
    ("features images --out new.npz --network tiny", ("images/0/*",)),
    ("explain imagerun images --out new.html", ("imagerun/*",)),
    ("predict imagerun images --out new.csv", ("imagerun/*", "images/0/*")),
    ("export run --out new.pt2", ("run/*",)),
    ("plan run", ("run/*",)),
    ("methods", ()),
    ("doctor", ()),
]
WITHOUT_FILES = {"demo", "review"}  # draws its own images; a server (its export is tried)


def test_every_verb_is_tried() -> None:
    assert {words.split()[0] for words, _ in COMMANDS} | WITHOUT_FILES >= set(SUMMARIES)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything: tables, a configuration, folders of runs, an audit, readers and a study."""
    folder = tmp_path_factory.mktemp("ground")
    chance = np.random.default_rng(0)
    for name, rows in {"a.csv": 60, "b.csv": 40}.items():
        x = chance.standard_normal((rows, 4))
        table = pd.DataFrame(x, columns=[f"f{column}" for column in range(4)]).round(6)
        table = table.assign(
            grade=np.digitize(x[:, 0], [-0.5, 0.5]), patient=[f"{name[0]}{r // 2}" for r in range(rows)]
        )
        table.assign(id=[f"{name[0]}{row}" for row in range(rows)]).to_csv(folder / name, index=False)
    data = srjt.data.read(folder / "a.csv", feature_columns="f*").manifest
    how = {"epochs": 1, "network": "linear", "method": "standard", "noise_rate": 0.2}
    split = srjt.data.folds(data)[0]
    for name, seed in {"run": 0, "other": 1}.items():
        srjt.train(data, split=split, out=folder / name, seed=seed, **how)  # type: ignore[arg-type]
    srjt.data.write_splits(folder / "s.csv", data, srjt.data.folds(data))
    (folder / "c.yaml").write_text("method: standard\nepochs: 2\nmilestones: [1]\nmethod_options: {}\n")
    srjt.audit(data, out=folder / "audit", folds=2, **how)  # type: ignore[arg-type]
    readings = [(f"{row}.png", reader, (row + len(reader)) % 3) for row in range(12) for reader in ("anna", "bo")]
    pd.DataFrame(readings, columns=["image", "reader", "grade"]).to_csv(folder / "r.csv", index=False)
    names = [f"imgs/{row}.png" for row in range(12)]
    pd.DataFrame({"image": names, "p_0": 0.5, "p_1": 0.3, "p_2": 0.2}).to_csv(folder / "p.csv", index=False)
    images = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    assert images.arrays is not None
    for row, grade in enumerate(images.labels[:12]):
        (folder / "images" / str(grade)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(images.arrays[row])).save(folder / "images" / str(grade) / f"{row}.png")
    size = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2, "method": "standard"}
    srjt.train(images, split=srjt.data.folds(images)[0], out=folder / "imagerun", **size)  # type: ignore[arg-type]
    from srjt.studies.config import StudyConfig
    from srjt.studies.folder import write_plan
    from srjt.studies.plan import open_data

    source = {"source": str(folder / "a.csv"), "reading": {"feature_columns": ["f*"]}}
    study = StudyConfig(**source, folds=3, methods=("standard",), noises=("quasi:0.2",), train={"epochs": 1})  # type: ignore[arg-type]
    planned = write_plan(folder / "study", open_data(study), command="srjt study")
    shutil.copytree(folder / "run", folder / "study" / "runs" / planned[0].key)
    return folder


def call(*words: str) -> object:
    sys.argv = ["srjt", *words]
    with time_limit(LIMIT), pytest.raises(SystemExit) as left:
        main()
    return left.value.code


@pytest.fixture(scope="module")
def complete(ground: Path) -> Path:
    """With the folder that only a command writes."""
    before, argv = os.getcwd(), sys.argv
    os.chdir(ground)
    try:
        assert call("readers", "r.csv", "--out", "readers") == 0
    finally:
        os.chdir(before)
        sys.argv = argv
    return ground


def damage(original: bytes, name: str, chance: random.Random) -> bytes:
    kind = f"table{Path(name).suffix}"
    if chance.random() < 0.2 and kind in STRANGE:
        return STRANGE[kind](chance)
    if chance.random() < 0.1:
        return chance.choice([b"", b"{}", b"[]", b"null", b"\0" * 100, picture("TIFF"), original * 2])
    return mutate(original, chance)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(SEED, SEED + CASES))
def test_a_verb_ends_without_a_traceback(
    complete: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    text, patterns = COMMANDS[seed % len(COMMANDS)]
    here = tmp_path / "here"
    shutil.copytree(complete, here)
    monkeypatch.chdir(here)
    monkeypatch.setenv("SRJT_CACHE", str(complete.parent / "cache"))
    files = sorted(file for pattern in patterns for file in here.glob(pattern) if file.is_file())
    damaged = "nothing"
    if files:
        file = chance.choice(files)
        damaged = str(file.relative_to(here))
        file.write_bytes(damage(file.read_bytes(), file.name, chance))
    words = text.split()
    if "a.csv" in words or "b.csv" in words or "run" in words[:2]:
        takes: dict[str, Callable[[], tuple[str, ...]]] = {
            "train": lambda: (*FEATURES, *(QUICK if "--config" not in words else ())),
            "audit": lambda: (*FEATURES, *QUICK),
            **dict.fromkeys(("predict", "evaluate", "study", "data"), lambda: FEATURES),
        }
        words += takes.get(words[0], tuple)() if words[:2] not in (["study", "status"], ["study", "export"]) else ()
    monkeypatch.setattr(sys, "argv", ["srjt", *words])
    what = f"srjt {' '.join(words)}, {damaged} damaged, seed {seed}"
    with time_limit(LIMIT), pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code in (0, 1, 2), what
    assert "Traceback" not in said.out + said.err, what
    assert "\x1b]" not in said.out + said.err, what
