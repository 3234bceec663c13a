"""Whatever a command estimates, fits or judges, it uses samples of the side that it claims, and no
others."""

import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import srjt
from fixtures.noisy_features import counted
from srjt.cli import app
from srjt.data.synthetic import generate, write
from srjt.studies.config import StudyConfig
from srjt.studies.folder import run_planned, write_plan
from srjt.studies.plan import open_data

CLAIMED = {  # what is done with samples → the side that they belong to
    "trained": "train",
    "noise estimated": "train",
    "calibrated": "validation",
    "decided": "validation",
    "evaluated": "test",
}
FOLD = ["--fold", "1", "--folds", "3"]
FIT = ["--device", "cpu", "--epochs", "3", "--batch-size", "16"]
SLOW = [
    pytest.param(kind, marks=pytest.mark.slow)
    for kind in ("images", "no patients", "split", "readers")
]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Used = list[tuple[str, set[str]]]


@pytest.fixture(autouse=True)
def cache(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    """Everything that is done with samples, and their ids."""
    found: Used = []

    def watch(place: str, name: str, ids: Callable[..., list[str]]) -> None:
        original = resolve_name(place)

        def recording(*given: Any, **options: Any) -> Any:
            result = original(*given, **options)
            found.append((name, set(ids(given, options, result))))
            return result

        monkeypatch.setattr(place, recording)

    def of_side(given: tuple[Any, ...], options: dict[str, Any], result: Any) -> list[str]:
        return list(next(side.ids for side in given if hasattr(side, "ids")))

    def training_side(given: tuple[Any, ...], options: dict[str, Any], result: Any) -> list[str]:
        manifest, split = (given[1], result) if isinstance(result, srjt.data.Split) else given
        return [manifest.ids[row] for row in split.train]

    watch("srjt.training.single_run._check_samples", "trained", training_side)
    watch("srjt.training.noise_rate.resolve_split", "noise estimated", training_side)
    watch("srjt.training.choose_head.resolve_split", "noise estimated", training_side)
    watch(
        "srjt.training.noise_rate.cross_fit", "noise estimated", lambda _, __, fit: fit.manifest.ids
    )
    for name in (
        "calibrated_run.CalibratedRun.noise_of",
        "calibrated_run.recalibration_of",
        "ranges.calibrate_ranges",
    ):
        watch(f"srjt.inference.{name}", "calibrated", of_side)
    watch("srjt.inference.calibrated_run.validation_side", "decided", lambda _, __, side: side.ids)
    watch("srjt.inference.evaluate.read_labelled", "evaluated", lambda _, __, data: list(data.ids))
    monkeypatch.setattr("srjt.training.noise_rate.estimate_noise", counted)
    monkeypatch.setattr("srjt.inference.calibrated_run.estimate_noise", counted)
    return found


def make_table(kind: str, folder: Path) -> tuple[Path, list[str]]:
    """A table of labels, a third of them wrong, and the options that read it."""
    images = generate(images=90, patients=30, size=32)
    random = np.random.default_rng(0)
    true = images.labels
    given = np.where(random.random(90) < 0.3, (true + 1) % 4, true)
    table = pd.DataFrame({"id": images.ids, "grade": given, "patient": images.patients})
    if kind == "true_grade":
        table["true_grade"] = true
    if kind == "no patients":
        table = table.drop(columns="patient")
        table["verified_grade"] = [
            str(grade) if row % 4 == 0 else "" for row, grade in enumerate(true)
        ]
    if kind == "split":
        number = table["patient"].rank(method="dense").astype(int) % 5
        table["split"] = number.map({0: "test", 1: "val"}).fillna("train")
    if kind in ("images", "readers"):
        path = write(images, folder / "set")
        table = table.rename(columns={"id": "image"})
        if kind == "images":
            table["true_grade"] = true
            table.to_csv(path, index=False)
            return path, []
        read = [np.where(random.random(90) < 0.3, (true + 1) % 4, true) for _ in "abc"]
        readings = [
            table.assign(reader=who, grade=said) for who, said in zip("abc", read, strict=True)
        ]
        pd.concat(readings).to_csv(path, index=False)
        return path, ["--several-readings", "consensus"]
    features = np.eye(4)[true] @ random.normal(size=(4, 18)) + random.normal(size=(90, 18))
    table = pd.concat([table, pd.DataFrame(features, columns=[f"f{k}" for k in range(18)])], axis=1)
    path = folder / "features.csv"
    folder.mkdir(exist_ok=True)
    table.to_csv(path, index=False)
    return path, ["--feature-columns", "f*"]


def run_srjt(words: tuple[object, ...]) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["srjt", *map(str, words)])  # a run keeps its command
        return CliRunner().invoke(app, sys.argv[1:])


def succeeds(*words: object) -> str:
    result = run_srjt(words)
    assert result.exit_code == 0, f"{result.output} {result.exception}"
    return result.output


def fails(*words: object) -> str:
    result = run_srjt(words)
    assert result.exit_code != 0, result.output
    return " ".join(f"{result.output} {result.exception}".split())


def sides_of(labels: Path, how: list[str], folder: Path) -> tuple[dict[str, set[str]], list[str]]:
    """The side of each sample that srjt data split, or the split column, gives it; and the options
    of that fold."""
    table = pd.read_csv(labels)
    if "split" in table:
        names = {"train": "train", "val": "validation", "test": "test"}
        return {names[str(side)]: set(rows["id"]) for side, rows in table.groupby("split")}, []
    succeeds("data", "split", labels, *how, "--folds", "3", "--out", folder / "splits.csv")
    written = pd.read_csv(folder / "splits.csv")
    fold = written[written["fold"] == 1]
    return {str(side): set(rows["id"]) for side, rows in fold.groupby("split")}, FOLD


def network(labels: Path) -> list[str]:
    if labels.name == "features.csv":
        return ["--network", "linear"]
    return ["--network", "tiny", "--image-size", "32", "--crop", "28"]


def assert_sides(used: Used, sides: dict[str, set[str]], *, at_least: set[str]) -> None:
    assert at_least <= {name for name, _ in used}
    for name, ids in used:
        assert ids
        assert ids <= sides[CLAIMED[name]], (
            f"{name} uses samples of other sides than {CLAIMED[name]}"
        )
    used.clear()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", *SLOW])
def test_every_command_uses_the_side_that_it_claims(kind: str, tmp_path: Path, used: Used) -> None:
    labels, how = make_table(kind, tmp_path / "data")
    sides, fold = sides_of(labels, how, tmp_path)
    run = tmp_path / "run"

    succeeds("train", labels, *how, *fold, "--out", run, "-q", *network(labels), *FIT)
    assert_sides(used, sides, at_least={"trained", "noise estimated", "calibrated"})
    assert set(pd.read_csv(run / "history.csv")["id"]) == sides["train"]
    for side, rows in pd.read_csv(run / "held_out.csv").groupby("side"):
        assert set(rows["id"]) == sides[str(side)]

    of_test = [*fold, "--side", "test"]
    decisions = [
        "--refer-from",
        "1",
        "--sensitivity",
        "0.8",
        "--abstain",
        "0.2",
        "--target-metric",
        "macro_f1",
    ]
    pooled = [] if kind == "no patients" else ["--per", "patient", "--pool", "learned"]
    for options in (["--coverage", "0.6", *decisions], [*decisions, *pooled]):
        succeeds("evaluate", run, labels, *how, *of_test, *options)
        assert_sides(used, sides, at_least={"evaluated", "decided"})
    assert f"trained on {len(sides['train'])} of the 90" in fails("evaluate", run, labels, *how)
    assert not any(name == "evaluated" for name, _ in used)

    used.clear()
    features = labels.name == "features.csv"
    ungraded = ["predict", run, *([labels, *how] if features else [labels.parent])]
    out = ["--out", tmp_path / "predicted.csv"]
    # of several readings, which predict does not read, the consensus
    asked = ["evaluate", run, labels, *how, *of_test] if kind == "readers" else [*ungraded, *out]
    said = fails(*asked, "--coverage", "0.6", "--calibrate-on", labels)
    assert f"trained on {len(sides['train'])} of the 90 samples to calibrate on" in said
    assert not any(name == "calibrated" for name, _ in used)
    succeeds(*ungraded, "--coverage", "0.6", *decisions[2:], *out, "--refer-from", "1")
    assert_sides(used, sides, at_least={"calibrated", "decided"})


@pytest.mark.slow
def test_a_study_uses_the_sides_of_a_single_run(tmp_path: Path, used: Used) -> None:
    labels, how = make_table("true_grade", tmp_path / "data")
    sides, _ = sides_of(labels, how, tmp_path)
    config = StudyConfig(
        source=str(labels), methods=("co-teaching",), noise_rate="auto", folds=3, only_folds=(1,),
        train={"epochs": 3, "batch_size": 16, "network": "linear"}, reading={"feature_columns": "f*"},
    )  # fmt: skip
    data = open_data(config)
    (planned,) = write_plan(tmp_path / "study", data, command="")
    run_planned(tmp_path / "study", data, planned, device="cpu")
    assert_sides(used, sides, at_least={"trained", "noise estimated"})


@pytest.mark.slow
def test_an_audit_judges_no_patient_that_it_was_trained_on(tmp_path: Path, used: Used) -> None:
    labels, how = make_table("true_grade", tmp_path / "data")
    table = pd.read_csv(labels).set_index("id")
    options = ["--folds", "3", "--jobs", "1", "-q", "--method", "co-teaching"]
    succeeds("audit", labels, *how, "--out", tmp_path / "audit", *options, *network(labels), *FIT)
    found = pd.read_csv(tmp_path / "audit" / "audit.csv").set_index("id")
    assert set(found.index) == set(table.index)
    trained = [ids for name, ids in used if name == "trained"]
    assert len(trained) == 6  # of the warm-up and of the audit
    for ids in trained:
        held_out = set(table.index) - ids
        assert held_out
        assert not set(table.loc[list(ids), "patient"]) & set(table.loc[list(held_out), "patient"])


def test_a_run_gives_its_sides_to_others(tmp_path: Path, used: Used) -> None:
    """Sides of an earlier version, or from Python, are those of its folder."""
    labels, how = make_table("plain", tmp_path / "data")
    data = srjt.data.read(labels, feature_columns="f*")
    split = srjt.data.folds(data, folds=3, seed=5, by="stratified")[2]
    options: dict[str, Any] = {
        "network": "linear",
        "epochs": 1,
        "batch_size": 16,
        "noise_rate": 0.2,
    }
    srjt.train(data, split=split, out=tmp_path / "run", progress=False, **options)
    used.clear()
    sides = {side: {data.ids[row] for row in rows} for side, rows in split.sides().items()}
    assert f"add --splits {tmp_path / 'run'}" in fails("evaluate", tmp_path / "run", labels, *how)
    succeeds("evaluate", tmp_path / "run", labels, *how, "--splits", tmp_path / "run")
    assert_sides(used, sides, at_least={"evaluated"})
    train = ("--noise-rate", "0.3", "--out", tmp_path / "again", "-q", "--network", "linear", *FIT)
    succeeds("train", labels, *how, "--splits", tmp_path / "run", *train)
    assert_sides(used, sides, at_least={"trained"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", SLOW[0]])
def test_renamed_copies_of_training_samples_are_known(
    kind: str, tmp_path: Path, used: Used
) -> None:
    labels, how = make_table(kind, tmp_path / "data")
    run = tmp_path / "run"
    how_to_fit = [*FOLD, "--noise-rate", "0.3", *network(labels), *FIT]
    succeeds("train", labels, *how, "--out", run, "-q", *how_to_fit)
    copies = pd.read_csv(labels)
    if kind == "plain":
        copies["id"] = [f"other{row}" for row in range(90)]
    else:
        for row, name in enumerate(copies["image"]):
            (labels.parent / f"copy{row}.png").write_bytes((labels.parent / name).read_bytes())
        copies["image"] = [f"copy{row}.png" for row in range(90)]
    renamed = labels.with_name("features_copy.csv" if kind == "plain" else "copies.csv")
    copies.to_csv(renamed, index=False)
    learnt = len(pd.read_csv(run / "history.csv"))
    what = "rows of features" if kind == "plain" else "images"
    said = fails("evaluate", run, renamed, *how)
    assert f"trained on {learnt} of the 90 {what}" in said
    data = srjt.data.read(renamed, feature_columns="f*" if how else None)
    with pytest.raises(
        srjt.errors.SrjtError, match=f"trained on {learnt} of the 90 samples to calibrate on"
    ):
        srjt.predict(run, data, coverage=0.6, calibrate_on=data)
    with pytest.warns(srjt.data.LeakageWarning, match=f"trained on {learnt} of these 90 samples"):
        found = srjt.evaluate(run, data, resamples=10)
    assert f"trained on {learnt} of these 90 samples" in srjt.report(found).warnings[0]
    assert set(srjt.compare(run, run, test=data, resamples=10).trained_on.values()) == {learnt}
