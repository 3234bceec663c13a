"""From images to features to trained heads, as typed; and features made elsewhere in every command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from srjt.errors import SrjtError

Srjt = Callable[..., tuple[int, str, str]]
SMALL = ["--backbone", "tiny", "--no-pretrained", "--image-size", 32, "--crop", 28, "--device", "cpu"]
QUICK = ["--epochs", 3, "--batch-size", 16, "--noise-rate", 0.4, "--device", "cpu"]


@pytest.fixture
def embedded(command: Srjt, labelled: Path) -> Path:
    """features.npz of the small labelled images, in the present folder."""
    assert command("features", labelled, *SMALL)[0] == 0
    return Path("features.npz").absolute()


def test_a_table_of_features_belongs_to_train(command: Srjt, tmp_path: Path) -> None:
    rows = "".join(f"{row}.png,{row % 3},{row},{row / 2}\n" for row in range(12))
    (tmp_path / "table.csv").write_text(f"image,grade,f0,f1\n{rows}")
    code, _, said = command("features", tmp_path / "table.csv", "--images", tmp_path, *SMALL)
    assert code == 2
    assert "srjt train reads them with --feature-columns 'f*'." in said
    assert "feature_columns" not in said


def test_made_trained_judged_applied(command: Srjt, embedded: Path, labelled: Path) -> None:
    with np.load(embedded, allow_pickle=False) as made:
        assert made["features"].shape == (120, 1536)
        assert made["features"].dtype == np.float32
        assert Path(str(made["images"][0])) == labelled.parent / pd.read_csv(labelled)["image"][0]
        assert {"grades", "ids", "patients", "true_grades", "split", "grade_names"} <= set(made.files)
        assert json.loads(str(made["made"]))["backbone"] == "tiny"

    code, _, said = command("train", embedded, "--out", "run", *QUICK, "--quiet")
    assert code == 0, said
    config = json.loads(Path("run/run.json").read_text())["config"]
    assert (config["network"], config["learning_rate"]) == ("mlp", 3e-4)
    assert command("train", embedded, "--out", "run", *QUICK, "--quiet")[0] == 0  # finished: the same command

    code, said, _ = command("evaluate", "run", embedded, "--side", "test", "--device", "cpu")
    assert code == 0
    tested = int((pd.read_csv(labelled)["split"] == "test").sum())
    assert f"{tested} rows of features, judged by their true grades" in said

    code, said, _ = command("predict", "run", embedded, "--device", "cpu")
    assert code == 0
    assert said.startswith("120 rows of features: ")
    table = pd.read_csv("predictions.csv")
    assert len(table) == 120
    assert Path(table["image"][5]).is_file()

    code, _, said = command("predict", "run", embedded, embedded, "--force")
    assert code == 2
    assert "one file of features at a time" in said
    for option, value in (("--images", labelled.parent), ("--image-column", "images")):
        code, _, said = command("predict", "run", embedded, option, value, "--force")
        sentence = f"{option} is about images, and this run takes rows of 1,536 features: leave it out."
        assert (code, said) == (2, f"srjt: {sentence}\n")

    # images where features are wanted: the sentence ends with the command that makes them
    folder = labelled.parent
    code, _, said = command("predict", "run", folder, "--force")
    words = shlex.split(said.partition("as those of the training: ")[2])
    assert (code, words[:4]) == (2, ["srjt", "features", str(folder), "--ungraded"])
    assert command(*words[1:], "--no-pretrained", "--force")[0] == 0
    assert command("predict", "run", "features.npz", "--force")[0] == 0
    assert pd.read_csv("predictions.csv")["image"].str.endswith(".png").all()


def test_ungraded_images_have_patients(command: Srjt, labelled: Path) -> None:
    pd.read_csv(labelled).head(4).rename(columns={"patient": "case"}).to_csv("new.csv", index=False)
    how = ["--images", labelled.parent, "--patient-column", "case", "--split-column", "split"]
    code, _, said = command("features", "new.csv", "--ungraded", *how, *SMALL)
    assert (code, said) == (0, "Without effect beside --ungraded: --split-column.\n")
    with np.load("features.npz") as made:
        assert made["patients"].tolist() == pd.read_csv("new.csv", dtype=str)["case"].tolist()
    code, _, said = command("features", labelled.parent, "--ungraded", *how[2:4], "--force", *SMALL)
    assert (code, said) == (
        2,
        f"srjt: --patient-column applies to a table of images, and {labelled.parent} is none: give a table, or leave "
        "it out.\n",
    )


def test_features_made_in_another_way_are_refused(command: Srjt, embedded: Path, labelled: Path) -> None:
    assert command("train", embedded, "--out", "run", *QUICK, "--quiet")[0] == 0
    assert command("features", labelled, *SMALL, "--flip", "--out", "flipped.npz")[0] == 0
    for verb in ("predict", "evaluate"):
        code, _, said = command(verb, "run", "flipped.npz", "--device", "cpu")
        assert code == 2
        assert "trained on features with other settings" in said
        assert said.count("\n") == 1


def test_inspect_split_corrupt(command: Srjt, embedded: Path) -> None:
    code, said, _ = command("data", "inspect", embedded)
    assert code == 0
    assert "1,536 columns from" in said
    assert "made by backbone tiny" in said
    assert not Path("contact_sheet.png").exists()
    assert command("data", "split", embedded)[0] == 0

    with np.load(embedded) as made:
        clean = {name: made[name] for name in made.files if name != "true_grades"}
    np.savez("clean.npz", **clean)
    code, said, _ = command("data", "corrupt", "clean.npz", "--rate", 0.4, "--include-test")
    assert code == 0, said
    code, said, _ = command(
        "data", "corrupt", "clean.npz", "--rate", 0.4, "--include-test", "--out", "noisy.csv"
    )
    assert code == 0, said
    given = ["--out", "a", *QUICK, "--fold", 0, "--quiet"]
    assert command("train", "clean_quasi_0.4_seed0.npz", *given)[0] == 0
    given[1] = "b"
    assert command("train", "clean.npz", "--labels", "noisy.csv", *given)[0] == 0
    assert Path("a/weights.safetensors").read_bytes() == Path("b/weights.safetensors").read_bytes()


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
    options += ["--set", "batch_size=16", "--epochs", 2, "--device", "cpu", "--jobs", 1, "--out", "study"]
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


@pytest.mark.slow
def test_tables_with_feature_columns(command: Srjt) -> None:
    draws = np.random.default_rng(0)
    grades = draws.integers(0, 3, 60)
    columns = {f"f{i}": grades + draws.normal(size=60) for i in range(4)}
    pd.DataFrame({"id": range(60), "grade": grades, "age": 50, **columns}).to_csv("t.csv", index=False)
    code, said, _ = command("data", "inspect", "t.csv", "--feature-columns", "f*")
    assert code == 0
    assert "4 columns from" in said
    code, _, said = command(
        "train", "t.csv", "--feature-columns", "f*", "--out", "run", *QUICK, "-q", "--epochs", 1
    )
    assert code == 0, said
    code, said, _ = command("predict", "run", "t.csv", "--feature-columns", "f*", "--device", "cpu")
    assert code == 0
    assert said.startswith("60 rows of features")
    columns = {name: values[:1] for name, values in columns.items()}
    pd.DataFrame({"id": [0], "patient": ["A"], **columns}).to_csv("one.csv", index=False)
    how = ["--feature-columns", "f*", "--device", "cpu", "--force"]
    assert command("predict", "run", "one.csv", *how)[1].startswith("1 row of features: ")
    code, said, _ = command("predict", "run", "one.csv", *how, "--per", "patient", "--html", "one.html")
    assert said.startswith("1 row of features, one answer per patient (1): ")
    assert "1 row of features, one answer per patient: 1." in Path("one.html").read_text()
    assert "on `mlp`, 1 epoch." in Path("run/MODEL_CARD.md").read_text()

    # without a column that could name images, such names of columns are recognised
    pd.read_csv("t.csv").drop(columns="id").to_csv("plain.csv", index=False)
    quick = ("--epochs", 1, "--folds", 2, "--device", "cpu", "--jobs", 1)
    code, said, _ = command("audit", "plain.csv", "--out", "audit", *quick)
    assert code == 0
    assert "srjt review audit" not in said  # there is no image to show
    assert said.splitlines()[-1].startswith("Next: look up the first rows of audit/audit.csv")


def test_what_cannot_be_written_is_known_first(command: Srjt, labelled: Path) -> None:
    code, _, said = command("features", labelled, *SMALL, "--out", "features.csv")
    assert code == 2
    assert "written as an .npz file" in said
    Path("file").write_text("")
    code, _, said = command("features", labelled, *SMALL, "--out", "file/features.npz")
    assert code == 2
    assert "cannot be written" in said


def test_a_stopped_command_continues(
    command: Srjt, labelled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from srjt.inference import embed

    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embed, "SAVE_SECONDS", 0)
    save, saved = embed.save_chunk, 0

    def stop_after_two(*arguments: Any) -> None:
        nonlocal saved
        save(*arguments)
        saved += 1
        if saved == 2:
            raise SrjtError("stopped")

    monkeypatch.setattr(embed, "save_chunk", stop_after_two)
    arguments = ["features", labelled, *SMALL, "--batch-size", 32]
    assert command(*arguments)[0] == 2
    assert not Path("features.npz").exists()
    code, out, err = command(*arguments)
    assert (code, err) == (0, "Resumed: 64 of 120 images are done.\n")
    assert out.startswith("120 images, 1,536 features each")
