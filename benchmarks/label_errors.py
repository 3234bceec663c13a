"""Are the wrong labels found? Average precision, and precision among as many as were injected; beside cleanlab.

    python benchmarks/label_errors.py --out probabilities/synthetic
        five folds of a tiny network, ten epochs. Seed 515: ahead of cleanlab in both figures in four of four
        settings (AP 0.67 to 0.87 beside 0.64 to 0.85). Seeds 515 to 527: AP in 50 of 52, precision in 39 of 52
    python benchmarks/label_errors.py --data DeepDRiD/labels.csv --network timm:tf_efficientnet_lite0 \\
            --weights lite0.safetensors --size 148 --crop 128 --seed 400 --device cuda
        four of four (AP 0.56 to 0.77 beside 0.50 to 0.74). Six kinds of heads on frozen ImageNet features: AP in 24 of
        24, precision in 21, equal in one

Quasi and truncated noise at 0.2 and 0.4, ranked by ``label_quality`` and by cleanlab's three scores on the same
probabilities; of these the best is taken for each figure. ``find_label_issues`` returns a list of its own length:
its precision stands beside ours at that length. cleanlab comes with ``pip install srjt[benchmarks]``.
"""

from __future__ import annotations

import numpy as np
from noisy_settings import Setting, parser, settings, table

from srjt.noise.estimate import estimate_noise
from srjt.noise.label_quality import label_quality

WANTED = [(kind, rate) for kind in ("quasi", "truncated") for rate in (0.2, 0.4)]
SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


def main() -> None:
    rows, ahead = [], 0
    for setting in settings(parser(__doc__).parse_args(), WANTED):
        noise = estimate_noise(setting.labels, setting.probabilities, groups=setting.groups, bootstrap=0)
        quality = label_quality(setting.labels, setting.probabilities, transition=noise.transition)
        wrong, count = setting.wrong, int(setting.wrong.sum())
        theirs = cleanlab_scores(setting)
        ours = average_precision(wrong, quality), precision(wrong, quality, count)
        best = (
            max(average_precision(wrong, score) for score in theirs),
            max(precision(wrong, score, count) for score in theirs),
        )
        issues = cleanlab_issues(setting)
        ahead += ours[0] > best[0] and ours[1] > best[1]
        rows.append(
            (
                setting.name,
                str(count),
                f"{ours[0]:.3f}",
                f"{best[0]:.3f}",
                f"{ours[1]:.3f}",
                f"{best[1]:.3f}",
                str(len(issues)),
                f"{precision(wrong, quality, len(issues)):.3f}",
                f"{wrong[issues].mean():.3f}",
            )
        )
    head = (
        "noise",
        "wrong",
        "AP ours",
        "cleanlab",
        "P@wrong ours",
        "cleanlab",
        "issues",
        "P ours",
        "cleanlab",
    )
    table(head, rows)
    print(f"ahead in both in {ahead} of {len(rows)} settings")


def average_precision(wrong: np.ndarray, score: np.ndarray) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(wrong, -score))


def precision(wrong: np.ndarray, score: np.ndarray, count: int) -> float:
    """The share of wrong labels among the ``count`` worst."""
    return float(wrong[np.argsort(score, kind="stable")[:count]].mean())


def cleanlab_scores(setting: Setting) -> list[np.ndarray]:
    from cleanlab.rank import get_label_quality_scores

    return [
        get_label_quality_scores(
            setting.labels, setting.probabilities, method=method, adjust_pred_probs=False
        )
        for method in SCORES
    ]


def cleanlab_issues(setting: Setting) -> np.ndarray:
    from cleanlab.filter import find_label_issues

    return np.flatnonzero(find_label_issues(setting.labels, setting.probabilities, n_jobs=1))


if __name__ == "__main__":
    main()
