"""The page of a plan: how many patients, and what other half-widths would take."""

from __future__ import annotations

import numpy as np

from srjt.inference.sample_size import SamplePlan
from srjt.ordinal.metrics import METRICS
from srjt.reports.figures.canvas import CaptionedFigure, Curve, chart
from srjt.reports.page import KeyNumber, Note, Page, Rule, Section, first_sentence, sentences
from srjt.reports.table import data_table

LEAD: list[Rule[SamplePlan]] = [
    (
        lambda f: f.metric == "noise-rate",
        "Verify {f.images:,} labels at random to know the share of wrong ones within ± {f.half_width:g}.",
    ),
    (
        lambda f: f.images == f.patients,
        "{f.patients:,} patients give an interval of ± {f.half_width:g}, {f.source}.",
    ),
    (
        lambda f: True,
        "{f.patients:,} patients ({f.images:,} images) give an interval of ± {f.half_width:g}, {f.source}.",
    ),
]
NOTES: list[Rule[SamplePlan]] = [
    (lambda f: 0 < f.pilot < 30, "A pilot of {f.pilot} patients is small: the number may be far off."),
    (
        lambda f: f.pilot > 0,
        "The deviation of the pilot is taken for that of all patients; another clinic may differ.",
    ),
    (
        lambda f: f.metric == "qwk" and not f.pilot,
        "The deviation of κ is taken as that of a correlation coefficient.",
    ),
    (
        lambda f: f.metric != "noise-rate",
        "More patients do not help against wrong labels: have images read several times, or verify a random part.",
    ),
]


def plan_page(plan: SamplePlan) -> Page:
    """The number as a sentence, a curve, and the table."""
    name = METRICS[plan.metric].long_name if plan.metric in METRICS else plan.metric.replace("-", " ")
    table = data_table(
        plan.table.rename(columns={"half_width": "± half-width"}),
        title="For other half-widths",
        formats={"± half-width": ".3g"},
        slug="plan",
    )
    sections = [Section(slug="widths", heading="Other half-widths", tables=[table])]
    if len(plan.readings):
        enough = plan.readings.loc[plan.readings["wrong"] <= plan.half_width, "readings"]
        text = "Even nine readings of an image leave more wrong grades than the half-width."
        if len(enough):
            text = (
                f"{enough.iloc[0]:.0f} readings of each image leave fewer wrong grades than the half-width."
            )
        readings = data_table(
            plan.readings.rename(columns={"wrong": "wrong medians"}),
            title="Readings of each image",
            caption="At most, if readers err independently of each other.",
            formats={"wrong medians": ".1%", "readings": ".0f"},
            slug="readings",
        )
        sections.append(
            Section(slug="readings", heading="Readings", text=[text], tables=[readings], brief=True)
        )
    return Page(
        kind="Plan",
        title=f"How many patients for {name}",
        lead=first_sentence(LEAD, plan),
        key_numbers=[
            KeyNumber(label="patients", value=f"{plan.patients:,}"),
            KeyNumber(label="images", value=f"{plan.images:,}"),
            KeyNumber(label=name, value=f"{plan.value:.3f}", interval=f"± {plan.half_width:g}"),
        ],
        figure=_curve(plan, name),
        figure_table=table,
        notes=[Note(text=text, warning=False) for text in sentences(NOTES, plan)],
        sections=sections,
    )


def _curve(plan: SamplePlan, name: str) -> CaptionedFigure:
    most = max(int(plan.table["patients"].max()), 10)
    patients = np.unique(np.geomspace(max(5, most / 40), most, 60).round())
    curve = Curve(name=name, x=patients, y=plan.half_width_of(patients), label=f"± {name}")
    return CaptionedFigure(
        name="plan",
        figure=chart(
            [curve],
            xlabel="patients",
            title="Half-width of the 95 % interval",
            reference=(plan.half_width, "wanted"),
        ),
        caption=f"One patient contributes a deviation of {plan.deviation:.2f}.",
        alt=f"Half-width by number of patients; {plan.patients:,} reach {plan.half_width:g}.",
    )
