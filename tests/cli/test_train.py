"""``srjt train`` as a person runs it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from srjt.errors import SrjtError
from srjt.training.record.reporters import PlainReporter

Srjt = Callable[..., tuple[int, str, str]]
TRAIN = [
    "--official-split", "--device", "cpu", "--noise-rate", "0.4", "--network", "tiny", "--image-size", "32",
    "--crop", "28", "--epochs", "2", "--batch-size", "16", "--learning-rate", "1e-3", "--set", "tune_cpu=false",
]  # fmt: skip


def test_a_whole_training(command: Srjt, labelled: Path) -> None:
    code, out, err = command("train", labelled, "--out", "runs/mine", *TRAIN)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sum(line.startswith("srjt: epoch ") for line in lines) == 2
    titles = " ".join(out.split())
    assert (
        "Each network's own grades, as in the paper: mean over the last 2 epochs; mean over the networks"
        in titles
    )
    assert "The answers of srjt predict: the median, for the least absolute error" in titles
    assert re.findall(r"│ (test|validation) ", out) == ["test", "validation"] * 2
    assert "test.acc" not in out
    assert_naive(out, "test", pd.read_csv(labelled))
    assert lines[-2:] == [
        "The run is in runs/mine.",
        "Next: srjt predict runs/mine IMAGES --out predictions.csv",
    ]
    assert Path("runs/mine/summary.json").exists()
    code, out, _ = command("train", labelled, "--out", "runs/mine", *TRAIN)
    assert code == 0
    assert "runs/mine is already finished: nothing to do." in out
    assert "epoch 1/2" not in out


def assert_naive(out: str, side: str, table: pd.DataFrame) -> None:
    """Beside the scores of a side stand those of one grade for all, and a run that does not beat them says so."""
    training = table.loc[table["split"] == "train", "grade"]
    truth = table.loc[table["split"] == side, "true_grade"]
    accuracy = (truth == training.mode()[0]).mean()
    mae = (truth - training.median()).abs().mean()
    tables = re.findall(rf"│ {side} +│ +([\d.]+) │ +([\d.]+) .*\n│   naive +│ +([\d.]+) │ +([\d.]+) ", out)
    assert len(tables) == 2, out
    scores = [float(number) for number in tables[1]]  # of the answers of srjt predict
    assert tables[0][2:] == tables[1][2:]
    assert scores[2:] == [pytest.approx(accuracy, abs=6e-4), pytest.approx(mae, abs=6e-4)]
    worse = scores[1] >= scores[3]  # the MAE, which the grades are for
    assert (f"This run does not beat a naive prediction on the {side} side" in out) == worse


def test_test_scores_during_the_training_on_request(command: Srjt, labelled: Path) -> None:
    code, out, _ = command("train", labelled, "--out", "run", *TRAIN, "--epochs", 1, "--show-test")
    assert code == 0
    assert re.search(r"epoch 1/1 .*val\.acc .*test\.acc .*test\.mae ", out)


def test_the_next_command_repeats_how_the_data_were_read(command: Srjt, labelled: Path) -> None:
    pd.read_csv(labelled).rename(columns={"image": "the file"}).to_csv("table.csv", index=False)
    read = ["--images", labelled.parent, "--image-column", "the file"]
    code, out, _ = command("train", "table.csv", *read, "--out", "my run", *TRAIN, "--epochs", 1)
    assert code == 0
    hint = out.splitlines()[-1].partition("Next: ")[2]
    assert hint == (
        f"srjt predict 'my run' TABLE --images {labelled.parent} --image-column 'the file' --out predictions.csv"
    )
    code, _, err = command(*shlex.split(hint.replace("TABLE", "table.csv"))[1:])
    assert (code, err) == (0, "")


def test_quiet(command: Srjt, labelled: Path) -> None:
    assert command("train", labelled, "--out", "run", "-q", *TRAIN) == (0, "", "")


def test_the_data_s_own_split_is_used_unless_told_otherwise(command: Srjt, labelled: Path) -> None:
    """Rows marked as test must not be trained on because nobody said so."""
    arguments = [a for a in TRAIN if a != "--official-split"]
    code, out, _ = command("train", labelled, "--out", "own", *arguments, "--method", "standard")
    assert code == 0
    assert "The network's own grades" in out
    nothing_held_out = (
        "All 120 images are used for training: how well the run grades new ones will not be known."
    )
    assert nothing_held_out not in out
    assert len(pd.read_csv("own/history.csv")) < 120
    arguments.append("--no-official-split")
    code, out, _ = command("train", labelled, "--out", "run", *arguments, "--method", "standard")
    assert code == 0
    assert nothing_held_out in out
    assert "own grades" not in out
    assert len(pd.read_csv("run/history.csv")) == 120


def test_folds_by_patient(command: Srjt, labelled: Path) -> None:
    arguments = [a for a in TRAIN if a != "--official-split"]
    code, _, err = command("train", labelled, "--out", "run", *arguments, "--fold", 1, "--folds", 4)
    assert (code, err) == (0, "")
    facts = json.loads(Path("run/run.json").read_text())
    assert sum(facts["data"]["samples"].values()) == 120
    assert min(facts["data"]["samples"].values()) > 0
    patients = pd.read_csv(labelled).set_index("image")["patient"]
    trained = set(patients[pd.read_csv("run/history.csv")["id"]])
    assert 0 < len(trained) < patients.nunique()
    assert len(pd.read_csv("run/history.csv")) == patients.isin(trained).sum()
    code, _, err = command("train", labelled, "--out", "other", *arguments, "--fold", 7)
    assert code == 2
    assert "There is no fold 7: folds are numbered 0 … 4." in err


def test_a_split_file_and_images_that_are_skipped(command: Srjt, labelled: Path) -> None:
    """Samples left out because their image is bad may be missing from what the split file names."""
    data = Path("data")
    shutil.copytree(labelled.parent, data)
    arguments = [a for a in TRAIN if a != "--official-split"]
    assert command("data", "split", data / "labels.csv", "--out", "splits.csv")[0] == 0
    first = pd.read_csv(data / "labels.csv")["image"][0]
    (data / first).write_bytes(b"not an image")
    code, _, err = command("train", data / "labels.csv", "--out", "run", *arguments, "--splits", "splits.csv")
    assert code == 2
    assert "--on-bad-image skip" in err
    assert len(err.splitlines()) == 1
    skip = ["--splits", "splits.csv", "--on-bad-image", "skip"]
    code, _, err = command("train", data / "labels.csv", "--out", "run", *arguments, *skip)
    assert code == 0, err
    assert sum(json.loads(Path("run/run.json").read_text())["data"]["samples"].values()) == 119


def test_settings_are_layered_and_saved(command: Srjt, labelled: Path) -> None:
    Path("run.yaml").write_text(
        "method: co-teaching+ours\nweight_decay: 1e-3\nseed: 3\nmethod_options: {ramp_epochs: 2}\n"
    )
    more = ["--config", "run.yaml", "--seed", 4, "--per-class", "--set", "method_options.temperature=0.5"]
    code, _, err = command("train", labelled, "--out", "run", *TRAIN, *more)
    assert (code, err) == (0, "")
    config = json.loads(Path("run/run.json").read_text())["config"]
    assert (config["weight_decay"], config["seed"], config["noise_rate"]) == (1e-3, 4, 0.4)
    assert config["method_options"] == {"ramp_epochs": 2, "per_class": True, "temperature": 0.5}


def test_a_transition_matrix_from_a_file(command: Srjt, labelled: Path) -> None:
    matrix = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    np.savetxt("matrix.csv", matrix, delimiter=",")
    code, _, err = command(
        "train", labelled, "--out", "run", *TRAIN, "--method", "garg", "--transition", "matrix.csv"
    )
    assert (code, err) == (0, "")
    Path("bad.csv").write_text("a,b\n")
    code, _, err = command("train", labelled, "--out", "x", *TRAIN, "--transition", "bad.csv")
    assert code == 2
    assert "bad.csv cannot be read as a matrix" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "co-teeching"], "Unknown method 'co-teeching': did you mean 'co-teaching'"),
        (["--network", "resnet19"], "Unknown network 'resnet19'"),
        (["--set", "epoch=3"], "Unknown setting 'epoch': did you mean 'epochs'"),
        (["--set", "epochs"], "--set takes name=value"),
        (["--set", "epochs=[1"], "not valid YAML"),
        (["--set", "milestones=5"], "milestones takes a list"),
        (["--set", "method_options.co_lambda=high"], "co_lambda takes a number; got 'high'."),
        (["--set", "weight_decay=-1"], "weight_decay cannot be negative"),
        (["--config", "none.yaml"], "There is no configuration file none.yaml"),
        (["--crop", "64"], "--crop (64) cannot be larger than --image-size (32)"),
        (["--fold", "0"], "cannot be combined"),
        (["--device", "cuda"], "torch finds no GPU on this machine"),
        (["--on-bad-image", "skpi"], "did you mean 'skip'"),
        (["--per-class", "--method", "standard"], "Unknown option of standard 'per_class'"),
        (["--out", "here.txt"], "here.txt"),
    ],
)
def test_mistakes_are_one_sentence(command: Srjt, labelled: Path, arguments: list[str], said: str) -> None:
    Path("here.txt").write_text("")
    code, _, err = command("train", labelled, "--out", "run", *TRAIN, *arguments)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
    assert err.startswith("srjt: ")
    assert not Path("run/weights.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "jocor"], "jocor needs the share of wrong labels: --noise-rate 0.2"),
        (["--method", "garg"], "garg needs the matrix of label errors: --transition FILE"),
        (["--method", "standard", "--fold", 5], "There is no fold 5: folds are numbered 0 … 4."),
        (["--folds", 0], "--folds is the number of folds, at least 3, not 0: --fold 0 chooses one of five."),
        (["--out", "thesis"], "thesis already contains other files: choose another --out."),
        (["--method", "standard", "--network", "tini"], "Unknown network 'tini': did you mean 'tiny'"),
    ],
)
def test_mistakes_that_cost_no_time(command: Srjt, arguments: list[str], said: str) -> None:
    """Told before the data are even looked for."""
    Path("thesis").mkdir()
    Path("thesis/thesis.tex").write_text("")
    code, _, err = command("train", "nowhere.csv", "--out", "run", *arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert said in err


def test_another_configuration_in_the_folder(command: Srjt, labelled: Path) -> None:
    assert command("train", labelled, "--out", "run", "-q", *TRAIN)[0] == 0
    code, _, err = command("train", labelled, "--out", "run", *TRAIN, "--seed", 5)
    assert code == 2
    assert (
        "run contains a run of another configuration (seed was 0 and is now 5): choose another --out" in err
    )


def test_a_damaged_checkpoint_is_spoken_of_at_once(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first epoch, not when hours have passed: here an error follows it."""
    assert command("train", labelled, "--out", "run", "-q", *TRAIN, "--set", "checkpoint_seconds=0")[0] == 0
    Path("run/summary.json").unlink()
    *_, newest = sorted(Path("run/checkpoints").iterdir())
    newest.write_bytes(b"")

    def stop(self: object, epoch: int, step: int, steps: int) -> None:
        raise SrjtError("Enough.")

    monkeypatch.setattr(PlainReporter, "stepped", stop)
    code, _, err = command("train", labelled, "--out", "run", *TRAIN)
    assert code == 2
    warning, error = err.splitlines()
    assert warning.startswith("Warning: run/checkpoints/step-")
    assert warning.endswith("Falling back to the previous checkpoint.")
    assert error == "srjt: Enough."


def test_no_patients_is_warned_of(command: Srjt, labelled: Path) -> None:
    table = pd.read_csv(labelled).drop(columns=["patient", "split"])
    table.to_csv("labels.csv", index=False)
    arguments = [a for a in TRAIN if a != "--official-split"]
    code, _, err = command(
        "train", "labels.csv", "--images", labelled.parent, "--out", "run", "-q", *arguments, "--fold", 0
    )
    assert code == 0
    assert err.splitlines() == [
        line for line in err.splitlines() if line.startswith("Warning: There are no patient ids")
    ]
    assert len(err.splitlines()) == 1
