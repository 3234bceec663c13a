"""The pages of an evaluation, a run judged by the labels of samples, and of a comparison of runs;
and the sections that the page of a run shares.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.inference.aspects import registered_aspects
from srjt.inference.compare import Comparison
from srjt.inference.evaluate import Evaluation
from srjt.ordinal.baseline import Gain
from srjt.ordinal.metrics import MAIN, METRICS, TOO_FEW, Ints
from srjt.reports.aspects import (
    aspect_grade_columns,
    aspect_key_numbers,
    aspect_lead,
    aspect_sections,
    aspect_warnings,
)
from srjt.reports.figures import results
from srjt.reports.figures.canvas import CaptionedFigure, confusion_figure
from srjt.reports.page import (
    KeyNumber,
    Page,
    Rule,
    Section,
    Tile,
    Verdict,
    page_of,
    said,
    sentences,
    verdict,
)
from srjt.reports.sections import interval_frame, named_grades, pictures_of, run_section
from srjt.reports.table import ONE_LABEL, Table, between, data_table, metric_heading
from srjt.training.trained import Trained

EXAMPLES = 6  # of each kind

ONE_SCORE = "The {f.metric} is {f.score:.3f} on {f.samples}"
BOTH_SCORES = "{f.score:.3f} on {f.samples}; {f.naive:.3f} for one grade."
MAYBE_CHANCE = "Better than one grade for all, maybe by chance, by {f.metric}"
VERDICT: list[Verdict[Any]] = [
    (lambda f: f.verdict == "unknown", ONE_SCORE, "How one grade for all would do is not known."),
    (
        lambda f: f.verdict == "not better",
        "No better than one grade for all, by {f.metric}",
        BOTH_SCORES,
    ),
    (lambda f: f.verdict == "unclear" and f.untested, MAYBE_CHANCE, BOTH_SCORES + " {f.untested}"),
    (
        lambda f: f.verdict == "unclear",
        "Not clearly better than one grade for all, by {f.metric}",
        BOTH_SCORES,
    ),
    (lambda f: True, "Better than one grade for all, by {f.metric}", BOTH_SCORES),
]
# missed: grades that occur and are never predicted
RARE: list[Rule[Any]] = [
    (
        lambda f: f.missed,
        "{f.missed} never predicted; {f.missed_samples:,} of {f.samples} have {f.it}. What helps:"
        " {f.helps}.",
    ),
]
NOTES: list[Rule[Any]] = [
    (lambda f: True, "Compared with {f.judged_by}. A predicted grade is {f.grade_rule}."),
    (lambda f: f.judged_by == "given grades", "Given grades may be wrong themselves."),
    (
        lambda f: f.judged_by == "given grades" and f.true_scores is None and not (f.per or f.side),
        "What the scores against the true grades are cannot be told: verify a random part of"
        " the labels (column verified_grade), or have images read twice.",
    ),
    (lambda f: f.by_patient, "The 95 % intervals resample patients, not trainings."),
    (
        lambda f: f.scarce,
        "{f.scarce} rare here: intervals of scores that average over grades, and of κ, may be too "
        "short.",
    ),
    (
        lambda f: len(f.grades) > 2,
        "Intervals allow for errors that have not occurred if they are by one grade; if rare "
        "ones are by more, those of the absolute error and of κ are too short.",
    ),
    (lambda f: bool(f.recalibration), "Probabilities are recalibrated: {f.recalibration}."),
    (lambda f: f.views > 1, "Probabilities are averaged over {f.views} views of each image."),
    (
        lambda f: not (f.per or math.isnan(f.naive)),
        "One grade for all is the most frequent training label; for the "
        "absolute error their median.",
    ),
    (
        lambda f: bool(f.per),
        "Each {f.per} has one answer (pool: {f.pool}) and is judged by the highest label. One "
        "grade for all is the most frequent of these; for the absolute error their median.",
    ),
    (
        lambda f: f.learned_pooling is not None,
        "The pooling is fitted on the validation side. {f.pooling_labels}",
    ),
    (
        lambda f: bool(f.per) and f.judged_by != "true grades",
        "The highest of several labels is too high where labels are wrong.",
    ),
    (
        lambda f: f.unknown_units > 0,
        "Images without a {f.per}, each judged alone: {f.unknown_units:,}.",
    ),
]
# patients with a grade (samples, without patients), below which a mean over grades rests on a few
# of them
SCARCE = 10
NO_PATIENTS = "No patient ids: the intervals are too narrow if a patient has several samples."


def answered(
    answers: int, images: int, per: Sequence[str], *, features: bool, side: str = ""
) -> str:
    """ "120 test images", "30 patients (120 images)"."""
    nouns = ("row of features", "rows of features") if features else ("image", "images")
    samples = count_of(images, *(f"{side} {noun}".strip() for noun in nouns))
    of = "patient" if tuple(per) == ("patient",) else "answer"
    return f"{count_of(answers, of)} ({samples})" if per else samples


def evaluation_facts(found: Evaluation) -> SimpleNamespace:
    """What the sentences are about. verdict: of the one rule about one grade for all, whose score
    is naive, nan if it is not known; untested: why chance cannot be judged; missed: as in
    ``RARE``."""
    naive = float(getattr(found.naive, found.purpose, math.nan))
    images = found.images or found.samples
    samples = answered(found.samples, images, found.per, features=found.features, side=found.side)
    if not found.per and found.patients is not None:
        samples += f" of {count_of(found.patients, 'patient')}"
    gain = found.gain
    untested = ""
    if gain is not None and math.isnan(gain.low):
        untested = (
            f"So few {'patients' if found.by_patient else 'samples'} cannot tell it from chance."
        )
    missed = never_predicted(found)
    occurring = np.asarray(found.confusion).sum(axis=1)
    independent = _patients_of_grades(found) if "patient" in found.answers else occurring
    own = {
        "metric": METRICS[found.purpose].long_name,
        "score": found.score,
        "naive": naive,
        "verdict": "unknown" if gain is None else gain.verdict,
        "untested": untested,
        "samples": samples,
        "per": " and ".join(found.per),
        "missed": named_grades(found.grades, missed),
        "missed_samples": int(occurring[missed].sum()),
        "it": "it" if len(missed) == 1 else "them",
        "helps": what_helps(found, ranges=found.ranges is not None),
        "scarce": named_grades(
            found.grades, np.flatnonzero((occurring > 0) & (independent < SCARCE)).tolist()
        ),
    }
    judged = {aspect.name: getattr(found, aspect.name) for aspect in registered_aspects()}
    return SimpleNamespace(**{**vars(found), **judged, **own})


def _patients_of_grades(found: Evaluation) -> Ints:
    """(C,) how many patients have a sample of each grade."""
    rows = found.answers[["label", "patient"]].drop_duplicates()
    return np.array([(rows["label"] == grade).sum() for grade in found.grades], dtype=np.int64)


def never_predicted(found: Evaluation) -> list[int]:
    """The places of the grades that samples have and no answer gives."""
    counts = np.asarray(found.confusion)
    return np.flatnonzero((counts.sum(axis=1) > 0) & (counts.sum(axis=0) == 0)).tolist()


def what_helps(found: Evaluation, *, ranges: bool) -> str:
    """Against grades that are never predicted. ranges: whether there are ranges of grades
    already."""
    parts = [f"more training {'samples' if found.features else 'images'} of such grades"]
    if not found.features:
        parts.append("a larger network, on a GPU")
    if found.purpose != "qwk":
        parts.append("srjt predict --optimise qwk, which gives rare grades more often")
    if not ranges:
        parts.append(
            "ranges that hold for each grade (srjt predict --coverage 0.9 --coverage-by grade)"
        )
    return "; ".join(parts)


def judgement(found: Evaluation) -> tuple[str, str]:
    """Title and lead: how good the answers are, beside one grade for all."""
    return verdict(VERDICT, evaluation_facts(found))


def evaluation_notes(found: Evaluation) -> tuple[list[str], list[str]]:
    """Warnings and remarks of the evaluation itself."""
    facts = evaluation_facts(found)
    # samples that were trained on come first: they make every other sentence doubtful
    warnings = [found.trained_on] if found.trained_on else []
    warnings += sentences(RARE, facts)
    warnings += aspect_warnings(found)
    if not found.by_patient:
        warnings.append(NO_PATIENTS)
    warnings += [str(overlap) for overlap in found.overlaps]
    return warnings, sentences(NOTES, facts)


@page_of.register(Evaluation)
def evaluation_page(
    found: Evaluation,
    *,
    run: Trained | None = None,
    data: Manifest | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    command: str | None = None,
) -> Page:
    """The page of a result of ``srjt.evaluate``.

    run: for what it was trained on and how the page was made. data: the evaluated samples, for
    their pictures and ids. sources: the files that they were read from.
    """
    sections = [
        Section("scores", "Scores", tables=[scores_table(found), by_grade_table(found)]),
        *aspect_sections(found),
        *examples_section(found, data),
        calibration_section(found),
        *([] if run is None else [run_section(run, sources=sources, command=command)]),
    ]
    (title, lead) = judgement(found)
    (warnings, remarks) = evaluation_notes(found)
    return Page(
        kind=f"Evaluation of {found.run}" if found.run else "Evaluation",
        title=title,
        lead=lead + aspect_lead(found),
        key_numbers=key_numbers(found),
        figure=confusion_of(found),
        figure_table=confusion_table(found),
        warnings=warnings,
        remarks=remarks,
        sections=sections,
    )


def key_numbers(found: Evaluation) -> list[KeyNumber]:
    """The usual metrics, and the first numbers of whatever else was asked for."""
    one = {
        name: f"one grade: {getattr(found.naive, name):.3f}"
        for name in MAIN
        if found.naive is not None
    }
    numbers = [
        KeyNumber.of(metric_heading(name), found.intervals[name], compared=one.get(name, ""))
        for name in MAIN
    ]
    numbers += aspect_key_numbers(found)
    return numbers


# Sections that the page of a run has too.


def scores_table(found: Evaluation) -> Table:
    """Every metric with its interval, beside that of one grade for all."""
    frame = interval_frame(
        {metric_heading(name): score for name, score in found.intervals.items()}, "metric"
    )
    if found.naive is not None:
        frame["one grade"] = [getattr(found.naive, name, math.nan) for name in found.intervals]
    return data_table(frame, title="All metrics", slug="answers-scores")


def by_grade_table(found: Evaluation) -> Table:
    """Samples, recall, precision and error of each grade, and how often the range contains it."""
    counts = pd.DataFrame(found.confusion)
    samples = counts.sum(axis=1)
    right = np.diag(counts)
    frame = pd.DataFrame(
        {
            "grade": found.grades.shown,
            "samples": samples,
            "recall": right / samples,
            "precision": right / counts.sum(),
            "MAE": found.grade_errors,
        }
    )
    caption = aspect_grade_columns(found, frame)
    return data_table(frame, title="By grade", caption=caption, slug="answers-by-grade")


def confusion_of(found: Evaluation) -> CaptionedFigure:
    """The confusion matrix of the answers as a figure."""
    where = f"{found.side.capitalize()} side" if found.side else "These samples"
    counts = np.asarray(found.confusion, dtype=np.float64)
    rows = ONE_LABEL[found.judged_by]
    return CaptionedFigure(
        name=f"answers-{found.side or 'these'}",
        figure=confusion_figure({where: counts}, grades=found.grades.shown, rows=rows),
        caption="Share of the row, and below it the count.",
        alt=(
            "Confusion matrix. Share predicted correctly:"
            f" {np.trace(counts) / max(counts.sum(), 1):.2f}."
        ),
    )


def confusion_table(found: Evaluation) -> Table:
    """The confusion matrix as a table, for a terminal: its columns have no names of grades."""
    frame = pd.DataFrame(found.confusion, columns=list(found.grades))
    frame["recall"] = np.diag(frame) / frame.sum(axis=1)
    frame.insert(0, f"{ONE_LABEL[found.judged_by]} ╲ predicted", found.grades.shown)
    return data_table(frame, title="", slug="confusion")


def calibration_section(found: Evaluation) -> Section:
    """Whether probabilities mean what they say: at home, before recalibration, and as they are."""
    panels = {}
    error = f"{found.calibration_error:.3f}"
    if found.external is not None:
        panels["The run's own test side"] = found.external.home.calibration
    if found.uncalibrated:
        panels["As the networks give them"] = found.uncalibrated
    panels["Recalibrated" if found.uncalibrated else "Probabilities"] = found.calibration
    figure = CaptionedFigure(
        name="reliability",
        figure=results.reliability_figure(panels),
        caption=(
            "How often the most likely grade is right, by its probability; larger points: more"
            " samples."
        ),
        alt=f"Reliability diagram. Calibration error {error}.",
    )
    facts = [
        ("calibration error", error),
        ("ranked probability score", f"{found.ranked_probability_score:.3f}"),
    ]
    return Section("calibration", "Calibration", facts=facts, figures=[figure])


def examples_section(found: Evaluation, data: Manifest | None = None) -> list[Section]:
    """Right, near and far answers with their images; none without images. data: where they are, if
    not in files."""
    rows = found.answers.reset_index(drop=True)
    grades = found.grades
    if found.per or rows.empty or found.features:  # a patient is not one picture
        return []
    rows = rows.assign(
        file=rows["file" if "file" in rows else "image"].astype(str),
        owner=rows["patient" if "patient" in rows else "image"],
        off=(rows["grade"].map(grades.index) - rows["label"].map(grades.index)).abs().clip(upper=2),
    ).sample(frac=1, random_state=0)
    tiles = []
    picture = pictures_of(data)
    for off, kind in enumerate(("right", "off by one", "off by more")):
        own = rows[rows["off"] == off].drop_duplicates("owner")[
            : 4 * EXAMPLES
        ]  # some cannot be read
        pictures = (
            (one, image) for one in own.to_dict("records") if (image := picture(one["file"]))
        )
        for one, image in itertools.islice(pictures, EXAMPLES):
            title = " → ".join(dict.fromkeys(map(grades.show, (one["label"], one["grade"]))))
            tiles.append(Tile(picture=image, title=title, number=kind, text=str(one["image"])))
    arrow = f"“A → B”: {ONE_LABEL[found.judged_by]} A, predicted B."
    text = f"Up to {EXAMPLES} of each kind, of as many patients, chosen at random. {arrow}"
    return [Section("examples", "Examples", text=[text], tiles=tiles)] if tiles else []


# The page of a comparison of runs.

JUDGED = "Judged by {f.metric} on {f.samples}, with their {f.judged_by}."
BESIDE = "{f.outcome}, on {f.samples}, with their {f.judged_by}."
COMPARED: list[Verdict[Any]] = [
    (lambda f: f.none_better, "No run is better than one grade for all, by {f.metric}", BESIDE),
    (
        lambda f: f.none_clear,
        "No run is clearly better than one grade for all, by {f.metric}",
        BESIDE,
    ),
    (lambda f: True, "{f.outcome}", JUDGED),
]
COMPARED_WARNINGS: list[Rule[Any]] = [
    (lambda f: f.not_naive, "No better than one grade for all: {f.not_naive}."),
    (lambda f: f.unclear, "Not clearly better than one grade for all: {f.unclear}."),
]
COMPARED_NOTES: list[Rule[Any]] = [
    (lambda f: f.too_few, "{f.samples} are too few to show a difference."),
    (
        lambda f: max(f.trainings) == 1,
        "One training per method: the interval does not contain the variation between trainings.",
    ),
    (
        lambda f: max(f.trainings) > 1,
        "Intervals and p-values contain the variation between trainings (Student's t); a "
        "method with one training is taken to vary as the others do.",
    ),
    (lambda f: f.patients, "Intervals and p-values resample patients, the same ones for all runs."),
    (
        lambda f: not f.patients,
        "No patient ids: intervals and p-values resample images, and are too narrow if a "
        "patient has several.",
    ),
    (
        lambda f: f.rare_grades,
        "Of fewer than ten patients: grade {f.rare}. So differences of scores that average over"
        " grades, and of κ, have no interval and no p-value.",
    ),
    (
        lambda f: True,
        "p-values of several runs are corrected for their number (Holm), not for that of the"
        " metrics.",
    ),
]


def comparison_facts(comparison: Comparison) -> SimpleNamespace:
    """What the sentences are about. better, worse: the runs of which neither interval nor corrected
    p-value allows for no difference; none with too few patients."""
    rows = [row for row in comparison.differences if row.metric == comparison.purpose]
    metric = METRICS[comparison.purpose]
    too_few = (comparison.patients or comparison.samples) < TOO_FEW
    groups: dict[str, list[str]] = {"better": [], "worse": [], "not shown to differ": []}
    for row in rows:
        value, low, high = row.difference
        clear = not (too_few or low <= 0 <= high) and row.adjusted <= 1 - comparison.level
        better = "better" if (value < 0) == metric.lower_is_better else "worse"
        groups[better if clear else "not shown to differ"].append(row.run)
    patients = f" of {count_of(comparison.patients, 'patient')}" if comparison.patients else ""
    naive: dict[str, list[str]] = {"better": [], "not better": [], "unclear": []}
    for name, gains in comparison.gains.items():
        verdicts = {gain.verdict for gain in gains}
        naive[verdicts.pop() if len(verdicts) == 1 else "unclear"].append(_with_scores(name, gains))
    own = {
        **groups,
        "none_better": len(naive["not better"]) == len(comparison.runs),
        "none_clear": len(naive["not better"]) + len(naive["unclear"]) == len(comparison.runs),
        "not_naive": "; ".join(naive["not better"]),
        "unclear": "; ".join(naive["unclear"]),
        "first": comparison.runs[0],
        "others": ", ".join(comparison.runs[1:]),
        "too_few": too_few,
        "rare": ", ".join(comparison.rare_grades),
        "two": len(comparison.runs) == 2,
        "metric": metric.long_name,
        "outcome": _outcome(comparison.runs, groups),
        "samples": f"{count_of(comparison.samples, 'test sample')}{patients}",
        "trainings": comparison.trainings or (1,),
    }
    return SimpleNamespace(**{**vars(comparison), **own})


def _outcome(runs: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str:
    """ "b is better than a", "Against a: b: better; c: not shown to differ"."""
    named = [(", ".join(sorted(own)), name) for name, own in groups.items() if own]
    if len(runs) > 2 or not named:
        return f"Against {runs[0]}: " + "; ".join(f"{names}: {name}" for names, name in named)
    other, name = named[0]
    if name in ("better", "worse"):
        return f"{other} is {name} than {runs[0]}"
    return f"No difference is shown between {other} and {runs[0]}"


def _with_scores(run: str, gains: Sequence[Gain]) -> str:
    """ "run 1 (0.900; one grade: 0.933)", means over its trainings."""
    score, naive = (np.mean([getattr(gain, name) for gain in gains]) for name in ("score", "naive"))
    return f"{run} ({score:.3f}; one grade: {naive:.3f})"


def _difference_numbers(comparison: Comparison, *, two: bool) -> list[KeyNumber]:
    """The differences by the metric that the grades are for; of two runs also by the others."""
    usual = dict.fromkeys([comparison.purpose, *MAIN]) if two else [comparison.purpose]
    numbers = []
    for metric in usual:
        for row in comparison.differences:
            if row.metric != metric:
                continue
            label = metric_heading(row.metric) if two else row.run
            values = f"{row.value:.3f} vs {row.first:.3f}"
            if row.adjusted >= 0:
                values += f", p {row.adjusted:.3f}"
            numbers.append(KeyNumber.of(label, row.difference, "+.3f", compared=values))
    return numbers


@page_of.register(Comparison)
def comparison_page(comparison: Comparison) -> Page:
    """The verdict, the differences as a figure, and all numbers."""
    facts = comparison_facts(comparison)
    return Page(
        kind="Comparison",
        **said(facts, COMPARED, remarks=COMPARED_NOTES),
        key_numbers=_difference_numbers(comparison, two=facts.two),
        figure=results.forest_figure(comparison),
        warnings=sentences(COMPARED_WARNINGS, facts)
        + [
            f"{run} was trained on {count:,} of the samples (same ids): its numbers look too good."
            for run, count in comparison.trained_on.items()
        ],
        sections=[Section("numbers", "All metrics", tables=[_difference_table(comparison)])],
    )


def _difference_table(comparison: Comparison) -> Table:
    rows = [
        (
            metric_heading(row.metric),
            row.run,
            row.difference.value,
            between(*row.difference[1:], "+.3f"),
            row.adjusted,
            row.value,
            row.first,
        )
        for row in comparison.differences
    ]
    columns = [
        "metric",
        "run",
        "difference",
        f"{comparison.level:.0%} interval",
        "p",
        "this run",
        "first run",
    ]
    return data_table(
        pd.DataFrame(rows, columns=columns),
        title=f"Differences from {comparison.runs[0]}",
        formats={"difference": "+.3f"},
        slug="differences",
        rule_before=range(len(METRICS), len(rows), len(METRICS)),  # between runs
    )
