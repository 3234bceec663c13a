"""What too high a noise rate costs where hardly any label is wrong: simulated rows, clear and
unclear ones.

    python benchmarks/evidence/nearly_clean.py        # about a minute on two cores

Four grades along two of three features, 55 / 25 / 13 / 7 % of the rows, one label in twenty wrong
by one grade. The wider the spread, the less a row shows its grade.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from srjt import OrdinalNoiseClassifier
from srjt.ordinal.metrics import METRICS

SHARES, WRONG = (0.55, 0.25, 0.13, 0.07), 0.05
WAYS: dict[str, dict[str, Any]] = {
    "srjt": {"method": "srjt"},
    "given 0.05": {"method": "srjt", "noise_rate": 0.05},
    "given 0.3": {"method": "srjt", "noise_rate": 0.3},
    "sord": {"method": "sord"},
}


def rows(count: int, *, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(N, 3) features, (N,) labels, (N,) true grades."""
    random = np.random.default_rng(seed)
    true = random.choice(4, count, p=SHARES)
    shown = np.stack([2 * true, np.zeros(count), true], axis=1)
    x = shown + random.normal(size=(count, 3)) * [spread, 1.0, spread]
    moved = np.clip(true + random.choice([-1, 1], count), 0, 3)
    return x, np.where(random.random(count) < WRONG, moved, true), true


def main() -> None:
    warnings.simplefilter("ignore")  # what it warns of is what is measured
    print(f"{'spread':>6} {'':10}{'estimate':>9}{'used':>6}   accuracy / MAE / macro-F1")
    for spread in (0.6, 0.8, 1.2, 1.6, 2.0):
        x, labels, _ = rows(900, spread=spread, seed=0)
        unseen, _, truth = rows(3000, spread=spread, seed=1)
        for name, way in WAYS.items():
            model = OrdinalNoiseClassifier(epochs=30, random_state=0, **way).fit(x, labels)
            counts = confusion_matrix(truth, model.predict(unseen), labels=range(4))
            found = " / ".join(
                f"{METRICS[metric](counts):.3f}" for metric in ("accuracy", "mae", "macro_f1")
            )
            estimate = "" if model.noise_estimate_ is None else f"{model.noise_estimate_.rate:.2f}"
            used = "" if model.noise_rate_ is None else f"{model.noise_rate_:.2f}"
            print(f"{spread:6} {name:10}{estimate:>9}{used:>6}   {found}", flush=True)


if __name__ == "__main__":
    main()
