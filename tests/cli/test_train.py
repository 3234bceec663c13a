"""``srjt train`` and ``srjt features``."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import srjt
from srjt.cli import app
from srjt.cli.train import offer_preset
from srjt.errors import SrjtError, duration
from srjt.training.config import TrainConfig
from srjt.training.reporters import BarReporter
from srjt.training.single_run import training_seconds

from .conftest import TRAIN, Srjt

# ``srjt train`` as a person runs it.


@pytest.mark.slow
def test_a_whole_training(command: Srjt, labelled: Path) -> None:
    code, out, err = command("train", labelled, "--out", "runs/mine", *TRAIN)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sum(line.startswith("srjt: epoch ") for line in lines) == 2
    assert "test.acc" not in out
    shown = lines[next(k for k, line in enumerate(lines) if "one grade" in line) :]
    assert len(shown) <= 24
    assert_naive("\n".join(shown), pd.read_csv(labelled))
    assert lines[-3:] == [
        "The run is in runs/mine.",
        "Next: srjt report runs/mine",
        "To predict new samples: srjt predict runs/mine IMAGES --out predictions.csv",
    ]
    assert Path("runs/mine/summary.json").exists()
    out = command.prints("train", labelled, "--out", "runs/mine", *TRAIN)
    assert "runs/mine is already finished: nothing to do." in out
    assert "epoch 1/2" not in out


def test_the_best_epoch_without_a_validation_side_is_refused_before_anything_is_trained(
    command: Srjt, labelled: Path
) -> None:
    words = (
        "--no-official-split",
        "--keep",
        "best",
        "--preset",
        "cpu",
        "--device",
        "cpu",
        "--quiet",
    )
    code, out, err = command("train", labelled, "--out", "run", *words)
    assert (code, out) == (2, "")
    assert err.startswith(
        "srjt: --keep best chooses the epoch by the validation side, and this run has none: add --"
    )


def assert_naive(out: str, table: pd.DataFrame) -> None:
    """Beside the scores of the test side stand those of one grade for all; a run that does not beat
    them says so."""
    training = table.loc[table["split"] == "train", "grade"]
    truth = table.loc[table["split"] == "test", "true_grade"]
    mae = (truth - training.median()).abs().mean()
    naive = {"accuracy": (truth == training.mode()[0]).mean(), "mean absolute error": mae}
    scores = {}
    for name, value in naive.items():
        (found,) = re.findall(rf"{name} . +([\d.]+) .*one grade: ([\d.]+)", out)
        scores[name] = float(found[0])
        assert float(found[1]) == pytest.approx(value, abs=6e-4)
    worse = scores["mean absolute error"] >= round(mae, 3)  # which the grades are for
    assert out.startswith("No better than one grade for all") == worse
    assert out.lower().count("mean absolute error") == 2  # the verdict and its number: no other one


@pytest.mark.slow
def test_the_next_command_repeats_how_the_data_were_read(command: Srjt, labelled: Path) -> None:
    pd.read_csv(labelled).rename(columns={"image": "the file"}).to_csv("table.csv", index=False)
    read = ["--images", labelled.parent, "--image-column", "the file"]
    out = command.prints("train", "table.csv", *read, "--out", "my run", *TRAIN, "--epochs", 1)
    hint = out.splitlines()[-1].partition("To predict new samples: ")[2]
    assert hint == (
        f"srjt predict 'my run' TABLE --images {labelled.parent} --image-column 'the file' --out predictions.csv"
    )
    command.prints(*shlex.split(hint.replace("TABLE", "table.csv"))[1:])


def test_quiet(command: Srjt, labelled: Path) -> None:
    assert command("train", labelled, "--out", "run", "-q", *TRAIN) == (0, "", "")


@pytest.mark.slow
def test_the_data_s_own_split_is_used_unless_told_otherwise(command: Srjt, labelled: Path) -> None:
    """Rows marked as test must not be trained on because nobody said so."""
    arguments = [a for a in TRAIN if a != "--official-split"]
    out = command.prints("train", labelled, "--out", "own", *arguments, "--method", "standard")
    assert " test images of " in out
    nothing_held_out = (
        "All 120 images are used for training: how well the run grades new ones will not be known."
    )
    assert nothing_held_out not in out
    assert len(pd.read_csv("own/history.csv")) < 120
    arguments.append("--no-official-split")
    out = command.prints("train", labelled, "--out", "run", *arguments, "--method", "standard")
    assert nothing_held_out in out
    assert "own grades" not in out
    assert len(pd.read_csv("run/history.csv")) == 120


@pytest.mark.slow
def test_a_patient_on_two_sides_of_a_split_column_is_told_by_every_page(
    command: Srjt, labelled: Path
) -> None:
    table = pd.read_csv(labelled)
    shared = table.loc[table["split"] == "train", "patient"].iloc[0]
    row = table.index[table["split"] == "test"][0]
    table.loc[row, "patient"] = shared
    table.to_csv("shared.csv", index=False)
    images = ["--images", labelled.parent]
    _, out, _ = command("data", "inspect", "shared.csv", *images)
    assert "1 patient-on-two-sides" in out
    assert f"{shared}: train and test" in out
    assert command("train", "shared.csv", "--out", "run", *images, *TRAIN, "--log", "html")[0] == 0
    said = "1 patient is on more than one side of the split"
    assert said in Path("run/report.html").read_text()
    _, out, _ = command("predict", "run", labelled.parent, "--html", "predicted.html")
    assert said in " ".join(out.split())
    assert said in Path("predicted.html").read_text()
    _, _, err = command("evaluate", "run", "shared.csv", *images)
    assert "seen in training" in err or "was trained on" in err
    assert "--splits" not in err  # it would be refused
    assert "train again with --fold 0" in " ".join(err.split())


@pytest.mark.slow
def test_folds_by_patient(command: Srjt, labelled: Path) -> None:
    arguments = [a for a in TRAIN if a != "--official-split"]
    command.prints("train", labelled, "--out", "run", *arguments, "--fold", 1, "--folds", 4)
    facts = json.loads(Path("run/run.json").read_text())
    assert sum(facts["data"]["samples"].values()) == 120
    assert min(facts["data"]["samples"].values()) > 0
    patients = pd.read_csv(labelled).set_index("image")["patient"]
    trained = set(patients[pd.read_csv("run/history.csv")["id"]])
    assert 0 < len(trained) < patients.nunique()
    assert len(pd.read_csv("run/history.csv")) == patients.isin(trained).sum()
    wrong = [*arguments, "--fold", 7]
    command.fails("out_of_bounds fold", "fold 7", "train", labelled, "--out", "other", *wrong)


@pytest.mark.slow
def test_a_split_file_and_images_that_are_skipped(command: Srjt, labelled: Path) -> None:
    """Samples left out because their image is bad may be missing from what the split file names."""
    data = Path("data")
    shutil.copytree(labelled.parent, data)
    arguments = [a for a in TRAIN if a != "--official-split"]
    assert command("data", "split", data / "labels.csv", "--out", "splits.csv")[0] == 0
    first = pd.read_csv(data / "labels.csv")["image"][0]
    (data / first).write_bytes(b"not an image")
    err = command.refuses(
        "train", data / "labels.csv", "--out", "run", *arguments, "--splits", "splits.csv"
    )
    assert "--on-bad-image skip" in err
    skip = ["--splits", "splits.csv", "--on-bad-image", "skip"]
    code, _, err = command("train", data / "labels.csv", "--out", "run", *arguments, *skip)
    assert code == 0, err
    assert sum(json.loads(Path("run/run.json").read_text())["data"]["samples"].values()) == 119


@pytest.mark.slow
def test_settings_are_layered_and_saved(command: Srjt, labelled: Path) -> None:
    Path("run.yaml").write_text(
        "method: co-teaching+ours\nweight_decay: 1e-3\nseed: 3\nmethod_options: {ramp_epochs: 2}\n"
    )
    more = ["--config", "run.yaml", "--seed", 4, "--set", "method_options.per_class=true"]
    command.prints("train", labelled, "--out", "run", *TRAIN, *more)
    config = json.loads(Path("run/run.json").read_text())["config"]
    assert (config["weight_decay"], config["seed"], config["noise_rate"]) == (1e-3, 4, 0.4)
    assert config["method_options"] == {"ramp_epochs": 2, "per_class": True}


@pytest.mark.slow
def test_a_transition_matrix_from_a_file(command: Srjt, labelled: Path) -> None:
    matrix = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    np.savetxt("matrix.csv", matrix, delimiter=",")
    command.prints(
        "train", labelled, "--out", "run", *TRAIN, "--method", "garg", "--transition", "matrix.csv"
    )
    Path("bad.csv").write_text("a,b\n")
    bad = ["train", labelled, "--out", "x", *TRAIN, "--transition", "bad.csv"]
    command.fails("wrong_file transition", "bad.csv", *bad)


@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (["--method", "co-teeching"], "unknown_name method", "'co-teaching'"),
        (["--network", "resnet19"], "unknown_name", "'resnet19'"),
        (["--set", "epoch=3"], "unknown_name", "'epochs'"),
        (["--set", "epochs"], "wrong_syntax set", ""),
        (["--weight-decay", "-1"], "out_of_bounds weight_decay", ""),
        (["--config", "none.yaml"], "missing_file", "none.yaml"),
        (["--crop", "64"], "out_of_bounds crop", ""),
        (["--fold", "0"], "conflict official_split", ""),
        (["--device", "cuda"], "no_gpu device", ""),
        (["--on-bad-image", "skpi"], "unknown_name on_bad_image", "'skip'"),
        (
            ["--set", "method_options.per_class=true", "--method", "standard"],
            "unknown_name",
            "'per_class'",
        ),
        (["--out", "here.txt"], "unwritable_file", "here.txt"),
    ],
)
def test_mistakes_are_one_sentence(
    command: Srjt,
    labelled: Path,
    arguments: list[str],
    about: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Path("here.txt").write_text("")
    command.fails(about, says, "train", labelled, "--out", "run", *TRAIN, *arguments)
    assert not Path("run/weights.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "about", "says"),
    [
        (["--method", "jocor"], "missing_option noise_rate", ""),
        (
            ["--method", "garg"],
            "missing_option transition",
            "",
        ),
        (["--method", "standard", "--fold", 5], "out_of_bounds fold", ""),
        (
            ["--folds", 0],
            "out_of_bounds folds",
            "",
        ),
        (["--out", "thesis"], "folder_in_use out", ""),
        (
            ["--method", "standard", "--network", "tini"],
            "unknown_name",
            "'tiny'",
        ),
    ],
)
def test_mistakes_that_cost_no_time(
    command: Srjt, arguments: list[str], about: str, says: str
) -> None:
    """Told before the data are even looked for."""
    Path("thesis").mkdir()
    Path("thesis/thesis.tex").write_text("")
    command.fails(about, says, "train", "nowhere.csv", "--out", "run", *arguments)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_spoken_of_at_once(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first epoch, not when hours have passed: here an error follows it."""
    assert (
        command("train", labelled, "--out", "run", "-q", *TRAIN, "--set", "checkpoint_seconds=0")[0]
        == 0
    )
    Path("run/summary.json").unlink()
    *_, newest = sorted(Path("run/checkpoints").iterdir())
    newest.write_bytes(b"")

    def stop(self: object, epoch: int, step: int, steps: int) -> None:
        raise SrjtError("Enough.")

    monkeypatch.setattr(BarReporter, "stepped", stop)
    code, _, err = command("train", labelled, "--out", "run", *TRAIN)
    assert code == 2
    warning, error = err.splitlines()
    assert warning.startswith("Warning: run/checkpoints/step-")
    assert warning.endswith("Falling back to the previous checkpoint.")
    assert error == "srjt: Enough."


# ``srjt train --dry-run``: the plan, and nothing else.


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    return Path(srjt.data.synthetic.write(data, tmp_path / "set"))


@pytest.mark.parametrize(
    ("settings", "images", "offered"),
    [
        ({}, 1000, True),
        ({}, 100, True),
        ({}, 50, False),
        ({"network": "tiny"}, 1000, False),
        ({"preset": "cpu"}, 1000, False),
    ],
)
def test_a_training_of_hours_on_a_cpu_offers_a_short_one(
    settings: dict[str, Any], images: int, offered: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    offer_preset(TrainConfig().replace(**settings), images=images, device="cpu")
    assert ("--preset cpu" in capsys.readouterr().out) == offered


@pytest.mark.parametrize(("minutes", "offered"), [(5, False), (30, True)])
def test_a_plan_of_a_long_training_offers_a_short_one(
    labels: Path,
    tmp_path: Path,
    minutes: int,
    offered: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "srjt.training.single_run.training_seconds", lambda *_, **__: 60.0 * minutes
    )
    plan = ["--fold", "0", "--noise-rate", "0.2", "--device", "cpu", "--dry-run"]
    command = ["train", str(labels), "--out", str(tmp_path / "run"), *plan]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "400"})
    assert "Nothing was trained" in result.stdout
    assert ("There is no GPU. --preset cpu takes minutes" in result.stdout) == offered


@pytest.mark.parametrize(
    ("more", "length", "by_size"),
    [
        ([], "40 epochs in batches of 16", True),
        (["--preset", "paper"], "150 epochs in batches of 64", False),
        (["--epochs", "7", "--batch-size", "8"], "7 epochs in batches of 8", False),
    ],
)
def test_it_says_why_so_many_epochs(
    labels: Path, tmp_path: Path, more: list[str], length: str, by_size: bool
) -> None:
    # a dry run measures its pace, and a large network takes ten seconds
    small = ["--network", "tiny", "--image-size", "32", "--crop", "28"]
    plan = ["--fold", "0", "--noise-rate", "0.2", "--method", "srjt", "--dry-run", *small]
    command = ["train", str(labels), "--out", str(tmp_path / "run"), *plan, *more]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "400"})
    assert length in result.stdout
    assert ("are chosen for 60 images" in result.stdout) == by_size


def test_it_prints_the_plan_and_writes_nothing(labels: Path, tmp_path: Path) -> None:
    small = [
        "--network",
        "tiny",
        "--image-size",
        "32",
        "--crop",
        "28",
        "--epochs",
        "3",
        "--batch-size",
        "16",
    ]
    command = [
        "train",
        str(labels),
        "--out",
        str(tmp_path / "run"),
        "--fold",
        "0",
        "--noise-rate",
        "0.2",
        *small,
    ]
    result = CliRunner().invoke(
        app, [*command, "--method", "co-teaching+ours", "--dry-run"], env={"COLUMNS": "80"}
    )
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "co-teaching+ours: 2 × tiny, 3 epochs in batches of 16." in text
    assert "Nothing was trained" in text
    assert "validation" in text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("rate", "estimated"), [("auto", True), ("0.2", False)])
def test_the_time_of_the_noise_estimate_is_said(
    labels: Path, tmp_path: Path, rate: str, estimated: bool
) -> None:
    small = ["--network", "tiny", "--image-size", "32", "--crop", "28", "--epochs", "3"]
    plan = ["--fold", "0", "--noise-rate", rate, "--method", "srjt", "--dry-run", *small]
    command = ["train", str(labels), "--out", str(tmp_path / "run"), *plan]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "400"})
    assert ("s before that, to estimate the noise rate." in result.stdout) == estimated
    assert "not included" not in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("features", [False, True])
def test_the_time_is_measured_without_a_trace(features: bool) -> None:
    data = srjt.data.synthetic.generate(images=50, patients=10, size=32)
    settings: dict[str, Any] = {
        "network": "tiny",
        "image_size": 32,
        "crop": 28,
        "pretrained": False,
    }
    if features:
        data, settings = (
            srjt.data.from_arrays(np.zeros((50, 3)), data.labels),
            {"network": "linear"},
        )
    settings |= {"keep": "best", "patience": 2}
    config = TrainConfig(
        method="co-teaching", noise_rate="auto", epochs=300, batch_size=16, **settings
    )
    before, device = torch.get_rng_state(), torch.device("cpu")
    seconds = training_seconds(data, srjt.data.folds(data)[0], config=config, device=device)
    assert 0.01 < seconds < 3600
    assert torch.equal(torch.get_rng_state(), before)


def test_times_read_as_people_write_them() -> None:
    times = (0.2, 40, 720, 3.5 * 3600, 4 * 3600, 15 * 86400)
    assert [duration(s) for s in times] == ["1 s", "40 s", "12 min", "3.5 h", "4.0 h", "15 days"]


# From images to features to trained heads, as typed; and features made elsewhere in every command.

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
QUICK = ["--epochs", 3, "--batch-size", 16, "--noise-rate", 0.4, "--device", "cpu"]


@pytest.fixture
def embedded(command: Srjt, labelled: Path) -> Path:
    """features.npz of the small labelled images, in the present folder."""
    assert command("features", labelled, *SMALL)[0] == 0
    return Path("features.npz").absolute()


@pytest.mark.slow
def test_made_trained_judged_applied(command: Srjt, embedded: Path, labelled: Path) -> None:
    with np.load(embedded, allow_pickle=False) as made:
        assert made["features"].shape == (120, 1536)
        assert made["features"].dtype == np.float32
        assert Path(str(made["images"][0])) == labelled.parent / pd.read_csv(labelled)["image"][0]
        assert {"grades", "ids", "patients", "true_grades", "split", "grade_names"} <= set(
            made.files
        )
        assert json.loads(str(made["made"]))["backbone"] == "tiny"

    code, _, said = command("train", embedded, "--out", "run", *QUICK, "--quiet")
    assert code == 0, said
    config = json.loads(Path("run/run.json").read_text())["config"]
    assert (config["network"], config["learning_rate"]) == ("odds", None)
    assert (
        command("train", embedded, "--out", "run", *QUICK, "--quiet")[0] == 0
    )  # finished: the same command

    said = command.prints("evaluate", "run", embedded, "--side", "test", "--device", "cpu")
    tested = int((pd.read_csv(labelled)["split"] == "test").sum())
    assert f" on {tested} rows of features" in said

    said = command.prints("predict", "run", embedded, "--device", "cpu")
    assert ". 120 rows of features: " in said
    table = pd.read_csv("predictions.csv")
    assert len(table) == 120
    assert Path(table["image"][5]).is_file()

    code, _, said = command("predict", "run", embedded, embedded, "--force")
    assert code == 2
    assert "one file of features at a time" in said
    for option, value in (("--images", labelled.parent), ("--image-column", "images")):
        code, _, said = command("predict", "run", embedded, option, value, "--force")
        sentence = (
            f"{option} is about images, and this run takes rows of 1,536 features: leave it out."
        )
        assert (code, said) == (2, f"srjt: {sentence}\n")

    # images where features are wanted: the sentence ends with the command that makes them
    folder = labelled.parent
    code, _, said = command("predict", "run", folder, "--force")
    words = shlex.split(said.partition("with the settings of the training: ")[2])
    assert (code, words[:4]) == (2, ["srjt", "features", str(folder), "--ungraded"])
    assert command(*words[1:], "--no-pretrained", "--force")[0] == 0
    assert command("predict", "run", "features.npz", "--force")[0] == 0
    assert pd.read_csv("predictions.csv")["image"].str.endswith(".png").all()


def test_ungraded_images_have_patients(command: Srjt, labelled: Path) -> None:
    pd.read_csv(labelled).head(4).rename(columns={"patient": "case"}).to_csv("new.csv", index=False)
    how = ["--images", labelled.parent, "--patient-column", "case", "--split-column", "split"]
    code, _, said = command("features", "new.csv", "--ungraded", *how, *SMALL)
    assert (code, said) == (0, "These options have no effect with --ungraded: --split-column.\n")
    with np.load("features.npz") as made:
        assert made["patients"].tolist() == pd.read_csv("new.csv", dtype=str)["case"].tolist()
    code, _, said = command("features", labelled.parent, "--ungraded", *how[2:4], "--force", *SMALL)
    assert (code, said) == (
        2,
        f"srjt: --patient-column applies to a table of images, and {labelled.parent} is a folder.\n",
    )


@pytest.mark.slow
def test_features_made_in_another_way_are_refused(
    command: Srjt, embedded: Path, labelled: Path
) -> None:
    assert command("train", embedded, "--out", "run", *QUICK, "--quiet")[0] == 0
    assert command("features", labelled, *SMALL, "--flip", "--out", "flipped.npz")[0] == 0
    for verb in ("predict", "evaluate"):
        said = command.refuses(verb, "run", "flipped.npz", "--device", "cpu")
        assert "trained on features with other settings" in said


def test_what_cannot_be_written_is_known_first(command: Srjt, labelled: Path) -> None:
    wrong = ["features", labelled, *SMALL, "--out", "features.csv"]
    command.fails("wrong_file out", "features.csv", *wrong)
    Path("file").write_text("")
    assert "cannot be written" in command.refuses(
        "features", labelled, *SMALL, "--out", "file/features.npz"
    )


def test_a_stopped_command_continues(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from srjt.training import frozen

    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(frozen, "SAVE_SECONDS", 0)
    save, saved = frozen.save_chunk, 0

    def stop_after_two(*arguments: Any) -> None:
        nonlocal saved
        save(*arguments)
        saved += 1
        if saved == 2:
            raise SrjtError("stopped")

    monkeypatch.setattr(frozen, "save_chunk", stop_after_two)
    arguments = ["features", labelled, *SMALL, "--batch-size", 32]
    assert command(*arguments)[0] == 2
    assert not Path("features.npz").exists()
    out = command.prints(*arguments)
    assert re.match(r"features.npz has 1,536 features by .* of each of 120 images\.", out)


@pytest.mark.slow
def test_a_study_on_features(command: Srjt, embedded: Path) -> None:
    options: list[Any] = [
        "--methods",
        "sord co-teaching+ours",
        "--noise",
        "quasi:0.3",
        "--folds",
        3,
        "--fold",
        0,
    ]
    options += [
        "--set",
        "batch_size=16",
        "--epochs",
        2,
        "--device",
        "cpu",
        "--jobs",
        1,
        "--out",
        "study",
    ]
    with np.load(embedded) as made:
        clean = {name: made[name] for name in made.files if name != "true_grades"}
    np.savez("clean.npz", **clean)
    code, said, error = command("study", "clean.npz", *options)
    assert code == 0, said + error
    assert "120 rows of features" in said
    runs = sorted(Path("study/runs").iterdir())
    assert len(runs) == 2
    assert json.loads((runs[0] / "run.json").read_text())["config"]["network"] == "mlp"
    code, said, _ = command("study", "clean.npz", *options, "--dry-run")
    assert "2 done, 0 to do" in said
    clean["features"][0, 0] += 1  # other features under the same names are other runs
    np.savez("clean.npz", **clean)
    code, said, _ = command("study", "clean.npz", *options, "--dry-run")
    assert "0 done, 2 to do" in said


# ``--log html``.


@pytest.mark.slow
def test_a_live_page_and_a_report(command: Srjt, labelled: Path) -> None:
    """Also if the noise is estimated first, when the page is there before the run."""
    auto = ("--method", "co-teaching", "--noise-rate", "auto")
    code, out, _ = command("train", labelled, "--out", "run", *TRAIN, *auto, "--log", "html")
    assert code == 0
    assert "The training is shown in run/live.html." in out
    assert "refresh" not in Path("run/live.html").read_text().split("<style>")[0]  # finished
    assert "srjt train" in Path("run/report.html").read_text()  # the command


def test_an_unknown_tracker_is_an_error_before_anything_is_trained(
    command: Srjt, labelled: Path
) -> None:
    err = command.refuses("train", labelled, "--out", "run", *TRAIN, "--log", "htm")
    assert "Unknown tracker 'htm': did you mean 'html'?" in err
    assert not Path("run").exists()
