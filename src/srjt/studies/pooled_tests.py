"""Does "+ours" improve its host, over all hosts and noises together?

Single comparisons of three to five folds are weak. The mean of a fold's differences over hosts and noises is one number
per fold, and the same paired test applies to it. Hosts share a fold's patients, so they do not count as more folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import pandas as pd

from srjt.studies.paired_tests import PairedTest, corrected_t_test, largest_difference, ours_minus_host

__all__ = ["pool_ours"]


def pool_ours(
    scores: pd.DataFrame,
    groups: Mapping[str, Sequence[str]],
    *,
    test_train_ratio: float,
    metrics: Sequence[str],
    split: str = "test",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The mean of "+ours" minus host over the hosts and noises of each group, one row per group and metric.

    groups: name → noises. Only folds that all pairs have are used. Columns: group, metric, hosts and noises (how
    many), pairs, and the fields of PairedTest; no row for a group with fewer than two pairs.
    """
    rows = []
    for group, noises in groups.items():
        for metric in metrics:
            pairs = {
                (noise, name): found
                for noise in noises
                for name, found in ours_minus_host(scores, noise=noise, metric=metric, split=split).items()
                if len(found)
            }
            if len(pairs) < 2:
                continue
            by_fold = pd.DataFrame(pairs).dropna().mean(axis=1)
            test = corrected_t_test(
                by_fold.to_numpy(),
                test_train_ratio=test_train_ratio,
                confidence=confidence,
                largest=largest_difference(metric),
            )
            rows.append(
                {
                    "group": group,
                    "metric": metric,
                    "hosts": len({name for _, name in pairs}),
                    "noises": len({noise for noise, _ in pairs}),
                    "pairs": len(pairs),
                    **asdict(test),
                }
            )
    columns = ["group", "metric", "hosts", "noises", "pairs", *PairedTest.__dataclass_fields__]
    return pd.DataFrame(rows, columns=columns)
