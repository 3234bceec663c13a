"""The experiment on the paper's claims: its plan, its hypotheses and their tests, and a training in
the small."""

import importlib
import io
import math
import sys
from argparse import Namespace
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import stats

from srjt.studies.config import parse_method, parse_noise

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "evidence"
sys.path.append(str(SCRIPTS))
claims: Any = importlib.import_module("paper_claims")
DESIGN = claims.read_design()
SOFT = "co-teaching:select=soft,update=soft"


def rows_of(
    scores: dict[tuple[str, str], list[float]], *, column: str = "mae", epochs: int = 12
) -> pd.DataFrame:
    """Trainings whose every epoch has the same score: (method, noise) → a value per fold."""
    found = []
    for (method, noise), values in scores.items():
        for fold, value in enumerate(values):
            for epoch in range(1, epochs + 1):
                fixed = dict.fromkeys(claims.SCORES, 0.5)
                found.append(
                    {
                        "method": method,
                        "noise": noise,
                        "fold": fold,
                        "epoch": epoch,
                        "network": 1,
                        **fixed,
                        column: value,
                    }
                )
    return pd.DataFrame(found, columns=claims.COLUMNS)


def test_the_plan_is_that_of_the_stages_and_has_every_training_of_the_hypotheses() -> None:
    sizes = [len(claims.planned(DESIGN, stages=[stage])) for stage in range(len(DESIGN["stages"]))]
    assert sizes == [20, 10, 20, 40, 35, 10]
    jobs = claims.planned(DESIGN)
    assert len(jobs) == len({job.file_name for job in jobs}) == sum(sizes)
    trained = {(job.method, job.noise) for job in jobs}
    for one in claims.hypotheses(DESIGN):
        assert {
            (name, noise) for name in (one.of, *one.minus) for noise in (*one.noises, *one.less)
        } <= trained
    for job in jobs:
        parse_method(job.method)
        assert parse_noise(job.noise).rate in (0.2, 0.4)


def test_the_trainings_are_the_papers_but_for_what_the_design_says() -> None:
    training = DESIGN["training"]
    assert (training["optimizer"], training["schedule"], training["learning_rate"]) == (
        "adam",
        "steps",
        1e-4,
    )
    assert (training["weight_decay"], training["batch_size"], training["warmup_epochs"]) == (
        1e-4,
        64,
        0,
    )
    assert DESIGN["folds"] == [0, 1, 2, 3, 4]
    text = claims.DESIGN.read_text()
    assert "66 epochs instead of 150" in text


def test_scores_are_means_over_the_last_ten_epochs_and_the_networks() -> None:
    epochs = np.arange(1, 21)
    rows = []
    for network, shift in ((1, 0.0), (2, 0.1)):
        for epoch in epochs:
            peak = 0.9 if epoch == 4 else 0.3
            rows.append(
                {"method": "m", "noise": "n", "fold": 0, "epoch": epoch, "network": network, "accuracy": peak + shift,
                 "mae": epoch / 100 + shift, "macro_f1": 0.2, "label_precision": 0.8 - epoch / 100}
            )  # fmt: skip
    found = claims.run_scores(pd.DataFrame(rows)).loc[("m", "n", 0)]
    assert found["mae"] == pytest.approx(np.mean(epochs[10:]) / 100 + 0.05)
    assert found["label_precision"] == pytest.approx(0.8 - 0.155)
    assert found["precision_change"] == pytest.approx((0.8 - 0.155) - (0.8 - 0.06))
    assert found["forgotten"] == pytest.approx(0.6)


def hypothesis(score: str = "mae", **changes: Any) -> Any:
    about = {"about": "a", "of": "b", "minus": ("a",), "noises": ("x", "y"), "score": score}
    return claims.Hypothesis(**{**about, **changes})


def test_a_difference_is_one_number_per_fold_with_all_its_trainings() -> None:
    scores = claims.run_scores(
        rows_of(
            {
                ("a", "x"): [0.5, 0.6, 0.7],
                ("a", "y"): [0.1, 0.2],
                ("b", "x"): [0.4] * 3,
                ("b", "y"): [0.3] * 3,
            }
        )
    )
    found = claims.differences(scores, hypothesis())
    assert found.index.tolist() == [0, 1]  # fold 2 lacks a training
    assert found.tolist() == pytest.approx([0.35 - 0.3, 0.35 - 0.4])
    one_noise = claims.differences(scores, hypothesis(noises=("x",)))
    assert one_noise.tolist() == pytest.approx([-0.1, -0.2, -0.3])
    gain = claims.differences(scores, hypothesis(noises=("x",), less=("y",)))
    assert gain.tolist() == pytest.approx([-0.1 - 0.2, -0.2 - 0.1])


def test_the_best_opponent_is_chosen_by_the_other_folds() -> None:
    values = {("b", "x"): [0.5, 0.5, 0.5], ("p", "x"): [0.1, 0.6, 0.6], ("q", "x"): [0.7, 0.3, 0.4]}
    scores = claims.run_scores(rows_of(values))
    one = hypothesis(minus=("p", "q"), noises=("x",))
    # fold 0: q has the lower mean elsewhere; folds 1 and 2: p (0.35) and q (0.55), p again (0.35
    # and 0.5)
    assert claims.differences(scores, one).tolist() == pytest.approx(
        [0.5 - 0.7, 0.5 - 0.6, 0.5 - 0.6]
    )
    higher = claims.run_scores(rows_of(values, column="accuracy"))
    one = hypothesis("accuracy", minus=("p", "q"), noises=("x",))
    assert claims.differences(higher, one).tolist() == pytest.approx(
        [0.5 - 0.1, 0.5 - 0.3, 0.5 - 0.4]
    )
    assert claims.differences(scores, hypothesis(minus=("p", "missing"), noises=("x",))).empty


@pytest.mark.slow
def test_the_test_is_nadeau_and_bengios_and_holm_counts_all_hypotheses() -> None:
    gain = [0.10, 0.11, 0.12, 0.13, 0.15]
    hosts = {("co-teaching", noise): [0.6] * 5 for noise in ("quasi:0.4", "truncated:0.4")}
    ours = {
        ("co-teaching+ours", noise): [0.6 - g for g in gain]
        for noise in ("quasi:0.4", "truncated:0.4")
    }
    found = claims.tests(rows_of(hosts | ours), DESIGN)
    one, test, adjusted = found[0]
    assert (one.score, one.minus) == ("mae", ("co-teaching",))
    error = np.std(gain, ddof=1) * math.sqrt(1 / 5 + 1 / 3)
    assert test.difference == pytest.approx(-np.mean(gain))
    assert test.p_value == pytest.approx(2 * stats.t.sf(np.mean(gain) / error, 4))
    assert adjusted == pytest.approx(min(1.0, test.p_value * len(found)))
    assert len(found) == 23


@pytest.mark.slow
def test_the_table_says_what_is_not_yet_run_and_never_leaves_a_row_out() -> None:
    empty = claims.hypotheses_table(pd.DataFrame(columns=claims.COLUMNS))
    lines = empty.splitlines()[2:]
    assert len(lines) == len(DESIGN["claims"])
    assert all(line.endswith("| – | – | – | not yet run |") for line in lines)
    noises = ("quasi:0.4", "truncated:0.4")
    good, bad = [0.50, 0.51, 0.50, 0.51, 0.50], [0.60, 0.62, 0.61, 0.61, 0.60]
    ours = {("co-teaching+ours", noise): good for noise in noises}
    host = {("co-teaching", noise): bad for noise in noises}
    soft = {(SOFT, "quasi:0.4"): [0.3, 0.31]}
    text = claims.hypotheses_table(rows_of(ours | host | soft))
    first = text.splitlines()[2]
    assert first.startswith("| “+ours” improves Co-teaching | MAE < 0 | −0.104 (−0.")
    assert first.endswith("| shown |")
    [soft_row] = [line for line in text.splitlines() if "soft/soft" in line and "MAE" in line]
    assert soft_row.endswith("| +0.200 | – | – | 2 of 5 folds so far |")
    turned = claims.hypotheses_table(
        rows_of({**dict.fromkeys(ours, bad), **dict.fromkeys(host, good)})
    )
    assert turned.splitlines()[2].endswith("| the opposite is shown |")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Forty images of twenty patients, as ``pack`` writes them; brighter ones have a higher
    grade."""
    random = np.random.default_rng(0)
    grades = np.arange(40) // 2 % 5
    folder = tmp_path / "knees"
    (folder / "images").mkdir(parents=True)
    names = [f"images/{number}.png" for number in range(40)]
    for name, grade in zip(names, grades, strict=True):
        Image.fromarray(
            random.integers(40 * grade, 40 * grade + 40, (32, 32), dtype=np.uint8)
        ).save(folder / name)
    table = pd.DataFrame({"image": names, "grade": grades, "patient": np.arange(40) // 2})
    table.to_csv(folder / "labels.csv", index=False)
    claims.main(["pack", str(folder), "--out", str(tmp_path / "knee.npz")])
    return tmp_path / "knee.npz"


def test_packed_images_are_opened_with_folds_by_patient(packed: Path) -> None:
    clean, splits = claims.open_data(packed, None)
    assert (len(clean), clean.num_classes, len(splits)) == (40, 5, 5)
    for split in splits:
        sides = [
            {clean.patients[row] for row in side}
            for side in (split.train, split.validation, split.test)
        ]
        assert not (sides[0] & sides[1] | sides[0] & sides[2] | sides[1] & sides[2])
    with np.load(packed) as saved:
        first = Image.open(io.BytesIO(saved["x"][: saved["ends"][0]].tobytes()))
        assert first.size == (claims.SIDE, claims.SIDE)


@pytest.mark.slow
def test_a_run_is_resumed_collected_and_shown(
    packed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = {**DESIGN, "training": {**DESIGN["training"], "batch_size": 8}}
    monkeypatch.setattr(claims, "read_design", lambda: small)
    monkeypatch.setattr(claims, "ProcessPoolExecutor", SameProcess)
    out = tmp_path / "claims"
    words = [
        "run",
        str(packed),
        "--network",
        "tiny",
        "--epochs",
        "2",
        "--stage",
        "0",
        "--fold",
        "0",
        "--device",
        "cpu",
        "--results",
        str(tmp_path),
    ]
    claims.main([*words, "--out", str(out), "--minutes", "0"])
    assert "4 trainings are left" in capsys.readouterr().out
    claims.main([*words, "--out", str(out)])
    files = sorted(file.name for file in out.iterdir())
    assert len(files) == 4
    claims.main([*words, "--out", str(out)])
    assert "4 of 4 trainings are done" in capsys.readouterr().out
    claims.main(["collect", str(out), "--results", str(tmp_path)])
    rows = claims.stored(tmp_path)
    assert rows.columns.tolist() == claims.COLUMNS
    assert len(rows) == 4 * 2 * 2  # trainings, epochs, networks
    assert rows[claims.SCORES].notna().all().all()
    claims.main(["table", "--results", str(tmp_path)])
    assert "1 of 5 folds so far" in capsys.readouterr().out

    first = out / files[0]
    pd.read_csv(first).assign(mae=9.0).to_csv(first, index=False)
    for other in files[1:]:
        (out / other).unlink()
    claims.main(["collect", str(out), "--results", str(tmp_path)])
    assert "1 trainings, 4 with those that were there" in capsys.readouterr().out
    again = claims.stored(tmp_path)
    assert len(again) == len(rows)
    assert (again["mae"] == 9.0).sum() == 2 * 2  # epochs, networks: the new one replaces the old


def test_what_the_results_have_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a trial with other settings, whatever is stored."""
    stored = pd.DataFrame([{"method": "standard", "noise": "quasi:0.4", "fold": 0}])
    stored.reindex(columns=claims.COLUMNS).to_csv(tmp_path / claims.RESULTS.name, index=False)
    left: list[list[claims.Job]] = []
    monkeypatch.setattr(claims, "train_all", lambda jobs, *_, **__: left.append(list(jobs)))
    words = ["run", "knee.npz", "--results", str(tmp_path), "--out", str(tmp_path / "claims")]
    claims.main(words)
    claims.main([*words, "--epochs", "2"])
    assert len(left[1]) == len(left[0]) + 1 == len(claims.planned(DESIGN))
    assert set(left[1]) - set(left[0]) == set(claims.trained(stored))


class SameProcess:
    """Runs what is submitted at once, so that a test need not start processes."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> "SameProcess":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Any, *given: Any) -> Any:
        done: Future[Any] = Future()
        done.set_result(function(*given))
        return done


def test_what_does_not_fit_on_the_gpu_is_tried_again_with_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two fit at the same time: the third fails, waits, and is trained after the others."""
    started: list[list[int]] = []
    jobs = [claims.Job(method="standard", noise="quasi:0.4", fold=fold) for fold in range(4)]
    epoch = {"epoch": 1, "network": "0", "accuracy": 0.5, "mae": 0.5, "macro_f1": 0.5}
    alive: dict[Future[pd.DataFrame], int] = {}

    class Memory:
        def submit(self, _: Any, job: Any, __: Any) -> Future[pd.DataFrame]:
            future: Future[pd.DataFrame] = Future()
            started.append([*alive.values(), job.fold])
            if len(alive) == 2:
                future.set_exception(RuntimeError("CUDA out of memory"))
            else:
                alive[future] = job.fold
            return future

    def wait(running: Any, **_: Any) -> tuple[list[Any], list[Any]]:
        failed = [future for future in running if future.done()]
        if failed:
            return failed, []
        first = next(iter(running))
        row = {"method": "standard", "noise": "quasi:0.4", "fold": alive.pop(first), **epoch}
        first.set_result(pd.DataFrame([row]))
        return [first], []

    monkeypatch.setattr(claims, "wait", wait)
    args = Namespace(processes=3, out=tmp_path)
    claims.train_all(list(jobs), Memory(), args, until=float("inf"))
    assert started == [[0], [0, 1], [0, 1, 2], [1, 3], [3, 2]]
    assert len(list(tmp_path.glob("*.csv"))) == 4
