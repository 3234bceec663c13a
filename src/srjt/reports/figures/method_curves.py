"""A study's runs as lines, mean and spread over the folds, and the words that go with them."""

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
    "BAND",
    "KINDS",
    "curves",
    "ends",
    "file_name",
    "incomplete",
    "line_name",
    "methods_of",
    "noise_name",
    "noises",
    "over_folds",
    "plain_methods",
    "rates",
    "under",
]

KINDS = {"quasi": "Quasi-Gaussian", "truncated": "Truncated-Gaussian"}
BAND = "bands: one standard deviation over the folds (population, ddof = 0)"


def noises(results: StudyResults) -> list[str]:
    return list(dict.fromkeys([*results.facts.get("noises", []), *results.runs["noise"]]))


def noise_name(noise: str) -> str:
    """ "quasi:0.2" → "Quasi-Gaussian noise, rate 0.2"; "quasi:rho=0.1" → "Quasi-Gaussian noise, ρ = 0.1"."""
    spec = parse_noise(noise)
    if spec.kind == "none":
        return "Labels as given"
    words = [f"{KINDS.get(spec.kind, spec.kind)} noise"]
    words += [] if spec.rate is None else [f"rate {spec.rate:g}"]
    words += [] if spec.rho is None else [f"ρ = {spec.rho:g}"]
    return ", ".join(words)


def file_name(text: str) -> str:
    """Fit for a file on every system: "mae quasi:rho=0.1" → "mae-quasi-rho-0.1"."""
    return "-".join("".join(c if c.isascii() and (c.isalnum() or c in ".+-") else " " for c in text).split())


def under(noise: str) -> str:
    name = noise_name(noise)
    return "with the labels as given" if parse_noise(noise).kind == "none" else f"under {name}"


def methods_of(results: StudyResults) -> list[str]:
    return paper_order([*results.facts.get("methods", []), *results.runs["method"]])


def rates(results: StudyResults) -> dict[str, float]:
    """Nominal rate of each noise on the data's class mix, mean over folds; else the one in its name."""
    named = {noise: parse_noise(noise).rate for noise in noises(results)}
    known = results.noise.dropna(subset=["nominal_rate"]).groupby("noise")["nominal_rate"].mean()
    return {
        **{n: r for n, r in named.items() if r is not None},
        **{str(n): float(r) for n, r in known.items()},
    }


def curves(
    results: StudyResults, noise: str, *, split: str, metric: str, sources: Mapping[MethodVariant, str]
) -> tuple[list[Curve], dict[str, str]]:
    """A line per source, mean and spread over folds (seeds averaged first), and what is missing of which.

    sources: method and variant → what to call it. Finished runs only; where there are none, those under way, as
    far as all of them have come.
    """
    m, runs = results.metrics, results.runs
    m = m[(m["noise"] == noise) & (m["split"] == split) & (m["metric"] == metric)]
    runs = runs[runs["noise"] == noise]
    pooled = results.facts.get("config", {}).get("convention") == "published-code"
    lines, short = [], {}
    for (method, variant), label in sources.items():
        mine = runs[(runs["method"] == method) & (runs["variant"] == variant)]
        done = mine[mine["status"] == "done"]
        chosen = done if len(done) else mine
        table = m[m["key"].isin(list(chosen["key"]))]
        if table.empty:
            continue
        if len(done) < len(mine):
            short[label] = (
                f"{len(done)} of {len(mine)} runs" if len(done) else "unfinished, as far as it has come"
            )
        per_run = {
            key: mean_over_networks(rows, split=split, metric=metric, pooled=pooled)
            for key, rows in table.groupby("key")
        }
        wide = pd.DataFrame(per_run).dropna()  # the epochs that all have reached
        if wide.empty:
            continue
        fold_of = chosen.set_index("key")["fold"]
        folds = wide.T.groupby(fold_of.reindex(wide.columns).to_numpy()).mean()
        lines.append(over_folds((method, variant), folds, label=label))
    return lines, short


def plain_methods(methods: Iterable[str]) -> dict[MethodVariant, str]:
    """Methods without a variant, as sources."""
    return {(method, ""): display_name(method) for method in methods}


def line_name(source: MethodVariant) -> str:
    """As on the command line: "co-teaching", "co-teaching:select=soft"."""
    return ":".join(filter(None, source))


def over_folds(source: MethodVariant, folds: pd.DataFrame, *, label: str) -> Curve:
    """One row per fold, one column per place on the x-axis → their mean, and their spread if there are several."""
    return Curve(
        name=line_name(source),
        label=label,
        x=folds.columns.to_numpy(np.float64),
        y=folds.mean().to_numpy(np.float64),
        spread=folds.std(ddof=0).to_numpy(np.float64) if len(folds) > 1 else None,
    )


def incomplete(short: Mapping[str, str]) -> str:
    if not short:
        return ""
    if len(short) > 4 and len(set(short.values())) == 1:
        return f" Incomplete: {len(short)} methods, each {next(iter(short.values()))}."
    return " Incomplete: " + "; ".join(f"{name}, {what}" for name, what in short.items()) + "."


def ends(lines: Sequence[Curve]) -> str:
    """The last values in words, from the highest down as they stand, for those who cannot see the lines."""
    last = sorted(((float(line.y[-1]), line.label or line.name) for line in lines), reverse=True)
    return "At the end: " + ", ".join(f"{name} {value:.3f}" for value, name in last) + "."
