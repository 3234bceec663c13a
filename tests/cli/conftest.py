"""``srjt`` as a person runs it in a terminal of 80 columns, small data on disk, and a trained
run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from refusals import about, explained
from srjt.cli import main

TRAIN = [
    "--official-split", "--device", "cpu", "--noise-rate", "0.4", "--network", "tiny", "--image-size", "32",
    "--crop", "28", "--epochs", "2", "--batch-size", "16", "--learning-rate", "1e-3",
]  # fmt: skip


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


class Refusal(str):
    """The sentence of an error, and what it is about: its code and its option."""

    about: str


class Srjt:
    """``srjt …`` in the present folder: exit status, output, messages. words: what every command
    begins with."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: object) -> None:
        self.capsys, self.words = capsys, words

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["srjt", *map(str, (*self.words, *arguments))])
            with pytest.raises(SystemExit) as left:
                main()
        printed = self.capsys.readouterr()
        code = left.value.code
        return code if isinstance(code, int) else 0, printed.out, printed.err

    def prints(self, *arguments: object) -> str:
        """The output of a command that succeeds, without a message."""
        code, out, err = self(*arguments)
        assert (code, err) == (0, "")
        return out

    def refuses(self, *arguments: object) -> Refusal:
        """The one sentence of a command that ends because of its input."""
        with explained() as errors:
            code, _, err = self(*arguments)
        assert (code, err[:6], err.count("\n")) == (2, "srjt: ", 1), err
        refusal = Refusal(err)
        refusal.about = about(errors[0])
        return refusal

    def fails(self, about: str, says: str, *arguments: object) -> None:
        """The command is refused. about: code and option of the error. says: a value in it."""
        refusal = self.refuses(*arguments)
        assert (refusal.about, says in refusal) == (about, True), refusal


@pytest.fixture
def command(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Srjt:
    """Runs ``srjt …`` in a folder of its own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("SRJT_CACHE", str(cache))
    return Srjt(capsys)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences are wrapped as in a terminal, of 80 columns; without it, as in a pipe."""
    monkeypatch.setattr("srjt.cli.is_terminal", lambda *, err: True)


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """labels.csv with noisy and true grades, patients and a split, beside its images."""
    from srjt import noise
    from srjt.data import folds
    from srjt.data.splits import corrupt_sides
    from srjt.data.synthetic import generate, write

    clean = generate(images=120, patients=20, size=32)
    path = write(clean, tmp_path_factory.mktemp("data") / "set")
    split = folds(clean, folds=5, by="stratified")[0]
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    table = (
        corrupt_sides(clean, split, matrix, seed=0)[0]
        .table[["image", "grade", "true_grade", "patient"]]
        .copy()
    )
    for side, rows in split.sides().items():
        table.loc[rows, "split"] = side
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def finished(labelled: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    out = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["srjt", "train", str(labelled), "--out", str(out), "-q", *TRAIN]
        )
        patch.setenv("SRJT_CACHE", str(cache))
        with pytest.raises(SystemExit, match="0"):
            main()
    return out
