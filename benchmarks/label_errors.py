"""Are the wrong labels found, and does the quality of a label mean what it says? Beside cleanlab
and plain scores.

    python benchmarks/label_errors.py                         simulated readers, about 20 minutes on one core
    python benchmarks/label_errors.py --quick                 four seeds, about two minutes
    python benchmarks/label_errors.py --probabilities FILE ...   settings of noisy_settings.py

Average precision of ``label_quality``, of the best of cleanlab's three scores, and of three plain
scores on the same probabilities: 1 − p(label), the normalised margin (both also cleanlab's) and
E|grade − label|. The oracle knows p(true grade | image, label). ``off``: labels are sorted by
quality and cut into tenths; the mean distance between the mean quality of a tenth and its share of
right labels. Seeds as in ``noise_estimation.py``. cleanlab comes with ``pip install
".[benchmarks]"``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from noise_estimation import SIZES, parser
from noisy_settings import Setting, read
from simulated_readers import Simulation, simulations

from srjt.noise.quality import label_quality

SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


def main() -> None:
    given = parser(__doc__).parse_args()
    source = (
        map(read, given.probabilities)
        if given.probabilities
        else simulations(range(given.first, given.first + given.seeds), sizes=SIZES)
    )
    found = pd.DataFrame([row(one) for one in source])
    if given.out:
        found.to_csv(given.out, index=False)
    for by in (["family", "kind"], ["family"]):
        table = found.drop(columns=list({"family", "kind"} - set(by))).groupby(by, sort=False)
        print(table.mean().round(3).assign(settings=table.size()).to_string(), "\n")


def row(setting: Simulation | Setting) -> dict[str, object]:
    labels, p, wrong = setting.labels, setting.probabilities, setting.wrong
    rows = np.arange(len(labels))
    quality = label_quality(labels, p)
    theirs = [average_precision(wrong, score) for score in cleanlab_scores(setting)]
    distance = np.abs(np.arange(p.shape[1]) - labels[:, None])
    found = {
        "family": setting.family if isinstance(setting, Simulation) else setting.kind,
        "kind": setting.kind if isinstance(setting, Simulation) else "network",
        "AP ours": average_precision(wrong, quality),
        "cleanlab's best": max(theirs),
        "1 - p(label)": average_precision(wrong, p[rows, labels]),
        "margin": theirs[1],
        "E|distance|": average_precision(wrong, -(p * distance).sum(axis=1)),
        "off": miscalibration(quality, ~wrong),
    }
    if isinstance(setting, Simulation):
        found["oracle"] = average_precision(wrong, setting.oracle[rows, labels])
    return found


def average_precision(wrong: np.ndarray, score: np.ndarray) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(wrong, -score))


def miscalibration(quality: np.ndarray, right: np.ndarray) -> float:
    tenths = np.array_split(np.argsort(quality, kind="stable"), 10)
    return float(np.mean([abs(quality[part].mean() - right[part].mean()) for part in tenths]))


def cleanlab_scores(setting: Simulation | Setting) -> list[np.ndarray]:
    from cleanlab.rank import get_label_quality_scores

    return [
        get_label_quality_scores(
            setting.labels, setting.probabilities, method=method, adjust_pred_probs=False
        )
        for method in SCORES
    ]


if __name__ == "__main__":
    main()
