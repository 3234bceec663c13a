"""Damaged input files, through the functions and commands that read them: a result or one sentence,
in a few seconds.

The mutations are seeded: every run tries the same cases.
"""

import contextlib
import random
import signal
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hostile.corpus import GRADES, IDS, PAST_FINDINGS, PATIENTS, VALID
from hostile.strange import STRANGE
from srjt.cli import main
from srjt.data import Manifest, check, drop_unusable, folds, read, read_splits
from srjt.data.checks import image_sizes
from srjt.data.images.decode import is_image, read_image
from srjt.data.sources.folders import read_images
from srjt.data.sources.samples import read_ungraded_features
from srjt.errors import SrjtError
from srjt.settings import load_config
from srjt.training.config import TrainConfig

pytestmark = pytest.mark.slow

MUTANTS = 25  # of every valid file
SECONDS = 20
TOKENS = (
    b"", b"\0", b"\xff", b'"', b"'", b",", b"\n", b"\r\n", b"-1", b"1e309", b"nan", b"9" * 30, b"\xff\xff\xff\x7f",
    b"(", b"[", b"{", b"[/]", b"=1+1", b"../", b"%s", b"&a", b"*a", "é".encode(), "é".encode("latin-1"),
)  # fmt: skip


def mutate(content: bytes, chance: random.Random) -> bytes:
    """The content with one to four cuts, flips, repetitions or insertions."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        length = chance.choice([1, 1, 4, 16, len(changed) // 4])
        match chance.randrange(6):
            case 0:
                del changed[at:]
            case 1:
                del changed[at : at + length]
            case 2:
                changed[at:at] = changed[at : at + length] * chance.choice([1, 3])
            case 3:
                changed[at : at + length] = bytes(chance.randrange(256) for _ in range(length))
            case 4:
                changed[at : at + length] = chance.choice(TOKENS)
            case _:
                for place in range(at, min(at + length, len(changed))):
                    changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cases() -> Iterator[Any]:
    for name, findings in PAST_FINDINGS.items():
        for what, make in findings.items():
            yield pytest.param(name, make, id=f"{name}: {what}")
    for name, make in VALID.items():
        yield pytest.param(name, make, id=f"{name}: valid")
        for seed in range(MUTANTS):
            chance = random.Random(zlib.crc32(f"{name} {seed}".encode()))
            yield pytest.param(name, lambda m=make, c=chance: mutate(m(), c), id=f"{name}: {seed}")

    for name, make_strange in STRANGE.items():
        for seed in range(MUTANTS):
            chance = random.Random(zlib.crc32(f"strange {name} {seed}".encode()))
            yield pytest.param(
                name, lambda m=make_strange, c=chance: m(c), id=f"{name}: strange {seed}"
            )


def read_source(path: Path) -> None:
    reading = read(path)
    manifest = drop_unusable(reading, reading.report.problems, on_bad_image="skip")
    check(manifest)
    image_sizes(manifest)
    folds(manifest, folds=2)


def read_as_image(path: Path) -> None:
    is_image(path)
    read_image(path, size=16)


def read_as_splits(path: Path) -> None:
    table = pd.DataFrame({"id": IDS, "image": IDS, "grade": GRADES, "patient": PATIENTS})
    read_splits(path, Manifest(table=table, grades=("0", "1", "2")))


def read_as_settings(path: Path) -> None:
    TrainConfig.from_dict(load_config(path))


READERS: dict[str, list[Callable[[Path], object]]] = {
    "table": [read_source, lambda path: read_images([path])],
    "features": [read_source, read_ungraded_features],
    "medmnist": [read_source],
    "image": [read_as_image],
    "splits": [read_as_splits],
    "settings": [read_as_settings],
}


@contextlib.contextmanager
def time_limit(seconds: int = SECONDS) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"not finished after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("name", "make"), list(cases()))
def test_a_result_or_one_sentence(tmp_path: Path, name: str, make: Callable[[], bytes]) -> None:
    path = tmp_path / name
    path.write_bytes(make())
    for reader in READERS[name.split(".")[0]]:
        with time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(SrjtError):  # any other error fails the test
                reader(path)


# the command line is slower: all past findings and the strange contents
COMMAND_CASES = [
    case for case in cases() if "strange" in case.id or not case.id.split(": ")[1].isdigit()
]


def command_for(path: Path, labels: Path) -> list[object]:
    kind = path.name.split(".")[0]
    if kind == "splits":
        return ["train", labels, "--splits", path, "--fold", 0, "--out", "run"]
    if kind == "settings":
        return [
            "train",
            labels,
            "--config",
            path,
            "--fold",
            0,
            "--out",
            "run",
            "--network",
            "no-such",
        ]
    if kind == "image":
        (path.parent / "1").mkdir()
        (path.parent / "2").mkdir()
        path.rename(path.parent / "1" / path.name)
        return ["data", "inspect", path.parent, "--kind", "folders"]
    return ["data", "inspect", path]


@pytest.mark.parametrize(("name", "make"), COMMAND_CASES)
def test_commands_end_without_a_traceback(
    tmp_path: Path, name: str, make: Callable[[], bytes], monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "labels.csv").write_bytes(VALID["table.csv"]())
    path = tmp_path / "data" / name
    path.write_bytes(make())
    arguments = command_for(path, tmp_path / "labels.csv")
    monkeypatch.setattr(sys, "argv", ["srjt", *map(str, arguments)])
    with time_limit(), pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in (0, 1, 2)
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    if left.value.code == 2:
        assert said.err.splitlines()[-1].startswith("srjt: ")
