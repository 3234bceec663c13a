"""The first page of ``srjt analyse``: what the data are, how good the model is, which labels may be
wrong, what would help, and what to do next.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from srjt.errors import count_of
from srjt.ordinal import decode
from srjt.ordinal.baseline import Gain, Verdict, gain_over_one_grade
from srjt.ordinal.metrics import METRICS
from srjt.reports import analysis
from srjt.reports.analysis import Analysis
from srjt.reports.page import KeyNumber, Page, Section, page_of
from srjt.reports.pages.audit import audit_page
from srjt.reports.pages.evaluation import (
    by_grade_table,
    comparison_facts,
    confusion_of,
    confusion_table,
    evaluation_facts,
    evaluation_notes,
    judgement,
    never_predicted,
)
from srjt.reports.pages.inspection import perhaps_patients
from srjt.reports.sections import counts_table, named_grades
from srjt.reports.table import ONE_LABEL, data_table

FIRST = 20  # doubtful labels that the page shows
CONFUSIONS = 6
PREDICT = "To predict grades; new images take the place of these"
SCARCE = 50  # training images of a grade, below which more of them come first


Outcome = Literal["better", "worse", "unclear", "equal"]


@dataclass(frozen=True, kw_only=True)
class AnalysisFacts:
    """What the sentences are about; "" where there is nothing to say."""

    verdict: Verdict  # against one grade for all
    network: str
    size: int  # pixels
    small: bool  # whether it is a small or frozen network, for machines without a GPU
    missed: str  # grades that are never predicted: "Grade 3 is"
    missed_are_scarce: bool  # whether all of them have few training images
    scarce: str  # grades with few training images
    wrong: float | None  # share of wrong labels; None: not known
    verify: int  # labels to verify
    no_patients: bool
    perhaps_patients: str
    outcome: Outcome | None = None  # against plain training; None: it is plain training


def against_plain(f: AnalysisFacts) -> str:
    """How the model compares with plain training; the numbers are among the key numbers."""
    if f.outcome == "better":
        return "srjt is better than plain training of the same network."
    if f.outcome == "worse":
        return "Plain training of the same network is better: use srjt train --method standard."
    if f.outcome == "equal":
        return (
            "Here, srjt gives the same answers as plain training of the same network: no label"
            " errors could be corrected."
        )
    if f.outcome == "unclear":
        return (
            "The test side is too small to show a difference between srjt and plain training of the"
            " same network."
        )
    return (
        "The model is plain training: with so few images, and without pretrained weights,"
        " estimating the noise first does not help."
    )


def what_would_help(f: AnalysisFacts) -> Iterator[str]:
    """The most helpful first."""
    if f.verdict in ("not better", "unclear") and f.small:
        yield (
            f"A GPU, or features of a larger network. This model ({f.network}, images of"
            f" {f.size} pixels) is made for a machine without a GPU, and it is not clearly better"
            " than one grade for all."
        )
    if f.verdict in ("not better", "unclear") and not f.small:
        yield (
            "More images, or a longer training: the model is not clearly better than one grade for"
            " all."
        )
    if f.missed:
        rare = " of the rare grades" if f.missed_are_scarce else ""
        yield f"More images{rare}. {f.missed} never predicted on the test side."
    if f.scarce and not f.missed:
        yield (
            f"More images of the rare grades. {f.scarce} represented by fewer than {SCARCE}"
            " training images."
        )
    if f.wrong is not None and f.wrong >= 0.05:
        yield (
            f"Better labels: about {f.wrong:.0%} are wrong. The page of srjt review shows the most"
            " doubtful first; srjt review export then writes the corrected table, and says how to"
            " train on it."
        )
    if f.verify and f.wrong is not None:
        yield (
            "Verified labels: they say more surely how many labels are wrong, and a model that also"
            " learns from them is often better. srjt review --sample draws those to verify."
        )
    if f.verify and f.wrong is None:
        yield (
            "Verified labels: how many labels are wrong is not determined by the labels alone, and"
            " a model that also learns from verified ones is often better. srjt review --sample"
            " draws those to verify."
        )
    if f.no_patients:
        yield (
            "Patient ids: without them images of one patient may be on both sides, and every"
            f" number here may be too good. {f.perhaps_patients}".rstrip()
        )
    if f.verdict == "better" and f.small:
        yield (
            f"A GPU: this model ({f.network}, images of {f.size} pixels) is made for a machine"
            " without one. The same command on a machine with a GPU trains a whole network, which"
            " is usually better from 300 images on."
        )


WHETHER_MORE = "How much more images would help is measured by trainings on parts of the data:"


@dataclass(frozen=True, kw_only=True)
class AcrossFolds:
    """What the trainings of the audit gain over one grade for all, each judged on the patients that
    it was not trained on: together these are all patients, the test side is a fifth of them."""

    gain: Gain
    folds: int
    method: str
    samples: str  # "600 images of 300 patients"

    def sentence(self) -> str:
        """The same in words."""
        return (
            f"The {self.folds} trainings of the audit (method {self.method}), each judged on the"
            " part that it was not trained on, have a mean absolute error of"
            f" {self.gain.score:.3f} on {self.samples}; one grade for all has"
            f" {self.gain.naive:.3f}."
        )


def across_folds(done: Analysis) -> AcrossFolds | None:
    """None if the grades are for another metric than the absolute error."""
    if done.evaluation.purpose != "mae":
        return None
    fitted = done.audited.fitted
    samples = fitted.manifest
    labels = samples.labels
    if samples.true_labels is not None:
        labels = samples.true_labels
    gain = gain_over_one_grade(
        labels,
        decode(torch.from_numpy(fitted.probabilities), "median").numpy(),
        training_counts=samples.class_counts,
        metric="mae",
        groups=samples.groups,
    )
    noun = "rows of features" if samples.are_features else "images"
    counted = f"{len(samples):,} {noun}"
    if samples.patients is not None:
        counted += f" of {count_of(len(set(samples.patients)), 'patient')}"
    return AcrossFolds(
        gain=gain,
        folds=len(np.unique(fitted.fold)),
        method=str(done.audited.facts["method"]),
        samples=counted,
    )


def verdict_of_both(test_side: Verdict, all_patients: Verdict) -> Verdict:
    """All patients may show a gain that the test side is too small for, and nothing else."""
    if test_side == "unclear" and all_patients == "better":
        return "better"
    return test_side


def verdict_of(done: Analysis, across: AcrossFolds | None) -> tuple[Verdict, str, str]:
    """The verdict against one grade for all, with title and lead. Where the test side is too small
    to show a gain, all patients may show it."""
    of_test_side = evaluation_facts(done.evaluation).verdict
    title, lead = judgement(done.evaluation)
    if across is None or verdict_of_both(of_test_side, across.gain.verdict) == of_test_side:
        return of_test_side, title, lead
    title = f"Better than one grade for all, by {METRICS['mae'].long_name}"
    return "better", title, f"{across.sentence()} The test side alone is too small. {lead}"


def analysis_facts(done: Analysis, verdict: Verdict | None = None) -> AnalysisFacts:
    """What the sentences are about. verdict: default: that of the test side."""
    config = done.run.config
    audited = done.audited.summary
    counts = done.run.facts.data.class_counts
    scarce = [place for place, count in enumerate(counts) if count < SCARCE]
    missed = never_predicted(done.evaluation)
    judged = bool(done.audited.facts["judged"])
    facts = AnalysisFacts(
        verdict=verdict or evaluation_facts(done.evaluation).verdict,
        network=config.network_name,
        size=config.image_size,
        small=config.backbone is not None or str(config.network).startswith("tiny"),
        missed=named_grades(done.evaluation.grades, missed),
        missed_are_scarce=set(missed) <= set(scarce),
        scarce=named_grades(done.evaluation.grades, scarce),
        wrong=float(audited["rate"]) if judged and audited["identifiable"] else None,
        verify=int(audited["verify_more"] or 0),
        no_patients=done.inspection.manifest.patients is None,
        perhaps_patients=perhaps_patients(done.inspection),
    )
    if done.comparison is None:
        return facts
    compared = comparison_facts(done.comparison)
    outcome: Outcome = "unclear"
    if _same_answers(done):
        outcome = "equal"
    elif compared.better:
        outcome = "better"
    elif compared.worse:
        outcome = "worse"
    return replace(facts, outcome=outcome)


def _same_answers(done: Analysis) -> bool:
    """Whether plain training predicts the same, as where srjt corrects nothing."""
    if done.plain is None:
        return False
    ours = done.run.held_out["test"].probabilities
    plain = done.plain.held_out["test"].probabilities
    return np.array_equal(ours, plain)


def next_commands(done: Analysis) -> dict[str, str]:
    """Three commands that work as they are printed, by what they are for."""
    folder = done.folder
    verify = analysis_facts(done).verify
    audit = shlex.quote(str(folder / analysis.AUDIT))
    model = shlex.quote(str(folder / analysis.MODEL))
    source = shlex.quote(str(done.inspection.source))
    if done.inspection.manifest.are_features:
        return {
            "To look at the most doubtful labels": f"srjt report {audit}",
            PREDICT: f"srjt predict {model} {source} --out predictions.csv",
        }
    commands = {"To look at the most doubtful labels, and correct them": f"srjt review {audit}"}
    if verify:
        verified = done.audited.summary.get("verified") or {"labels": 0}
        size = verified["labels"] + verify  # of all that are verified
        commands["To learn how many labels are wrong"] = f"srjt review {audit} --sample {size}"
    else:
        page = shlex.quote(str(folder / "explanation.html"))
        explain = f"srjt explain {model} {source} --out {page}"
        commands["To see which parts of an image decide"] = explain
    predict = f"srjt predict {model} {source} --out predictions.csv --html predictions.html"
    return commands | {PREDICT: predict}


@page_of.register(Analysis)
def analysis_page(done: Analysis) -> Page:
    """The whole story, with links to the page of each part."""
    across = across_folds(done)
    verdict, title, lead = verdict_of(done, across)
    facts = analysis_facts(done, verdict)
    warnings, remarks = evaluation_notes(done.evaluation)
    quality = [against_plain(facts)]
    if across is not None and across.sentence() not in lead:
        quality.append(across.sentence())
    audited = audit_page(done.folder / analysis.AUDIT)
    return Page(
        kind=f"Analysis of {done.inspection.source.name or done.inspection.source.resolve().name}",
        title=title,
        lead=f"{lead} {audited.title}.",
        key_numbers=_key_numbers(done, audited),
        figure=confusion_of(done.evaluation),
        figure_table=confusion_table(done.evaluation),
        warnings=warnings,
        remarks=[*remarks, *audited.remarks],
        has_ids_option=False,
        sections=[
            _data(done),
            _quality(done, quality),
            _labels(audited, judged=bool(done.audited.facts["judged"])),
            _help(done, facts),
            Section(
                "next",
                "Next",
                text=[
                    "These commands work as written, in the folder in which the analysis was"
                    " started."
                ],
                code="\n".join(f"# {why}\n{line}" for why, line in next_commands(done).items()),
            ),
        ],
    )


def _key_numbers(done: Analysis, audited: Page) -> list[KeyNumber]:
    """The error with its interval, that of plain training, and the share of wrong labels."""
    evaluated = done.evaluation
    purpose = evaluated.purpose

    def of_one_grade(metric: str) -> str:
        naive = evaluated.naive
        return "" if naive is None else f"one grade for all: {getattr(naive, metric):.3f}"

    label = f"{METRICS[purpose].long_name}, test"  # one line of a terminal
    error = evaluated.intervals[purpose]
    numbers = [KeyNumber.of(label, error, compared=of_one_grade(purpose))]
    if done.comparison is not None:
        row = next(row for row in done.comparison.differences if row.metric == purpose)
        compared = f"{row.value:.3f} and {row.first:.3f}"
        numbers.append(
            KeyNumber.of("srjt minus plain training", row.difference, "+.3f", compared=compared)
        )
    if purpose != "accuracy":
        exact = evaluated.intervals["accuracy"]
        numbers.append(KeyNumber.of("accuracy", exact, compared=of_one_grade("accuracy")))
    return [*numbers, *audited.key_numbers[:1]]


def _data(done: Analysis) -> Section:
    manifest = done.inspection.usable
    said = [f"{manifest.describe()}."]
    if left := len(done.inspection.unusable):
        said.append(
            f"{count_of(left, 'row cannot be used and is', 'rows cannot be used and are')} left"
            " out."
        )
    sides = ", ".join(f"{count:,} {side}" for side, count in done.run.facts.data.samples.items())
    if manifest.patients is None:
        said.append(f"Sides: {sides}. They may share a patient, because there are no ids.")
    else:
        said.append(f"Sides: {sides}. No patient is on two of them.")
    return Section(
        "data",
        "The data",
        text=[" ".join(said)],
        tables=[counts_table(manifest.grades, manifest.class_counts.tolist(), "samples")],
        links=[("Everything that was found in the data", analysis.INSPECTION)],
    )


def _quality(done: Analysis, text: list[str]) -> Section:
    links = [("The evaluation, with examples", analysis.EVALUATION)]
    if done.comparison is not None:
        links.append(("Against plain training, all metrics", analysis.COMPARISON))
    links.append(("How the model was trained", f"{analysis.MODEL}/report.html"))
    tables = [by_grade_table(done.evaluation), *_confusions(done)]
    return Section(
        "model", "The model, and what it confuses", text=text, tables=tables, links=links
    )


def _confusions(done: Analysis) -> list[Any]:
    """The most frequent errors: given A, predicted B."""
    counts = np.asarray(done.evaluation.confusion)
    shown = done.evaluation.grades.shown
    totals = counts.sum(axis=1)
    rows = []
    for given, answer in np.argwhere(counts).tolist():
        if given != answer:
            number = int(counts[given, answer])
            rows.append((shown[given], shown[answer], number, number / totals[given]))
    rows.sort(key=lambda row: -row[2])
    if not rows:
        return []
    by = ONE_LABEL[done.evaluation.judged_by]
    frame = pd.DataFrame(
        rows[:CONFUSIONS], columns=[by, "predicted", "images", f"share of that {by.split()[-1]}"]
    )
    return [
        data_table(
            frame,
            title="Most frequent errors",
            formats={frame.columns[-1]: ".0%"},
            slug="confusions",
        )
    ]


def _labels(audited: Page, *, judged: bool) -> Section:
    """The verdict of the audit, and the first labels to look at. judged: whether their order is
    that of doubt."""
    doubtful = next(section for section in audited.sections if section.slug == "audit")
    section = Section(
        "labels",
        "Labels that may be wrong",
        text=[audited.lead, *audited.warnings],
        links=[("The whole audit", f"{analysis.AUDIT}/audit.html")],
    )
    if not judged:
        return section
    return replace(
        section,
        heading=f"{section.heading}: the first {FIRST} to look at",
        text=[*section.text, *doubtful.text],
        tiles=doubtful.tiles[:FIRST],
        tables=[replace(table, rows=table.rows[:FIRST]) for table in doubtful.tables],
    )


def _help(done: Analysis, facts: AnalysisFacts) -> Section:
    parts = [
        f"{number}. {sentence}" for number, sentence in enumerate(what_would_help(facts), start=1)
    ]
    return Section(
        "help", "What would help most", text=[*parts, WHETHER_MORE], code=learning_curve(done)
    )


def learning_curve(done: Analysis) -> str:
    """The command that measures how much more images would help, with trainings as this one."""
    config = done.run.config
    options = {"methods": config.method}
    if analysis_facts(done).small:
        options["preset"] = "cpu"
    if config.weights is not None:
        options["weights"] = str(config.weights)
    words = [f"--{name} {shlex.quote(value)}" for name, value in options.items()]
    source = shlex.quote(str(done.inspection.source))
    return f"srjt study {source} {' '.join(words)} --learning-curve"
