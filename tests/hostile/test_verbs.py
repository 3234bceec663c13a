"""Every verb, with one of its files damaged or strange: a result or one sentence, in seconds, and
never a traceback.

``SRJT_FUZZ=1000`` tries as many cases, ``SRJT_FUZZ_SEED`` others; by default every run tries the
same.
"""

import csv
import io
import json
import os
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import srjt
from hostile.corpus import picture
from hostile.strange import CELLS, STRANGE
from hostile.test_folders import ODD, changed, places
from hostile.test_inputs import mutate, time_limit
from srjt.auditing.folder import read_audit
from srjt.auditing.review_log import Decisions
from srjt.cli import SUMMARIES, main
from srjt.data.sources.readers_folder import read_readers_folder

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("SRJT_FUZZ", "120"))
SEED = int(os.environ.get("SRJT_FUZZ_SEED", "0"))
LIMIT = 120  # seconds of a command: other tests may use the machine

BEGIN = "train a.csv F --out begun --fold 0 --method standard --noise-rate 0.2 --network linear --epochs 2"
CHOOSE = "train a.csv F --out chosen --fold 0 --method srjt --epochs 2"

# words of a command, and the files that may be damaged; "new" is a name that is not used yet
COMMANDS: list[tuple[str, tuple[str, ...]]] = [
    ("train a.csv F --fold 0 --out new --noise-rate 0.2 Q", ("a.csv",)),
    ("train a.csv F --out new --config c.yaml --fold 0 --dry-run", ("c.yaml",)),
    ("train a.csv F --out new --splits s.csv --fold 0 --noise-rate 0.2 Q", ("s.csv",)),
    (
        "train a.csv F --out begun --fold 0 --method standard --noise-rate 0.2 --network linear --epochs 2",
        ("begun/**",),
    ),
    ("train a.csv F --out chosen --fold 0 --method srjt --epochs 2", ("chosen/**",)),
    ("analyse a.csv F --out new --noise-rate 0.2 Q", ("a.csv",)),
    ("predict run a.csv F --out new.csv", ("run/**", "a.csv")),
    ("predict run a.csv F --out new.csv --coverage 0.8 --calibrate-on b.csv", ("b.csv", "run/**")),
    ("evaluate run b.csv F --out new.json --html new.html", ("run/**", "b.csv")),
    ("compare run other --test b.csv F --out new.json", ("other/**", "b.csv")),
    ("report run --out new.html", ("run/**",)),
    (
        "report run --checklist claim --out new.html --also audit --also readers",
        ("audit/**", "readers/**"),
    ),
    ("report audit --out new.html", ("audit/**",)),
    ("report study --out new.html --tables new", ("study/**",)),
    ("study status study", ("study/**",)),
    ("study export study --out new.csv", ("study/**",)),
    ("study a.csv F --out new --noise quasi:0.2 --methods standard --dry-run", ("a.csv",)),
    ("study --config plan.yaml --out new --dry-run", ("plan.yaml",)),
    ("audit a.csv F --out new --folds 2 --noise-rate 0.2 Q", ("a.csv",)),
    ("audit a.csv F --out audit --folds 2 --method standard --noise-rate 0.2 Q", ("audit/**",)),
    ("review export audit --out new.csv", ("audit/**", "audit/decisions.sqlite", "a.csv")),
    ("review export audit --verified --out new.csv", ("audit/decisions.sqlite",)),
    ("readers r.csv --out new", ("r.csv",)),
    ("readers r.csv --probabilities p.csv --out new", ("p.csv", "r.csv")),
    ("readers r.csv --out readers --next 3", ("readers/**",)),
    ("data inspect a.csv F --out new", ("a.csv",)),
    ("data inspect images --out new", ("images/0/*",)),
    ("data split a.csv F --out new.csv", ("a.csv",)),
    ("data corrupt a.csv F --rate 0.2 --out new.csv", ("a.csv",)),
    (
        "features images --out new.npz --backbone tiny --no-pretrained --image-size 32 --crop 28",
        ("images/0/*",),
    ),
    ("explain imagerun images --out new.html", ("imagerun/**", "images/0/*")),
    ("predict imagerun images --out new.csv", ("imagerun/**", "images/0/*")),
    ("export run --out new.pt2", ("run/**",)),
    ("export run --folder new", ("run/**",)),
    ("plan run", ("run/**",)),
    ("methods", ()),
    ("doctor", ()),
]
SHORT = {"F": ("--feature-columns", "f*"), "Q": ("--epochs", "1", "--network", "linear")}
WITHOUT_FILES = {
    "demo",
    "weights",
}  # one draws its own images, the other lists what can be downloaded


def words_of(text: str) -> list[str]:
    return [word for part in text.split() for word in SHORT.get(part, (part,))]


def test_every_verb_is_tried() -> None:
    assert {text.split()[0] for text, _ in COMMANDS} | WITHOUT_FILES >= set(SUMMARIES)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything: tables, a configuration, folders of runs, an audit, readers and a
    study."""
    folder = tmp_path_factory.mktemp("ground")
    chance = np.random.default_rng(0)
    for name, rows in {"a.csv": 60, "b.csv": 40}.items():
        x = chance.standard_normal((rows, 4))
        table = pd.DataFrame(x, columns=[f"f{column}" for column in range(4)]).round(6)
        table = table.assign(
            grade=np.digitize(x[:, 0], [-0.5, 0.5]),
            patient=[f"{name[0]}{r // 2}" for r in range(rows)],
        )
        table.assign(id=[f"{name[0]}{row}" for row in range(rows)]).to_csv(
            folder / name, index=False
        )
    data = srjt.data.read(folder / "a.csv", feature_columns="f*")
    how = {"epochs": 1, "network": "linear", "method": "standard", "noise_rate": 0.2}
    split = srjt.data.folds(data)[0]
    for name, seed in {"run": 0, "other": 1}.items():
        srjt.train(data, split=split, out=folder / name, seed=seed, **how)  # type: ignore[arg-type]
    srjt.data.write_splits(folder / "s.csv", data, srjt.data.folds(data))
    (folder / "c.yaml").write_text(
        "method: standard\nepochs: 2\nmilestones: [1]\nmethod_options: {}\n"
    )
    plan = f"source: {folder / 'a.csv'}\nfolds: 3\nmethods: [standard]\nnoises: ['quasi:0.2']\n"
    (folder / "plan.yaml").write_text(
        plan + "reading: {feature_columns: ['f*']}\ntrain: {epochs: 1}\n"
    )
    srjt.audit(data, out=folder / "audit", folds=2, **how)  # type: ignore[arg-type]
    readings = [
        (f"{row}.png", reader, (row + len(reader)) % 3)
        for row in range(12)
        for reader in ("anna", "bo")
    ]
    pd.DataFrame(readings, columns=["image", "reader", "grade"]).to_csv(
        folder / "r.csv", index=False
    )
    names = [f"imgs/{row}.png" for row in range(12)]
    pd.DataFrame({"image": names, "p_0": 0.5, "p_1": 0.3, "p_2": 0.2}).to_csv(
        folder / "p.csv", index=False
    )
    images = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    assert images.arrays is not None
    for row, grade in enumerate(images.labels[:12]):
        (folder / "images" / str(grade)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(images.arrays[row])).save(
            folder / "images" / str(grade) / f"{row}.png"
        )
    size = {
        "network": "tiny",
        "image_size": 32,
        "crop": 28,
        "epochs": 1,
        "noise_rate": 0.2,
        "method": "standard",
    }
    srjt.train(images, split=srjt.data.folds(images)[0], out=folder / "imagerun", **size)  # type: ignore[arg-type]
    from srjt.studies.config import StudyConfig
    from srjt.studies.folder import write_plan
    from srjt.studies.plan import open_data

    source = {"source": str(folder / "a.csv"), "reading": {"feature_columns": ["f*"]}}
    study = StudyConfig(
        **source, folds=3, methods=("standard",), noises=("quasi:0.2",), train={"epochs": 1}
    )  # type: ignore[arg-type]
    planned = write_plan(folder / "study", open_data(study), command="srjt study")
    shutil.copytree(folder / "run", folder / "study" / "runs" / planned[0].key)
    return folder


@pytest.fixture(scope="module")
def complete(ground: Path) -> Path:
    """With what only commands write: readers, decisions, a run that was stopped, one that chose its
    head."""
    before, argv = os.getcwd(), sys.argv
    os.chdir(ground)
    try:
        assert call("readers", "r.csv", "--out", "readers", "--next", "3") == 0
        log = Decisions(ground / "audit" / "decisions.sqlite")
        audited = read_audit(ground / "audit")
        for sample in audited.ids[:6]:
            label = audited.grades[audited.labels[audited.line_of[sample]]]
            log.decide(sample, reviewer="anna", action="set", grade="1", label=label, seen=0)
            log.add_answer(sample, purpose="verify", reviewer="bo", grade="2")
        log.close()
        log = Decisions(ground / "readers" / "decisions.sqlite")
        for sample in read_readers_folder(ground / "readers").ids[:4]:
            log.add_answer(sample, purpose="read", reviewer="carla", grade="1")
        log.close()
        for text in (BEGIN, CHOOSE):
            assert call(*words_of(text)) == 0
        (ground / "begun" / "summary.json").unlink()
    finally:
        os.chdir(before)
        sys.argv = argv
    return ground


def call(*words: str) -> object:
    sys.argv = ["srjt", *words]
    with time_limit(LIMIT), pytest.raises(SystemExit) as left:
        main()
    return left.value.code


@pytest.fixture
def here(complete: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(complete, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv("SRJT_CACHE", str(complete.parent / "cache"))
    return tmp_path / "here"


def results(here: Path) -> dict[str, bytes]:
    """The tables that a command has written."""
    return {
        file.name: file.read_bytes()
        for file in here.glob("new.*")
        if file.suffix in (".csv", ".json")
    }


@pytest.fixture(scope="module")
def undamaged() -> dict[str, dict[str, bytes]]:
    """The results of each command, from files that are not damaged."""
    return {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", [text for text, _ in COMMANDS])
def test_a_verb_succeeds_with_files_that_are_not_damaged(
    here: Path,
    text: str,
    undamaged: dict[str, dict[str, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without this, a misspelt option would be refused in every case, and nothing would be
    tried."""
    assert call(*words_of(text)) == 0, capsys.readouterr().err
    undamaged[text] = results(here)


def another_value(original: bytes, name: str, chance: random.Random) -> bytes:
    """The file, well formed as before, with another value in one place."""
    if name.endswith(".json"):
        content = json.loads(original)
        path = chance.choice([*places(content)])
        value = () if path and chance.random() < 0.2 else (chance.choice(ODD),)
        return json.dumps(changed(content, path, *value)).encode()
    rows = [*csv.reader(io.StringIO(original.decode()))]
    row = chance.choice(rows)
    row[chance.randrange(len(row))] = chance.choice(CELLS)
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def damage(original: bytes, name: str, chance: random.Random) -> bytes:
    kind = f"table{Path(name).suffix}"
    if name.endswith((".json", ".csv")) and chance.random() < 0.5:
        return another_value(original, name, chance)
    if chance.random() < 0.2 and kind in STRANGE:
        return STRANGE[kind](chance)
    if chance.random() < 0.1:
        return chance.choice(
            [b"", b"{}", b"[]", b"null", b"\0" * 100, picture("TIFF"), original * 2]
        )
    return mutate(original, chance)


def remove_seals(here: Path) -> None:
    """As a forger would: the checksums would refuse the file before it is parsed."""
    for file in [*here.rglob("checksums.json")]:
        file.unlink()
    for file in here.rglob("*.json"):
        content = json.loads(file.read_text())
        if content.keys() & {"sha256", "files"}:
            kept = {
                name: value for name, value in content.items() if name not in ("sha256", "files")
            }
            file.write_text(json.dumps(kept))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(SEED, SEED + CASES))
def test_a_verb_ends_without_a_traceback(
    here: Path,
    seed: int,
    undamaged: dict[str, dict[str, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(seed)
    text, patterns = COMMANDS[seed % len(COMMANDS)]
    sealed = chance.random() < 0.5
    if not sealed:
        remove_seals(here)
    files = sorted(file for pattern in patterns for file in matching(here, pattern))
    damaged = "nothing"
    if files:
        file = chance.choice(files)
        damaged = str(file.relative_to(here))
        file.write_bytes(damage(file.read_bytes(), file.name, chance))
    code = call(*words_of(text))
    said = capsys.readouterr()
    what = f"srjt {text}, {damaged} damaged, {'sealed' if sealed else 'unsealed'}, seed {seed}:\n{said.err[-500:]}"
    assert code in (0, 1, 2), what
    assert "Traceback" not in said.out + said.err, what
    assert "\x1b]" not in said.out + said.err, what
    silent = code == 0 and "is not the file that srjt has written" not in said.err
    if (
        silent
        and sealed
        and "/" in damaged
        and not damaged.startswith("images")
        and text in undamaged
    ):
        assert results(here) == undamaged[text], what


def matching(here: Path, pattern: str) -> list[Path]:
    """The files of a pattern; locks and pages are not read by any command."""
    folder, _, rest = pattern.partition("/**")
    found = (here / folder).rglob("*") if rest or pattern.endswith("/**") else here.glob(pattern)
    return [
        file for file in found if file.is_file() and file.name != ".lock" and file.suffix != ".html"
    ]


# a folder, and commands that answer from it
ANSWERS: dict[str, tuple[str, ...]] = {
    "run": (
        "predict run a.csv F --out new.csv --coverage 0.8 --label-noise none",
        "report run --out new.html",
    ),
    "chosen": (CHOOSE, "evaluate chosen b.csv F --out new.json"),
    "begun": (BEGIN, "predict begun b.csv F --out new.csv"),
    "audit": (
        "audit a.csv F --out audit --folds 2 --method standard --noise-rate 0.2 Q",
        "review export audit --out new.csv --conflicts new-conflicts.csv",
        "review export audit --verified --out new-verified.csv",
    ),
    "readers": (
        "review export readers --readings --out new.csv",
        "report run --checklist claim --also readers --out new.md",
    ),
    "study": (
        "study export study --out new.csv",
        "study export study --scores --out new-scores.csv",
    ),
}


def answers(
    here: Path, texts: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> dict[str, bytes] | None:
    """What the commands write; None if one of them refuses."""
    for file in here.glob("new*"):
        file.unlink()
    for text in texts:
        code = call(*words_of(text))
        said = capsys.readouterr()
        assert "Traceback" not in said.err, said.err
        if (
            code != 0 or "is not the file that srjt has written" in said.err
        ):  # of a study, the other runs are shown
            return None
    return {
        file.name: file.read_bytes()
        for file in here.glob("new*")
        if file.suffix in (".csv", ".json", ".md")
    }


def change_a_digit(file: Path, chance: random.Random) -> bool:
    """False if there is none."""
    content = bytearray(file.read_bytes())
    digits = [place for place, byte in enumerate(content) if chr(byte) in "0123456789"]
    if digits:
        place = chance.choice(digits)
        content[place] = ord("0") + (content[place] - ord("0") + 1) % 10
        file.write_bytes(bytes(content))
    return bool(digits)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("folder", ANSWERS)
def test_another_digit_in_any_file_is_refused_or_changes_no_answer(
    here: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    untouched = here.with_name("untouched")
    shutil.copytree(here / folder, untouched)
    expected = answers(here, ANSWERS[folder], capsys)
    assert expected
    refused = 0
    for name in sorted(str(file.relative_to(here)) for file in matching(here, f"{folder}/**")):
        shutil.rmtree(here / folder)
        shutil.copytree(untouched, here / folder)
        if (here / name).is_file() and change_a_digit(here / name, random.Random(name)):
            found = answers(here, ANSWERS[folder], capsys)
            refused += found is None
            assert found in (None, expected), name
    assert refused
