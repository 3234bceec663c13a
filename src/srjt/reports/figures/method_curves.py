"""The curves of a study's methods: mean and standard deviation over folds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from srjt.reports.figures.curves import Curve, mean_over_networks
from srjt.reports.tables.ablation import MethodVariant
from srjt.studies.noise_spec import parse_noise
from srjt.studies.paper import display_name, paper_order

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = [
    "curve_name",
    "describe_ends",
    "file_name",
    "fold_curve",
    "incomplete_note",
    "method_curves",
    "method_labels",
    "nominal_rates",
    "spread_note",
    "study_methods",
    "study_noises",
]


def study_noises(results: StudyResults) -> list[str]:
    return list(dict.fromkeys([*results.facts.get("noises", []), *results.runs["noise"]]))


def study_methods(results: StudyResults) -> list[str]:
    return paper_order([*results.facts.get("methods", []), *results.runs["method"]])


def nominal_rates(results: StudyResults) -> dict[str, float]:
    """Noise → its nominal rate on the class mix of the data, mean over folds; else the rate in its name."""
    named = {noise: parse_noise(noise).rate for noise in study_noises(results)}
    known = results.noise.dropna(subset=["nominal_rate"]).groupby("noise")["nominal_rate"].mean()
    return {
        **{n: r for n, r in named.items() if r is not None},
        **{str(n): float(r) for n, r in known.items()},
    }


def method_curves(
    results: StudyResults, noise: str, *, split: str, metric: str, labels: Mapping[MethodVariant, str]
) -> tuple[list[Curve], dict[str, str]]:
    """A curve per method, mean and standard deviation over folds (seeds averaged first), and label → what is missing.

    labels: (method, variant) → label of its curve. Finished runs only; if a method has none, its unfinished runs, up
    to the last epoch that all of them have reached. Failed runs never.
    """
    metrics, runs = results.metrics, results.runs
    metrics = metrics[
        (metrics["noise"] == noise) & (metrics["split"] == split) & (metrics["metric"] == metric)
    ]
    runs = runs[runs["noise"] == noise]
    pooled = results.facts.get("config", {}).get("convention") == "published-code"
    curves, missing = [], {}
    for (method, variant), label in labels.items():
        planned = runs[(runs["method"] == method) & (runs["variant"] == variant)]
        done = planned[planned["status"] == "done"]
        chosen = done if len(done) else planned[planned["status"] != "failed"]
        table = metrics[metrics["key"].isin(list(chosen["key"]))]
        if table.empty:
            continue
        if len(done) < len(planned):
            missing[label] = f"{len(done)} of {len(planned)} runs" if len(done) else "unfinished"
        per_run = {
            key: mean_over_networks(rows, split=split, metric=metric, pooled=pooled)
            for key, rows in table.groupby("key")
        }
        by_epoch = pd.DataFrame(per_run).dropna()  # the epochs that all runs have reached
        if by_epoch.empty:
            continue
        fold_of = chosen.set_index("key")["fold"]
        folds = by_epoch.T.groupby(fold_of.reindex(by_epoch.columns).to_numpy()).mean()
        curves.append(fold_curve((method, variant), folds, label=label))
    return curves, missing


def method_labels(methods: Iterable[str]) -> dict[MethodVariant, str]:
    """(method, no variant) → its name in figures."""
    return {(method, ""): display_name(method) for method in methods}


def curve_name(source: MethodVariant) -> str:
    """As on the command line: "co-teaching", "co-teaching:select=soft"."""
    return ":".join(filter(None, source))


def fold_curve(source: MethodVariant, folds: pd.DataFrame, *, label: str) -> Curve:
    """folds: one row per fold, one column per value of x. The spread is None for a single fold."""
    return Curve(
        name=curve_name(source),
        label=label,
        x=folds.columns.to_numpy(np.float64),
        y=folds.mean().to_numpy(np.float64),
        spread=folds.std(ddof=0).to_numpy(np.float64) if len(folds) > 1 else None,
    )


def spread_note(curves: Iterable[Curve], *, shown_as: str = "bands") -> str:
    """What bands or bars show, for a caption; empty if there are none, because there is one fold only."""
    if all(curve.spread is None for curve in curves):
        return ""
    return f"; {shown_as}: one standard deviation over the folds (population, ddof = 0)"


def incomplete_note(missing: Mapping[str, str]) -> str:
    """The end of a caption that names the methods with missing runs."""
    if not missing:
        return ""
    if len(missing) > 4 and len(set(missing.values())) == 1:
        return f" Incomplete: {len(missing)} methods, each {next(iter(missing.values()))}."
    return " Incomplete: " + "; ".join(f"{name}, {what}" for name, what in missing.items()) + "."


def describe_ends(curves: Sequence[Curve]) -> str:
    """The last values as a sentence, highest first, for readers who cannot see the curves."""
    last = sorted(((float(curve.y[-1]), curve.label or curve.name) for curve in curves), reverse=True)
    return "At the end: " + ", ".join(f"{name} {value:.3f}" for value, name in last) + "."


def file_name(text: str) -> str:
    """A name for a file on every system: "mae quasi:rho=0.1" → "mae-quasi-rho-0.1"."""
    return "-".join("".join(c if c.isascii() and (c.isalnum() or c in ".+-") else " " for c in text).split())
