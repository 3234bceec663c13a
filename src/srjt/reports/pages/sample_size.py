"""How many patients a study needs: the page of a plan, and the section of a study about its learning curve."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from srjt.inference.sample_size import SamplePlan
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.canvas import CaptionedFigure, Curve, chart
from srjt.reports.page import KeyNumber, Page, Rule, Section, Verdict, page_of, sentences, verdict
from srjt.reports.study_tables import noise_label
from srjt.reports.table import data_table, metric_heading
from srjt.studies.config import CORRECTED, better_labels, parse_noise
from srjt.studies.results import StudyResults

PLANNED: list[Verdict[Any]] = [
    (lambda f: f.metric == "noise-rate", "Verify {f.images:,} labels, drawn at random", "The share of wrong labels is "
     "then known within ± {f.half_width:g}."),
    (lambda f: True, "{f.patients:,} patients give the {f.name} within ± {f.half_width:g}", "More patients do not help "
     "against wrong labels: have images read several times, or verify a random part."),
]  # fmt: skip
NOTES: list[Rule[SamplePlan]] = [
    (lambda f: 0 < f.pilot < 30, "A pilot of {f.pilot} patients is small: the number may be far off."),
    (lambda f: f.pilot > 0, "The deviation of the pilot is taken for that of all patients; another clinic may "
     "differ."),
    (lambda f: f.metric == "qwk" and not f.pilot, "The deviation of κ is taken as that of a correlation coefficient."),
]  # fmt: skip


@page_of.register(SamplePlan)
def plan_page(plan: SamplePlan) -> Page:
    """The number as a sentence, a curve, and the table."""
    name = METRICS[plan.metric].long_name if plan.metric in METRICS else plan.metric.replace("-", " ")
    table = data_table(
        plan.table.rename(columns={"half_width": "± half-width"}),
        title="",
        formats={"± half-width": ".3g"},
        slug="plan",
    )
    sections = [Section("widths", "Other half-widths", tables=[table])]
    if len(plan.readings):
        enough = plan.readings.loc[plan.readings["wrong"] <= plan.half_width, "readings"]
        few = "Nine readings leave more"
        if len(enough):
            few = f"{enough.iloc[0]:.0f} readings of an image leave fewer"
        readings = data_table(
            plan.readings.rename(columns={"wrong": "wrong medians"}),
            title="Readings of each image",
            caption="At most, if readers err independently of each other.",
            formats={"wrong medians": ".1%", "readings": ".0f"},
            slug="readings",
        )
        text = f"{few} wrong grades than the half-width."
        sections.append(Section("readings", "Readings", text=[text], tables=[readings], brief=True))
    title, lead = verdict(PLANNED, SimpleNamespace(**vars(plan), name=name))
    other = "patients" if plan.metric == "noise-rate" else "images"
    return Page(
        kind="Plan",
        title=title,
        lead=lead,
        key_numbers=[
            KeyNumber(name, f"{plan.value:.3f}", interval=f"± {plan.half_width:g}", compared=plan.source),
            KeyNumber(other, f"{getattr(plan, other):,}"),
        ],
        figure=_curve(plan, name),
        figure_table=table,
        remarks=sentences(NOTES, plan),
        sections=sections,
    )


def _curve(plan: SamplePlan, name: str) -> CaptionedFigure:
    most = max(int(plan.table["patients"].max()), 10)
    patients = np.unique(np.geomspace(max(5, most / 40), most, 60).round())
    curve = Curve(name=name, x=patients, y=plan.half_width_of(patients), label=f"± {name}")
    title, wanted = "Half-width of the 95 % interval", (plan.half_width, "wanted")
    return CaptionedFigure(
        name="plan",
        figure=chart([curve], xlabel="patients", title=title, reference=wanted),
        caption=f"One patient contributes a deviation of {plan.deviation:.2f}.",
        alt=f"Half-width by number of patients; {plan.patients:,} reach {plan.half_width:g}.",
    )


# The learning curve of a study: would more images or better labels help more?


class Gain(NamedTuple):
    """Improvement of a metric: its mean, the least and the most over folds and seeds; nan if not known."""

    mean: float = math.nan
    least: float = math.nan
    most: float = math.nan

    def __str__(self) -> str:
        return "{:+.3f} ({:+.3f} to {:+.3f} over the folds)".format(*self).replace("-", "−")


VERDICT: list[Rule[Any]] = [
    (lambda f: not f.learnt, "What would help is not shown: the networks are no better than one grade for all "
     "samples."),
    (lambda f: math.isnan(f.better.mean), "Whether better labels would help more cannot be told: no noise was "
     "injected, and the data have no column true_grade or verified_grade."),
    (lambda f: f.better.least > f.doubling.most, "Better labels help more than more images."),
    (lambda f: f.doubling.least > f.better.most, "More images help more than better labels."),
    (lambda f: True, "Whether more images or better labels help more is not shown: the folds differ."),
]  # fmt: skip
GAINS: list[Rule[Any]] = [
    (lambda f: not math.isnan(f.doubling.mean), "Twice the training patients improve the {f.metric} of {f.method} by "
     "{f.doubling!s}. A further doubling usually gains less; it was not measured."),
    (lambda f: not math.isnan(f.better.mean), "{f.labels} improve it by {f.better!s}."),
]  # fmt: skip


def curve_facts(
    results: StudyResults, noise: str, method: tuple[str, str], *, metric: str
) -> SimpleNamespace:
    """Of one method, by name and variant, and one noise without a share.

    doubling: all training patients instead of half of them; better: better labels, which ``labels`` names; learnt:
    whether the networks beat one grade for all.
    """
    scores = results.scores
    own = scores[(scores["split"] == "test") & (scores["metric"] == metric)]
    own = own[(own["method"] == method[0]) & (own["variant"] == method[1])]
    values = own.set_index(["noise", "fold", "seed"])["value"]
    sign = 1.0 if METRICS[metric].lower_is_better else -1.0

    def gain(before: str, after: str) -> Gain:
        if not {before, after} <= set(own["noise"]):
            return Gain()
        gains = (sign * (values[before] - values[after])).dropna()
        return Gain(float(gains.mean()), float(gains.min()), float(gains.max()))

    better = better_labels(parse_noise(noise))
    naive = results.naive[(results.naive["noise"] == noise) & (results.naive["metric"] == metric)]["value"]
    score = own.loc[own["noise"] == noise, "value"].mean()
    halved, true = "Labels with half of the noise", "True or verified grades as labels"
    return SimpleNamespace(
        metric=METRICS[metric].long_name,
        method=method[0],
        doubling=gain(f"{noise}@0.5", noise),
        better=gain(noise, better),
        labels=true if better == CORRECTED else halved,
        learnt=bool(naive.empty or sign * (naive.mean() - score) > 0),
    )


def learning_curve_section(results: StudyResults, *, metric: str) -> Section | None:
    """None if the study has no shares of the training patients, or no scores yet."""
    scores = results.scores
    own = scores[(scores["split"] == "test") & (scores["metric"] == metric)]
    specs = {text: parse_noise(text) for text in own["noise"].unique()}
    curves = list(dict.fromkeys(spec.labels for spec in specs.values() if spec.share < 1.0))
    if not curves:
        return None
    values = own.groupby(["method", "variant", "noise"], sort=False)["value"]
    table = values.agg(["mean", "std"]).reset_index()
    table["training"] = table["noise"].map(noise_label)
    headings = {"mean": metric_heading(metric), "std": "± over folds"}
    shown = table[["method", "training", "mean", "std"]].rename(columns=headings)
    texts = []
    for noise in curves:
        for method in own.loc[own["noise"] == noise, ["method", "variant"]].drop_duplicates().itertuples():
            facts = curve_facts(results, noise, (str(method.method), str(method.variant)), metric=metric)
            texts.append(" ".join([sentences(VERDICT, facts)[0], *sentences(GAINS, facts)]))
    return Section(
        "learning-curve",
        "More images or better labels?",
        text=texts,
        tables=[data_table(shown, title="By training patients and noise", slug="learning-curve")],
        brief=True,
    )
