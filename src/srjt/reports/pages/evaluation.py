"""The page of an evaluation: a run judged by labels of new samples."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from srjt.data.grades import Grades
from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.inference.decide import Abstention, Decision, refer_if
from srjt.inference.evaluate import Evaluation, are_row_numbers, shared_labels
from srjt.inference.ranges import RangeEvaluation
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import NaiveBaseline
from srjt.readers.compare import NetworkComparison
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.results import (
    decision_figures,
    reliability_figure,
    risk_coverage_figure,
)
from srjt.reports.page import Note, Page, Section
from srjt.reports.pages.answers import (
    by_grade_table,
    confusion_of,
    describe_examples,
    example_tiles,
    number_cell,
    scores_table,
)
from srjt.reports.run_summary import scores_by_grade
from srjt.reports.sections import made_section, model_section, run_name, thumbnails_of
from srjt.reports.table import MISSING, Column, Row, Table, TableCell
from srjt.training.folder import baseline_from, compare_with_naive
from srjt.training.trained import Trained

# Sentences about an evaluation, for the terminal and for its page.

SCORE_NAMES = {
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "positive_predictive_value": "positive predictive value",
    "negative_predictive_value": "negative predictive value",
    "roc_area": "area under the ROC curve",
    "average_precision": "average precision",
    "accuracy": "share of right answers",
}


def label_name(found: Evaluation) -> str:
    """What the answer for one sample is compared with: "true grade", "given grade" or "consensus grade"."""
    return found.judged_by.removesuffix("s")


def what_was_judged(found: Evaluation, *, features: bool) -> str:
    """One sentence: how many samples, and by which labels they are judged. features: rows of them, not images."""
    seen = f", {found.views} views of each" if found.views > 1 else ""
    noun = ("row of features", "rows of features") if features else ("image", "images")
    if not found.per:
        whose = f"its {label_name(found)}" if found.samples == 1 else f"their {found.judged_by}"
        return f"{count_of(found.samples, *noun)}{seen}, judged by {whose}."
    how = {"highest": "the highest grade", "mean": "the mean", "learned": "a learned pooling"}[found.pool]
    sentence = (
        f"{count_of(found.images, *noun)}{seen}, pooled per {' and '.join(found.per)} to "
        f"{count_of(found.samples, 'answer')} by {how}, "
        f"judged by the highest of their {found.judged_by}."
    )
    if found.learned_pooling is not None:
        exponent, weight = found.learned_pooling
        sentence += f" Fitted on the validation side: exponent {exponent:.2g}, weight {weight:.2g}."
        sentence += f" {found.pooling_labels}"
    if found.judged_by != "true grades":
        sentence += " The highest of several labels is too high where labels are wrong."
    if found.unknown_units:
        has, is_judged = ("has", "is") if found.unknown_units == 1 else ("have", "are")
        sentence += (
            f" {found.unknown_units:,} {has} no {' or '.join(found.per)} and {is_judged} judged alone."
        )
    return sentence


def refer_rule(decision: Decision, grades: Grades) -> str:
    """The rule of a decision."""
    return f"Refer {refer_if(grades.show(decision.refer_from), decision.threshold)}"


def decision_words(decision: Decision) -> str:
    """How many are referred and should be, and where the threshold comes from."""
    words = (
        f"{decision.referred:,} of {decision.samples:,} {'is' if decision.referred == 1 else 'are'} referred; "
        f"{decision.positives:,} should be. "
        f"{decision.found}"
    )
    if decision.areas:
        return words
    every = "Every" if decision.positives else "No"
    return f"{words} {every} sample has that grade or more: there are no curves to draw."


def abstention_words(abstention: Abstention) -> str:
    """How many of the wrong answers are left to a person, and where the cut comes from."""
    if math.isnan(abstention.errors_left):
        return abstention.found
    share = f"{abstention.errors_left:.0%} of all wrong answers are among those left to a person."
    return f"{share} {abstention.found}"


def no_patients(what: str) -> str:
    """What is wrong with intervals of samples without patients. what: "images", "rows of features"."""
    return f"No patient ids: the intervals resample {what} and are probably too narrow."


def trained_on_words(run: Trained, data: Manifest) -> str:
    """A sentence if samples are training samples, or have their ids; else ""."""
    if seen := len(run.trained_on(data)):
        return f"The run was trained on {seen:,} of these {len(data):,} samples: the numbers below look too good."
    shared = shared_labels(run.training_labels, data)
    if not shared:
        return ""
    names = ("id", "ids")
    if are_row_numbers(data):
        same = all(kept == given for kept, given in shared)
        names = ("row number and grade", f"row numbers and {'' if same else 'many of the '}grades")
    have = f"has the {names[0]} of a sample" if len(shared) == 1 else f"have the {names[1]} of samples"
    return (
        f"{len(shared):,} of them {have} that this run was trained on: if they are the same samples, the "
        "numbers below look too good."
    )


# The page of an evaluation: a run, judged by labels of new samples.


def evaluation_page(
    run: Trained,
    found: Evaluation,
    *,
    data: Manifest | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    command: str | None = None,
) -> Page:
    """The page of a result of ``srjt.evaluate``.

    data: the evaluated samples, for their pictures and ids. sources: the files that they were read from.
    """
    grades = run.grades.shown
    # the naive grades are those of images
    naive = None
    if run.facts is not None and not found.per:
        naive = baseline_from(run.facts, np.asarray(found.confusion).sum(axis=1))
    features = len(run.in_shape) == 1
    sections = [
        _answers(found, naive, grades),
        _examples(run, found, grades, data),
        None if found.decision is None else _decision(found.decision, run.grades),
        None if found.abstention is None else _abstention(found.abstention),
        None if found.ranges is None else _ranges(found.ranges, grades, by_patient=found.by_patient),
        _calibration(found),
        None if found.readers is None else _readers(found.readers),
        model_section(run, grade_rule=found.grade_rule, recalibration=found.recalibration, views=found.views),
        made_section(run, sources=sources, command=command),
    ]
    return Page(
        kind="Evaluation",
        title=run_name(run),
        lead=what_was_judged(found, features=features),
        notes=[Note(text=text) for text in _notes(run, found, naive, data)],
        sections=[section for section in sections if section is not None],
    )


def _notes(
    run: Trained, found: Evaluation, naive: NaiveBaseline | None, data: Manifest | None
) -> Iterator[str]:
    if not found.by_patient:
        yield no_patients("rows of features" if len(run.in_shape) == 1 else "images")
    if data is not None and (words := trained_on_words(run, data)):
        yield words
    yield from map(str, found.overlaps)
    if naive is not None:
        trivial = getattr(naive, found.purpose)
        if worse := compare_with_naive(
            "these samples", score=found.score, naive=trivial, purpose=found.purpose
        ):
            yield worse
    if found.judged_by == "given grades":
        yield "The answers are compared with labels that may be wrong themselves."
    if found.not_compared:
        yield found.not_compared


def _answers(found: Evaluation, naive: NaiveBaseline | None, grades: Sequence[str]) -> Section:
    units = "patients" if found.by_patient else "samples"
    confusion = np.asarray(found.confusion, dtype=np.int64)
    return Section(
        slug="answers",
        heading="Answers",
        text=[
            f"A predicted grade is {found.grade_rule}. The 95 % intervals resample {units}; they do not contain the "
            "variation between trainings."
        ],
        tables=[scores_table(found.intervals, naive), by_grade_table(scores_by_grade(confusion), grades)],
        figures=[confusion_of(confusion, grades, title="These samples", rows=label_name(found))],
    )


def _examples(
    run: Trained, found: Evaluation, grades: Sequence[str], data: Manifest | None
) -> Section | None:
    if found.per or found.answers.empty or len(run.in_shape) == 1:  # a patient is not one picture
        return None
    place = {grade: c for c, grade in enumerate(run.grades)}
    rows, images = found.answers, [str(image) for image in found.answers["image"]]
    labels, predicted = (
        np.array([place[grade] for grade in rows[name]], dtype=np.int64) for name in ("label", "grade")
    )
    tiles = example_tiles(
        labels,
        predicted,
        grades=grades,
        ids=images,
        owners=[str(patient) for patient in rows["patient"]] if "patient" in rows else None,
        picture=thumbnails_of(images, data),
    )
    if not tiles:
        return None
    text = describe_examples(label_name(found))
    return Section(slug="examples", heading="Examples", text=[text], tiles=tiles)


def _decision(decision: Decision, grades: Grades) -> Section:
    table = _interval_table(
        "decision", refer_rule(decision, grades), {**decision.operating_point, **decision.areas}
    )
    grade = grades.show(decision.refer_from)
    return Section(
        slug="decision",
        heading="Decision to refer",
        text=[decision_words(decision)],
        tables=[table],
        figures=decision_figures(decision, grade=grade),
    )


def _abstention(abstention: Abstention) -> Section:
    tables, text = [], []
    if abstention.wanted is not None:
        text = [abstention_words(abstention)]
        title = f"Without the {abstention.share:.1%} least confident answers"
        tables = [_interval_table("abstention", title, abstention.kept)] if abstention.kept else []
    return Section(
        slug="abstention",
        heading="Abstention",
        text=text,
        tables=tables,
        figures=[risk_coverage_figure(abstention)],
    )


def _interval_table(slug: str, title: str, scores: Mapping[str, Interval]) -> Table:
    rows = [
        Row(cells=(TableCell(text=SCORE_NAMES[name]), number_cell(value), _between(low, high)))
        for name, (value, low, high) in scores.items()
    ]
    return Table(
        slug=slug,
        title=title,
        caption="",
        columns=(
            Column(name="score", label="score"),
            Column(name="value", label="value", kind="number"),
            Column(name="interval", label="95 % interval", kind="number"),
        ),
        rows=tuple(rows),
    )


def _between(low: float, high: float) -> TableCell:
    return TableCell(text=f"{low:.3f} – {high:.3f}" if math.isfinite(low) else MISSING)


def _ranges(found: RangeEvaluation, grades: Sequence[str], *, by_patient: bool) -> Section:
    def row(name: str, interval: Interval, samples: int | None = None) -> Row:
        count = TableCell() if samples is None else TableCell(text=f"{samples:,}", value=samples)
        cells = (number_cell(interval.value), _between(interval.low, interval.high), count)
        return Row(cells=(TableCell(text=name), *cells))

    rows = [
        Row(
            cells=(
                TableCell(text="promised coverage"),
                TableCell(text=f"{found.promised:g}", value=found.promised),
                TableCell(),
                TableCell(),
            )
        ),
        row("coverage", found.coverage),
        *(
            row(f"… of grade {grade}", interval, samples)
            for grade, (samples, interval) in zip(grades, found.grades, strict=True)
        ),
        row("grades in a range", found.width),
    ]
    table = Table(
        slug="ranges",
        title="How often the range contains the grade, and how wide it is",
        caption="All patients count equally, however many images they have." if by_patient else "",
        columns=(
            Column(name="what", label=""),
            Column(name="value", label="value", kind="number"),
            Column(name="interval", label="95 % interval", kind="number"),
            Column(name="samples", label="samples", kind="number"),
        ),
        rows=tuple(rows),
    )
    return Section(slug="ranges", heading="Ranges of grades", text=[found.promise], tables=[table])


def _calibration(found: Evaluation) -> Section:
    known = [
        ("calibration error", f"{found.calibration_error:.3f}"),
        ("ranked probability score", f"{found.ranked_probability_score:.3f}"),
    ]
    if not found.calibration:
        return Section(slug="calibration", heading="Calibration", facts=known)
    figure = CaptionedFigure(
        name="reliability",
        figure=reliability_figure({"These samples": found.calibration}),
        caption=f"Reliability on these samples, compared with their {found.judged_by}. Larger points stand for more "
        "samples.",
        alt=f"Reliability diagram. Calibration error {found.calibration_error:.3f}.",
    )
    return Section(slug="calibration", heading="Calibration", facts=known, figures=[figure])


def _readers(found: NetworkComparison) -> Section:
    names = {
        "network_kappa": "with network",
        "others_kappa": "with others",
        "reader_to_consensus": "to rest",
        "network_to_consensus": "network to rest",
    }
    rows = [
        Row(
            cells=(
                TableCell(text=str(row["reader"])),
                TableCell(text=f"{row['items']:,}", value=row["items"]),
                *(number_cell(row[name]) for name in names),
            )
        )
        for row in found.by_reader.to_dict("records")
    ]
    table = Table(
        slug="readers",
        title="The network as one more reader (quadratic κ)",
        caption="To rest: κ with the consensus of all other readers, of this reader and of the network, on the same "
        "samples.",
        columns=(
            Column(name="reader", label="reader"),
            Column(name="samples", label="samples", kind="number"),
            *(Column(name=name, label=label, kind="number") for name, label in names.items()),
        ),
        rows=tuple(rows),
    )
    return Section(slug="readers", heading="Beside the readers", text=[found.sentence], tables=[table])
