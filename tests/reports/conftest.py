"""A made-up study with the shape of a real one: curves that rise, noise that hurts, runs that
failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import srjt
from srjt import noise as ordinal_noise
from srjt.studies.config import rate_source
from srjt.studies.results import DISPLAY_NAMES, StudyResults

CELL = ["key", "method", "variant", "noise", "fold", "seed"]


def make_study(
    folder: Path,
    *,
    methods: Sequence[str] = tuple(DISPLAY_NAMES),
    noises: Sequence[str] = ("quasi:0.2", "quasi:0.4", "truncated:0.4"),
    folds: int = 3,
    epochs: int = 12,
    grades: Sequence[str] = ("Mayo 0", "Mayo 1", "Mayo 2", "Mayo 3"),
    statuses: dict[str, str] | None = None,
    source: str = "labels.csv",
    **facts: Any,
) -> StudyResults:
    """methods: with their variants, as on the command line. statuses: key → status of runs that are
    not done; keys are "method noise fold"."""
    rng = np.random.default_rng(0)
    counts = np.array([3060, 1800, 740, 400, 210, 90, 50][: len(grades)])
    metrics, runs, noise_rows, confusions = [], [], [], {}
    for noise in noises:
        kind, _, rate_text = noise.partition(":")
        known: dict[str, Any] = dict.fromkeys(
            ("rho", "nominal_rate", "condition_number", "estimated_rate"), np.nan
        )
        known |= {"matrix": None, "matrix_estimated": False}
        known |= {"estimated_low": np.nan, "estimated_high": np.nan, "determined": False}
        rate = 0.3
        if kind != "none":
            rate = float(rate_text)
            rho = ordinal_noise.rho_for_rate(kind, rate=rate, class_counts=counts)
            matrix = ordinal_noise.transition_matrix(kind, num_classes=len(grades), rho=rho)
            known |= {"rho": rho, "nominal_rate": rate, "condition_number": np.linalg.cond(matrix)}
            known["matrix"] = matrix.tolist()
        for fold in range(folds):
            realised = np.nan if kind == "none" else rate + rng.normal(0, 0.004)
            noise_rows.append(
                {"noise": noise, "kind": kind, "fold": fold, "seed": 0, "given_rate": rate, "realised_rate": realised}
                | known
            )  # fmt: skip
            for place, given in enumerate(methods):
                key = f"{given} {noise} {fold}"
                method, _, variant = given.partition(":")
                cell = dict(zip(CELL, (key, method, variant, noise, fold, 0), strict=True))
                status = (statuses or {}).get(key, "done")
                runs.append({
                    **cell, "status": status, "seconds": 61.5 if status == "done" else np.nan,
                    "error": "Traceback (most recent call last):\n  RuntimeError: <b>boom</b>" * (status == "failed"),
                    "rate_source": rate_source(method, variant, study_rate=None), "used_rate": np.nan, "network": "tiny",
                })  # fmt: skip
                ours, joint = (
                    method.endswith("+ours"),
                    place >= 8 or method.startswith(("co", "jocor")),
                )
                top = (
                    0.80
                    - rate * (0.35 - 0.1 * joint - 0.1 * ours)
                    - 0.005 * (place % 5)
                    + rng.normal(0, 0.01)
                )
                reached = {"done": epochs, "running": epochs // 2}.get(status, 0)
                for network in ("1", "2") if joint else ("1",):
                    for epoch in range(1, reached + 1):
                        accuracy = top - 0.25 * np.exp(-epoch / 3) + rng.normal(0, 0.004)
                        kept = 1 - rate
                        if joint:
                            kept = min(1, kept + 0.9 * rate * (1 - np.exp(-epoch / 4)))
                        at = {**cell, "epoch": epoch, "network": network}
                        recalls = [
                            0.97 - 0.08 * c + 0.02 * ours if joint else 1.0
                            for c in range(len(grades))
                        ]
                        row = [
                            ("test", "accuracy", accuracy),
                            ("test", "mae", 1.25 * (1 - accuracy)),
                            ("test", "macro_f1", accuracy - 0.08),
                            ("test", "qwk", accuracy + 0.05),
                            ("validation", "accuracy", accuracy * (1 - rate)),
                            ("train", "loss", 1.2 - accuracy),
                            (
                                "train",
                                "label_precision",
                                kept - 0.01 * (not ours) + rng.normal(0, 0.003),
                            ),
                            ("train", "label_recall", 0.93 if joint else 1.0),
                            *(
                                ("train", f"label_recall[{c}]", recall)
                                for c, recall in enumerate(recalls)
                            ),
                        ]
                        metrics += [
                            {**at, "split": s, "metric": m, "value": float(v)} for s, m, v in row
                        ]
                if status == "done":
                    right, shape = np.clip(top, 0.05, 0.95), (len(grades), len(grades))
                    shares = np.full(shape, (1 - right) / (len(grades) - 1))
                    np.fill_diagonal(shares, right)
                    confusions[key] = ((counts // 5)[:, None] * shares).round().astype(np.int64)
    metric_table = pd.DataFrame(
        metrics, columns=[*CELL, "epoch", "split", "network", "metric", "value"]
    )
    done = {run["key"] for run in runs if run["status"] == "done"}
    recent = metric_table[metric_table["key"].isin(done) & (metric_table["epoch"] > epochs - 10)]
    scores = recent.groupby([*CELL, "split", "metric"], sort=False)["value"].mean().reset_index()
    return StudyResults(
        folder=folder,
        facts={
            "name": "colitis",
            "study": {
                "source": source,
                "noise_rate": None,
                "seeds": [0],
                "preset": None,
                "grade_names": {},
                "train": {
                    "network": "tiny",
                    "epochs": epochs,
                    "batch_size": 64,
                    "learning_rate": 1e-4,
                },
            },
            "grades": list(grades),
            "class_counts": counts.tolist(),
            "patients": 564,
            "folds": folds,
            "versions": {"srjt": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
            "command": "srjt study labels.csv --methods all --folds 3 --out study",
            "splits_hash": "5f2c9e0a11d4",
            **facts,
        },
        runs=pd.DataFrame(
            runs,
            columns=[*CELL, "status", "seconds", "error", "rate_source", "used_rate", "network"],
        ),
        metrics=metric_table,
        scores=scores,
        confusions=confusions,
        noise=pd.DataFrame(noise_rows),
    )


@pytest.fixture(scope="session")
def study() -> Callable[..., StudyResults]:
    return lambda **chosen: make_study(Path("study"), **chosen)


@pytest.fixture(scope="session")
def run_with_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run on image files of 30 patients; its grades have names. The files
    are in ../set."""
    base = tmp_path_factory.mktemp("images")
    made = srjt.data.synthetic.generate(images=120, patients=30, size=32)
    data = srjt.data.read(srjt.data.synthetic.write(made, base / "set"))
    srjt.train(
        data, out=base / "run", split=srjt.data.folds(data, by="stratified")[0], command="srjt train x",
        grade_names={"0": "none", "1": "mi|ld", "2": "<b>moderate", "3": "severe"},
        method="standard", network="tiny", image_size=32, crop=28, epochs=2, device="cpu",
    )  # fmt: skip
    return base / "run"
