"""The paper's whole comparison on cached features: 14 methods × 5 folds × 2 noises, on two cores.

    python benchmarks/feature_study.py                      # 140 runs of 30 epochs with the default head, mlp
    python benchmarks/feature_study.py --network linear     # the last layer alone
    python benchmarks/feature_study.py --phases             # where the time of one run goes

The runs go through ``srjt study`` as typed. For scale it fits scikit-learn's logistic regression as
often. Two things differ from the paper's settings and are said here: 30 epochs instead of 150 (a
head needs fewer; its schedule is scaled to them), and features instead of images.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

NOISES = ("quasi:0.2", "quasi:0.4")
PATIENT = 8  # rows of one patient


def latent_severity(
    *, samples: int, columns: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (N, F), grades (N,) and patients (N,) as a frozen network might give them.

    Severity varies between patients and within; with fifteen other traits (light, position,
    anatomy, …) it is mixed by two random layers into correlated, partly silent columns. Half of the
    samples have the mildest of four grades.
    """
    draws = np.random.default_rng(seed)
    patients = np.arange(samples) // PATIENT
    people = patients[-1] + 1

    def trait(shared: float, own: float) -> np.ndarray:
        return shared * draws.normal(size=people)[patients] + own * draws.normal(size=samples)

    severity = trait(0.8, 0.6)
    grades = np.digitize(severity, np.quantile(severity, [0.5, 0.75, 0.92]))
    traits = np.stack([severity, *(trait(0.7, 0.7) for _ in range(15))], axis=1)
    hidden = np.tanh(0.5 * traits @ draws.normal(size=(16, 64)))
    features = hidden @ draws.normal(size=(64, columns)) / 4 + 0.8 * draws.normal(
        size=(samples, columns)
    )
    return np.maximum(features, 0).astype(np.float32), grades, patients


def study(
    source: Path, out: Path, *, network: str, epochs: int, batch_size: int, jobs: int
) -> float:
    """Seconds of ``srjt study``, from typing it to its last line."""
    command = [
        sys.executable,
        "-m",
        "srjt",
        "study",
        str(source),
        "--out",
        str(out),
        "--methods",
        "all",
    ]
    for noise in NOISES:
        command += ["--noise", noise]
    command += ["--network", network, "--epochs", str(epochs), "--set", f"batch_size={batch_size}"]
    command += ["--device", "cpu", "--jobs", str(jobs)]
    print("$ srjt " + " ".join(command[3:]), flush=True)
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def logistic_regressions(features: np.ndarray, grades: np.ndarray, patients: np.ndarray) -> float:
    """Seconds of one fit and its predictions (median of five folds), columns standardised; one
    thread."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    times = []
    for train, test in GroupKFold(5).split(features, grades, patients):
        began = time.perf_counter()
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
        model.fit(features[train], grades[train]).predict(features[test])
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def accuracies(out: Path) -> None:
    """Test accuracy per method and noise, mean over the folds."""
    from srjt.studies.results import collect_results

    scores = collect_results(out).scores
    shown = scores[(scores["split"] == "test") & (scores["metric"] == "accuracy")]
    table = shown.pivot_table(
        index="method", columns="noise", values="value", aggfunc="mean", sort=False
    )
    print(table.to_string(float_format="%.3f"))


@contextlib.contextmanager
def clock(name: str, into: dict[str, float]) -> Iterator[None]:
    """CPU time, which a busy machine disturbs less than the time on the wall."""
    began = time.process_time()
    yield
    into[name] = into.get(name, 0.0) + time.process_time() - began


def phases(source: Path, *, network: str, epochs: int, batch_size: int) -> None:
    """Where one run's CPU time goes, in this process, after the imports that a study makes once."""
    import torch

    from srjt.data import folds, read
    from srjt.training.step import Step
    from srjt.training.train import train
    from srjt.training.trained import Forward

    torch.set_num_threads(1)
    for method in ("standard", "co-teaching+ours"):
        spent: dict[str, float] = {}
        with clock("reading and splitting", spent):
            manifest = read(source)
            split = folds(manifest)[0]
        given = {
            "method": method,
            "noise_rate": 0.2,
            "network": network,
            "batch_size": batch_size,
            "device": "cpu",
        }
        train(manifest, split=split, epochs=1, **given)  # torch's own first-time costs
        with (
            tempfile.TemporaryDirectory() as folder,
            _timed(Forward, "confusion_counts", "evaluation", spent),
            _timed(Step, "__call__", "steps", spent),
            clock("whole run", spent),
        ):
            train(manifest, split=split, epochs=epochs, out=Path(folder) / "run", **given)
        spent["everything else"] = spent["whole run"] - spent["steps"] - spent["evaluation"]
        print(
            f"{method}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items()),
            flush=True,
        )


@contextlib.contextmanager
def _timed(owner: Any, function: str, name: str, into: dict[str, float]) -> Iterator[None]:
    original = getattr(owner, function)

    def timed(*given: Any, **options: Any) -> Any:
        with clock(name, into):
            return original(*given, **options)

    setattr(owner, function, timed)
    try:
        yield
    finally:
        setattr(owner, function, original)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--samples", type=int, default=2000)
    options.add_argument("--columns", type=int, default=512)
    options.add_argument("--network", default="mlp", choices=("linear", "mlp"))
    options.add_argument("--epochs", type=int, default=30)
    options.add_argument("--batch-size", type=int, default=64, help="the paper's")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--phases", action="store_true")
    chosen = options.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    features, grades, patients = latent_severity(
        samples=chosen.samples, columns=chosen.columns, seed=chosen.seed
    )
    how = {"network": chosen.network, "epochs": chosen.epochs, "batch_size": chosen.batch_size}
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "features.npz", Path(folder) / "study"
        np.savez(source, features=features, grades=grades, patients=patients)
        if chosen.phases:
            phases(source, **how)
            return
        seconds = study(source, out, jobs=chosen.jobs, **how)
        runs = len(list((out / "runs").iterdir()))
        print(
            f"{runs} runs in {seconds:.0f} s: {60 * runs / seconds:.0f} runs a minute, {chosen.jobs} at a time."
        )
        accuracies(out)
    once = logistic_regressions(features, grades, patients)
    print(
        f"A logistic regression: {once:.2f} s; {runs} of them, {chosen.jobs} at a time: "
        f"{runs * once / chosen.jobs:.0f} s."
    )


if __name__ == "__main__":
    main()
