"""The section of a study about its learning curve: would more images or better labels help more?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from srjt.ordinal.metrics import METRICS
from srjt.reports.page import Rule, Section, first_sentence, sentences
from srjt.reports.study_tables import noise_label
from srjt.reports.table import data_table, metric_heading
from srjt.studies.config import learning_curve, parse_noise
from srjt.studies.results import StudyResults


@dataclass(frozen=True, kw_only=True)
class CurveFacts:
    """Gains are improvements of the metric: the mean, the least and the most over folds and seeds; nan if not known."""

    metric: str
    method: str
    doubling: tuple[float, float, float]  # all training patients instead of half of them
    halving: tuple[float, float, float]  # half of the label noise

    @property
    def doubled(self) -> str:
        """In words."""
        return _gain(self.doubling)

    @property
    def halved(self) -> str:
        """In words."""
        return _gain(self.halving)


VERDICT: list[Rule[CurveFacts]] = [
    (
        lambda f: math.isnan(f.halving[0]),
        "Whether better labels would help more cannot be told: no noise was injected into labels that are known.",
    ),
    (lambda f: f.halving[1] > f.doubling[2], "Better labels help more than more images."),
    (lambda f: f.doubling[1] > f.halving[2], "More images help more than better labels."),
    (lambda f: True, "Whether more images or better labels help more is not shown: the folds differ."),
]
GAINS: list[Rule[CurveFacts]] = [
    (
        lambda f: not math.isnan(f.doubling[0]),
        "Twice the training patients improve the {f.metric} of {f.method} by {f.doubled}. A further doubling usually "
        "gains less; it was not measured.",
    ),
    (lambda f: not math.isnan(f.halving[0]), "Half of the label noise improves it by {f.halved}."),
]


def _gain(values: tuple[float, float, float]) -> str:
    return "{:+.3f} ({:+.3f} to {:+.3f} over the folds)".format(*values).replace("-", "−")


def curve_facts(results: StudyResults, noise: str, method: tuple[str, str], *, metric: str) -> CurveFacts:
    """Of one method, by name and variant, and one noise without a share."""
    scores = results.scores
    own = scores[(scores["split"] == "test") & (scores["metric"] == metric)]
    own = own[(own["method"] == method[0]) & (own["variant"] == method[1])]
    values = own.set_index(["noise", "fold", "seed"])["value"]
    sign = 1.0 if METRICS[metric].lower_is_better else -1.0

    def gain(before: str, after: str) -> tuple[float, float, float]:
        present = set(own["noise"])
        if before not in present or after not in present:
            return math.nan, math.nan, math.nan
        better = (sign * (values[before] - values[after])).dropna()
        if better.empty:
            return math.nan, math.nan, math.nan
        return float(better.mean()), float(better.min()), float(better.max())

    halved = [text for text in learning_curve([noise]) if parse_noise(text).share == 1.0 and text != noise]
    return CurveFacts(
        metric=METRICS[metric].long_name,
        method=method[0],
        doubling=gain(f"{noise}@0.5", noise),
        halving=gain(noise, halved[0]) if halved else (math.nan, math.nan, math.nan),
    )


def learning_curve_section(results: StudyResults, *, metric: str) -> Section | None:
    """None if the study has no shares of the training patients, or no scores yet."""
    scores = results.scores
    own = scores[(scores["split"] == "test") & (scores["metric"] == metric)]
    specs = {text: parse_noise(text) for text in own["noise"].unique()}
    curves = list(dict.fromkeys(spec.labels for spec in specs.values() if spec.share < 1.0))
    if not curves:
        return None
    table = (
        own.groupby(["method", "variant", "noise"], sort=False)["value"].agg(["mean", "std"]).reset_index()
    )
    table["training"] = [noise_label(text) for text in table["noise"]]
    shown = table[["method", "training", "mean", "std"]].rename(
        columns={"mean": metric_heading(metric), "std": "± over folds"}
    )
    texts = []
    for noise in curves:
        for method in own.loc[own["noise"] == noise, ["method", "variant"]].drop_duplicates().itertuples():
            facts = curve_facts(results, noise, (str(method.method), str(method.variant)), metric=metric)
            texts.append(" ".join([first_sentence(VERDICT, facts), *sentences(GAINS, facts)]))
    return Section(
        slug="learning-curve",
        heading="More images or better labels?",
        text=texts,
        tables=[data_table(shown, title="By training patients and noise", slug="learning-curve")],
        brief=True,
    )
