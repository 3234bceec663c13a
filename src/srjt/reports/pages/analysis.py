"""The first page of ``srjt analyse``: what the data are, how good the model is, which labels may be
wrong, what would help, and what to do next.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from srjt.errors import count_of
from srjt.ordinal.metrics import METRICS, Interval
from srjt.reports import analysis
from srjt.reports.analysis import Analysis
from srjt.reports.page import KeyNumber, Page, Rule, Section, page_of, sentences
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
from srjt.reports.sections import counts_table, named_grades
from srjt.reports.table import ONE_LABEL, between, data_table

FIRST = 20  # doubtful labels that the page shows
CONFUSIONS = 6
SCARCE = 50  # training images of a grade, below which more of them come first

AGAINST_PLAIN: list[Rule[Any]] = [
    (lambda f: f.compared and f.outcome == "better", "Plain training of the same network has {f.plain:.3f}: srjt is "
     "better by {f.gap}."),
    (lambda f: f.compared and f.outcome == "worse", "Plain training of the same network has {f.plain:.3f} and is "
     "better, by {f.gap}: srjt train --method standard."),
    (lambda f: f.compared and f.outcome == "same", "Plain training of the same network has {f.plain:.3f}; no "
     "difference is shown on so few test patients ({f.gap})."),
    (lambda f: not f.compared, "The model is plain training: with so few images, and without pretrained weights, "
     "estimating the noise first does not help."),
]  # fmt: skip
# what would help most, the first first
HELP: list[Rule[Any]] = [
    (lambda f: f.verdict in ("not better", "unclear") and f.small, "A GPU, or features of a large network. This model "
     "is a small one ({f.network}, images of {f.size} pixels), made for a machine without a GPU, and it is not "
     "clearly better than one grade for all."),
    (lambda f: f.verdict in ("not better", "unclear") and not f.small, "More images, or a longer training: the model "
     "is not clearly better than one grade for all."),
    (lambda f: f.missed, "More images of the rare grades. {f.missed} never predicted."),
    (lambda f: f.scarce and not f.missed, "More images of the rare grades: {f.scarce} with fewer than "
     f"{SCARCE} training images."),
    (lambda f: f.judged and f.identifiable and f.rate >= 0.05, "Better labels: about {f.rate:.0%} are wrong. The page "
     "of srjt review shows the most doubtful first, and a training on the corrected table takes one command."),
    (lambda f: f.verify, "Verified labels: how many labels are wrong is not determined by the labels alone. "
     "{f.verify}, drawn at random, would tell it within ±5 %."),
    (lambda f: f.no_patients, "Patient ids: without them images of one patient may be on both sides, and every number "
     "here may be too good."),
    (lambda f: f.verdict == "better" and f.small, "A GPU: this model is a small one ({f.network}, images of {f.size} "
     "pixels). The same command on a machine with a GPU trains a large one."),
]  # fmt: skip
WHETHER_MORE = (
    "Whether more images or better labels would help more is measured by trainings on parts of the"
    " data: srjt study {source} --learning-curve."
)


def analysis_facts(done: Analysis) -> SimpleNamespace:
    """What the sentences are about."""
    judged, config, audited = (
        evaluation_facts(done.evaluation),
        done.run.config,
        done.audited.summary,
    )
    counts = done.run.facts.data.get("class_counts") or []
    scarce = [place for place, count in enumerate(counts) if count < SCARCE]
    verify = int(audited["verify_more"] or 0)
    known = bool(done.audited.facts["judged"])
    facts = {
        "verdict": judged.verdict,
        "network": str(config.network),
        "size": config.image_size,
        "small": str(config.network).startswith("tiny"),
        "missed": named_grades(done.evaluation.grades, never_predicted(done.evaluation)),
        "scarce": named_grades(done.evaluation.grades, scarce),
        "judged": known,
        "identifiable": known and bool(audited["identifiable"]),
        "rate": float(audited["rate"]) if audited["identifiable"] else float("nan"),
        "verify": f"{verify:,} labels" if verify else "",
        "verify_number": verify,
        "no_patients": done.found.manifest.patients is None,
        "compared": done.comparison is not None,
        "outcome": "",
        "plain": float("nan"),
        "gap": "",
    }
    if done.comparison is not None:
        row = next(
            row for row in done.comparison.differences if row.metric == done.comparison.purpose
        )
        said = comparison_facts(done.comparison)
        facts["outcome"] = "better" if said.better else "worse" if said.worse else "same"
        facts["plain"] = row.first
        facts["gap"] = (
            f"difference {row.difference.value:+.3f}, {between(*row.difference[1:], '+.3f')}"
        )
        facts["gap"] = facts["gap"].replace("-", "−")
    return SimpleNamespace(**facts)


def next_commands(done: Analysis) -> list[str]:
    """Three commands that work as they are printed."""
    folder, facts = done.folder, analysis_facts(done)
    audit, model = (
        shlex.quote(str(folder / analysis.AUDIT)),
        shlex.quote(str(folder / analysis.MODEL)),
    )
    source = shlex.quote(str(done.found.source))
    if done.found.manifest.are_features:
        return [f"srjt report {audit}", f"srjt predict {model} {source} --out predictions.csv"]
    images = shlex.quote(str(done.found.manifest.root))
    page = shlex.quote(str(folder / "explanation.html"))
    sample = f"srjt review {audit} --sample {facts.verify_number}"
    explain = f"srjt explain {model} {source} --out {page}"
    return [
        f"srjt review {audit}",
        sample if facts.verify_number else explain,
        f"srjt predict {model} {images} --out predictions.csv --html predictions.html",
    ]


@page_of.register(Analysis)
def analysis_page(done: Analysis) -> Page:
    """The whole story, with links to the page of each part."""
    title, lead = judgement(done.evaluation)
    facts = analysis_facts(done)
    warnings, remarks = evaluation_notes(done.evaluation)
    against = sentences(AGAINST_PLAIN, facts)
    audited = audit_page(done.folder / analysis.AUDIT)
    return Page(
        kind=f"Analysis of {done.found.source.name or done.found.source.resolve().name}",
        title=title,
        lead=f"{lead} {' '.join(against)} {audited.title}.",
        key_numbers=_key_numbers(done, facts, audited),
        figure=confusion_of(done.evaluation),
        figure_table=confusion_table(done.evaluation),
        warnings=warnings,
        remarks=[*remarks, *audited.remarks],
        sections=[
            _data(done),
            _quality(done, against),
            _labels(audited, judged=facts.judged),
            _help(done, facts),
            Section(
                "next",
                "Next",
                text=[
                    "Each works as it is written, in the folder in which this analysis was started."
                ],
                code="\n".join(next_commands(done)),
            ),
        ],
    )


def _key_numbers(done: Analysis, facts: SimpleNamespace, audited: Page) -> list[KeyNumber]:
    """The error with its interval, that of plain training, and the share of wrong labels."""
    found, purpose = done.evaluation, done.evaluation.purpose
    naive = "" if found.naive is None else f"one grade for all: {getattr(found.naive, purpose):.3f}"
    name = METRICS[purpose].long_name
    numbers = [KeyNumber.of(f"{name}, test side", found.intervals[purpose], compared=naive)]
    if done.comparison is not None:
        row = next(row for row in done.comparison.differences if row.metric == purpose)
        compared = f"{row.value:.3f} and {row.first:.3f}"
        numbers.append(
            KeyNumber.of("srjt minus plain training", row.difference, "+.3f", compared=compared)
        )
    if purpose != "accuracy":
        exact: Interval = found.intervals["accuracy"]
        one = "" if found.naive is None else f"one grade for all: {found.naive.accuracy:.3f}"
        numbers.append(KeyNumber.of("right to the grade", exact, compared=one))
    return [*numbers, *audited.key_numbers[:1]]


def _data(done: Analysis) -> Section:
    manifest = done.found.usable
    said = [f"{manifest.describe()}."]
    if left := len(done.found.unusable):
        said.append(
            f"{count_of(left, 'row cannot be used and is', 'rows cannot be used and are')} left"
            " out."
        )
    sides = ", ".join(
        f"{count:,} {side}" for side, count in (done.run.facts.data.get("samples") or {}).items()
    )
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


def _quality(done: Analysis, against: list[str]) -> Section:
    links = [("The evaluation, with examples", analysis.EVALUATION)]
    if done.comparison is not None:
        links.append(("Against plain training, all metrics", analysis.COMPARISON))
    links.append(("How the model was trained", f"{analysis.MODEL}/report.html"))
    tables = [by_grade_table(done.evaluation), *_confusions(done)]
    return Section(
        "model", "The model, and what it confuses", text=against, tables=tables, links=links
    )


def _confusions(done: Analysis) -> list[Any]:
    """The most frequent errors: given A, predicted B."""
    counts = np.asarray(done.evaluation.confusion)
    shown, totals = done.evaluation.grades.shown, counts.sum(axis=1)
    rows = [
        (
            shown[given],
            shown[answer],
            int(counts[given, answer]),
            counts[given, answer] / totals[given],
        )
        for given in range(len(shown))
        for answer in range(len(shown))
        if given != answer and counts[given, answer]
    ]
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
    shown = replace(doubtful, tiles=doubtful.tiles[: FIRST if judged else 0])
    tables = [replace(table, rows=table.rows[:FIRST]) for table in doubtful.tables if judged]
    return Section(
        "labels",
        (
            f"Labels that may be wrong: the first {FIRST} to look at"
            if judged
            else "Labels that may be wrong"
        ),
        text=[audited.verdict, *audited.warnings, *(shown.text if judged else ())],
        tiles=shown.tiles,
        tables=tables,
        links=[("The whole audit", f"{analysis.AUDIT}/audit.html")],
    )


def _help(done: Analysis, facts: SimpleNamespace) -> Section:
    parts = [
        f"{number}. {sentence}" for number, sentence in enumerate(sentences(HELP, facts), start=1)
    ]
    source = shlex.quote(str(done.found.source))
    return Section(
        "help", "What would help most", text=[*parts, WHETHER_MORE.format(source=source)]
    )
