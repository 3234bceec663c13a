"""The pages of an evaluation, a run judged by the labels of samples, and of a comparison of runs;
and the sections that the page of a run shares.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.inference.aspects.true_scores import NotEnough
from srjt.inference.compare import Comparison
from srjt.inference.evaluate import Evaluation
from srjt.ordinal.baseline import Gain, Verdict as GainVerdict
from srjt.ordinal.intervals import TOO_FEW
from srjt.ordinal.metrics import MAIN, METRICS, Ints
from srjt.reports.aspects import (
    aspect_grade_columns,
    aspect_key_numbers,
    aspect_lead,
    aspect_sections,
    aspect_warnings,
)
from srjt.reports.aspects.basics import labels_in_words
from srjt.reports.aspects.grading import (
    grade_in_words,
    leakage_in_words,
    overlap_in_words,
    recalibration_in_words,
)
from srjt.reports.aspects.true_scores import not_known
from srjt.reports.figures import results
from srjt.reports.figures.canvas import CaptionedFigure, confusion_figure
from srjt.reports.page import KeyNumber, Page, Section, Tile, page_of
from srjt.reports.sections import interval_frame, named_grades, pictures_of, run_section
from srjt.reports.table import (
    ONE_LABEL,
    Table,
    between,
    data_table,
    metric_heading,
    p_in_words,
    p_value,
)
from srjt.training.trained import Trained

EXAMPLES = 6  # of each kind

# patients with a grade (samples, without patients), below which a mean over grades rests on a few
# of them
SCARCE = 10
NO_PATIENTS = "No patient ids: the intervals are too narrow if a patient has several samples."


@dataclass(frozen=True, kw_only=True)
class BesideOneGrade:
    """A score beside that of one grade for all samples."""

    verdict: GainVerdict
    metric: str
    score: float
    naive: float  # of one grade for all; nan: not known
    samples: str  # "40 images of 12 patients"
    chance: str  # how far it may be chance, or why that is not known, as a sentence


@dataclass(frozen=True, kw_only=True)
class EvaluationFacts(BesideOneGrade):
    """What the sentences are about."""

    evaluation: Evaluation
    per: str
    missed: str  # grades that occur and are never predicted
    missed_samples: int
    it: str  # "it", "them": the missed grades
    helps: str  # against missed grades
    scarce: str  # grades that few patients have


def verdict_of(f: BesideOneGrade) -> tuple[str, str]:
    """Title and lead: whether the score is better than that of one grade for all."""
    if f.verdict == "unknown":
        title = f"The {f.metric} is {f.score:.3f} on {f.samples}"
        return title, "The score of one grade for all is not known."
    both = f"It is {f.score:.3f} on {f.samples}, and {f.naive:.3f} for one grade for all."
    if f.verdict == "not better":
        return f"No better than one grade for all, by {f.metric}", both
    if f.verdict == "unclear":
        title = f"Not clearly better than one grade for all, by {f.metric}"
        return title, f"{both} {f.chance}".rstrip()
    return f"Better than one grade for all, by {f.metric}", both


def notes_of(f: EvaluationFacts) -> Iterator[str]:
    """How the numbers were made, and what they leave open."""
    judged = f.evaluation
    by_given = judged.judged_by == "given grades"
    grade = grade_in_words(judged.grade_rule)
    yield f"Compared with {judged.judged_by}. A predicted grade is {grade}."
    if by_given:
        yield "Given grades may be wrong themselves."
    missing = judged.aspects.get("true_scores")
    if by_given and isinstance(missing, NotEnough):
        yield not_known(missing, by_patient=judged.by_patient)
    if judged.by_patient:
        yield "The 95 % intervals resample patients, not trainings."
    if f.scarce:
        yield (
            f"{f.scarce} rare here, so the intervals of scores that average over grades, and of κ,"
            " may be too short."
        )
    if len(judged.grades) > 2:
        yield (
            "The intervals allow for rare errors of one grade that did not occur here. If there are"
            " rare errors of several grades, the intervals of the absolute error and of κ are too"
            " short."
        )
    if judged.recalibration is not None:
        yield f"Probabilities are recalibrated: {recalibration_in_words(judged.recalibration)}."
    if judged.views > 1:
        yield f"Probabilities are averaged over {judged.views} views of each image."
    if not (f.per or math.isnan(f.naive)):
        yield (
            "One grade for all is the most frequent training label; for the absolute error it is"
            " the median of the training labels."
        )
    if f.per:
        yield (
            f"Each {f.per} has one answer (pool: {judged.pool}) and is judged by the highest label."
            " One grade for all is the most frequent of these labels; for the absolute error it is"
            " their median."
        )
    if judged.pooling_labels is not None:
        labels = labels_in_words(judged.pooling_labels)
        yield f"The pooling is fitted on the validation side. {labels}"
    if f.per and judged.judged_by != "true grades":
        yield "The highest of several labels is too high where labels are wrong."
    if judged.unknown_units > 0:
        yield f"Images without a {f.per}, each judged alone: {judged.unknown_units:,}."


def answered(
    answers: int, images: int, per: Sequence[str], *, features: bool, side: str = ""
) -> str:
    """ "120 test images", "30 patients (120 images)"."""
    before = f"{side} " if side else ""
    samples = count_of(images, f"{before}image")
    if features:
        samples = count_of(images, f"{before}row of features", f"{before}rows of features")
    if not per:
        return samples
    unit = "patient" if tuple(per) == ("patient",) else "answer"
    return f"{count_of(answers, unit)} ({samples})"


def evaluation_facts(evaluation: Evaluation) -> EvaluationFacts:
    """What the sentences are about."""
    images = evaluation.images or evaluation.samples
    samples = answered(
        evaluation.samples,
        images,
        evaluation.per,
        features=evaluation.features,
        side=evaluation.side,
    )
    if not evaluation.per and evaluation.patients is not None:
        samples += f" of {count_of(evaluation.patients, 'patient')}"
    verdict: GainVerdict = "unknown"
    chance = ""
    if (gain := evaluation.gain) is not None:
        verdict = gain.verdict
        if math.isnan(gain.low):
            unit = "patients" if evaluation.by_patient else "samples"
            chance = f"There are too few {unit} to tell this from chance."
        elif gain.value > 0.0:  # else both are perfect
            chance = (
                f"The gain of {gain.value:.3f} may be chance: its 95 % interval begins at"
                f" {gain.low:+.3f}."
            )
    missed = never_predicted(evaluation)
    occurring = np.asarray(evaluation.confusion).sum(axis=1)
    independent = occurring
    if "patient" in evaluation.answers:
        independent = _patients_of_grades(evaluation)
    scarce = np.flatnonzero((occurring > 0) & (independent < SCARCE)).tolist()
    return EvaluationFacts(
        evaluation=evaluation,
        metric=METRICS[evaluation.purpose].long_name,
        score=evaluation.score,
        naive=float(getattr(evaluation.naive, evaluation.purpose, math.nan)),
        verdict=verdict,
        chance=chance,
        samples=samples,
        per=" and ".join(evaluation.per),
        missed=named_grades(evaluation.grades, missed),
        missed_samples=int(occurring[missed].sum()),
        it="it" if len(missed) == 1 else "them",
        helps=what_helps(evaluation, missed, ranges=evaluation.ranges is not None),
        scarce=named_grades(evaluation.grades, scarce),
    )


def _patients_of_grades(evaluation: Evaluation) -> Ints:
    """(C,) how many patients have a sample of each grade."""
    rows = evaluation.answers[["label", "patient"]].drop_duplicates()
    return np.array([(rows["label"] == grade).sum() for grade in evaluation.grades], dtype=np.int64)


def never_predicted(evaluation: Evaluation) -> list[int]:
    """The places of the grades that samples have and no answer gives."""
    counts = np.asarray(evaluation.confusion)
    return np.flatnonzero((counts.sum(axis=1) > 0) & (counts.sum(axis=0) == 0)).tolist()


def what_helps(evaluation: Evaluation, missed: Sequence[int], *, ranges: bool) -> str:
    """Against grades that are never predicted, by their places. ranges: whether there are ranges of
    grades already."""
    noun = "samples" if evaluation.features else "images"
    untrained = [place for place in missed if place in evaluation.untrained_grades]
    parts = []
    if untrained:
        names = " and ".join(evaluation.grades[place] for place in untrained)
        grades = "grade" if len(untrained) == 1 else "grades"
        parts.append(f"training {noun} of {grades} {names}, of which there were none")
        if len(untrained) == len(missed):
            return parts[0]
    parts.append(f"more training {noun} of such grades")
    if not evaluation.features:
        parts.append("a larger network, on a GPU")
    if set(missed) & set(evaluation.given_for_macro_f1):
        parts.append("srjt predict --target-metric macro_f1, which gives rare grades more often")
    # a grade of too few calibration patients would be in every range
    if not ranges and set(missed) <= set(evaluation.grades_with_ranges):
        parts.append(
            "ranges that hold for each grade (srjt predict --coverage 0.9 --coverage-by grade)"
        )
    return "; ".join(parts)


def judgement(evaluation: Evaluation) -> tuple[str, str]:
    """Title and lead: how good the answers are, beside one grade for all."""
    return verdict_of(evaluation_facts(evaluation))


def evaluation_notes(evaluation: Evaluation) -> tuple[list[str], list[str]]:
    """Warnings and remarks of the evaluation itself."""
    facts = evaluation_facts(evaluation)
    # samples that were trained on come first: they make every other sentence doubtful
    warnings = []
    if evaluation.trained_on is not None:
        warnings.append(leakage_in_words(evaluation.trained_on, evaluation))
    if facts.missed:
        warnings.append(
            f"{facts.missed} never predicted here; {facts.missed_samples:,} of {facts.samples}"
            f" {'has' if facts.missed_samples == 1 else 'have'} {facts.it}. What helps:"
            f" {facts.helps}."
        )
    warnings += aspect_warnings(evaluation)
    if not evaluation.by_patient:
        warnings.append(NO_PATIENTS)
    warnings += map(overlap_in_words, evaluation.overlaps)
    return warnings, list(notes_of(facts))


@page_of.register(Evaluation)
def evaluation_page(
    evaluation: Evaluation,
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
        Section("scores", "Scores", tables=[scores_table(evaluation), by_grade_table(evaluation)]),
        *aspect_sections(evaluation),
        *examples_section(evaluation, data),
        calibration_section(evaluation),
    ]
    if run is not None:
        sections.append(run_section(run, sources=sources, command=command))
    title, lead = judgement(evaluation)
    warnings, remarks = evaluation_notes(evaluation)
    kind = "Evaluation"
    if evaluation.run:
        kind += f" of {evaluation.run}"
    return Page(
        kind=kind,
        title=title,
        lead=lead + aspect_lead(evaluation),
        key_numbers=key_numbers(evaluation),
        figure=confusion_of(evaluation),
        figure_table=confusion_table(evaluation),
        warnings=warnings,
        remarks=remarks,
        sections=sections,
    )


def key_numbers(evaluation: Evaluation) -> list[KeyNumber]:
    """The usual metrics, and the first numbers of whatever else was asked for."""
    numbers = []
    for name in MAIN:
        beside = ""
        if evaluation.naive is not None:
            beside = f"one grade: {getattr(evaluation.naive, name):.3f}"
        numbers.append(
            KeyNumber.of(metric_heading(name), evaluation.intervals[name], compared=beside)
        )
    return numbers + aspect_key_numbers(evaluation)


# Sections that the page of a run has too.


def scores_table(evaluation: Evaluation) -> Table:
    """Every metric with its interval, beside that of one grade for all."""
    headings = map(metric_heading, evaluation.intervals)
    frame = interval_frame(
        dict(zip(headings, evaluation.intervals.values(), strict=True)), "metric"
    )
    if evaluation.naive is not None:
        frame["one grade"] = [
            getattr(evaluation.naive, name, math.nan) for name in evaluation.intervals
        ]
    return data_table(frame, title="All metrics", slug="answers-scores")


def by_grade_table(evaluation: Evaluation) -> Table:
    """Samples, recall, precision and error of each grade, and how often the range contains it."""
    counts = pd.DataFrame(evaluation.confusion)
    samples = counts.sum(axis=1)
    right = np.diag(counts)
    frame = pd.DataFrame(
        {
            "grade": evaluation.grades.shown,
            "samples": samples,
            "recall": right / samples,
            "precision": right / counts.sum(),
            "MAE": evaluation.grade_errors,
        }
    )
    caption = aspect_grade_columns(evaluation, frame)
    return data_table(frame, title="By grade", caption=caption, slug="answers-by-grade")


def confusion_of(evaluation: Evaluation) -> CaptionedFigure:
    """The confusion matrix of the answers as a figure."""
    where = f"{evaluation.side.capitalize()} side" if evaluation.side else "These samples"
    counts = np.asarray(evaluation.confusion, dtype=np.float64)
    rows = ONE_LABEL[evaluation.judged_by]
    return CaptionedFigure(
        name=f"answers-{evaluation.side or 'these'}",
        figure=confusion_figure({where: counts}, grades=evaluation.grades.shown, rows=rows),
        caption="Share of the row, and below it the count.",
        alt=(
            "Confusion matrix. Share predicted correctly:"
            f" {np.trace(counts) / max(counts.sum(), 1):.2f}."
        ),
    )


def confusion_table(evaluation: Evaluation) -> Table:
    """The confusion matrix as a table, for a terminal: its columns have no names of grades."""
    frame = pd.DataFrame(evaluation.confusion, columns=list(evaluation.grades))
    frame["recall"] = np.diag(frame) / frame.sum(axis=1)
    frame.insert(0, f"{ONE_LABEL[evaluation.judged_by]} ╲ predicted", evaluation.grades.shown)
    return data_table(frame, title="", slug="confusion")


def calibration_section(evaluation: Evaluation) -> Section:
    """Whether probabilities mean what they say: at home, before recalibration, and as they are."""
    panels = {}
    error = f"{evaluation.calibration_error:.3f}"
    if evaluation.external is not None:
        panels["The run's own test side"] = evaluation.external.home.calibration
    name = "Probabilities"
    if evaluation.uncalibrated:
        panels["As the networks give them"] = evaluation.uncalibrated
        name = "Recalibrated"
    panels[name] = evaluation.calibration
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
        ("ranked probability score", f"{evaluation.ranked_probability_score:.3f}"),
    ]
    return Section("calibration", "Calibration", facts=facts, figures=[figure])


def examples_section(evaluation: Evaluation, data: Manifest | None = None) -> list[Section]:
    """Right, near and far answers with their images; none without images. data: where they are, if
    not in files."""
    rows = evaluation.answers.reset_index(drop=True)
    grades = evaluation.grades
    if evaluation.per or rows.empty or evaluation.features:  # a patient is not one picture
        return []
    rows = rows.assign(
        file=rows["file" if "file" in rows else "image"].astype(str),
        owner=rows["patient" if "patient" in rows else "image"],
        off=(rows["grade"].map(grades.index) - rows["label"].map(grades.index)).abs().clip(upper=2),
    ).sample(frac=1, random_state=0)
    tiles = []
    picture = pictures_of(data)
    for off, kind in enumerate(("right", "off by one", "off by more")):
        shown = 0
        of_kind = rows[rows["off"] == off].drop_duplicates("owner")[: 4 * EXAMPLES]
        for answer in of_kind.to_dict("records"):
            image = picture(answer["file"])
            if image:  # some cannot be read
                title = " → ".join(
                    dict.fromkeys(map(grades.show, (answer["label"], answer["grade"])))
                )
                tiles.append(
                    Tile(picture=image, title=title, number=kind, text=str(answer["image"]))
                )
                shown += 1
            if shown == EXAMPLES:
                break
    if not tiles:
        return []
    arrow = f"“A → B”: {ONE_LABEL[evaluation.judged_by]} A, predicted B."
    text = f"Up to {EXAMPLES} of each kind, of as many patients, chosen at random. {arrow}"
    return [Section("examples", "Examples", text=[text], tiles=tiles)]


# The page of a comparison of runs.


@dataclass(frozen=True, kw_only=True)
class ComparisonFacts:
    """What the sentences are about. better, worse: the runs of which neither interval nor corrected
    p-value allows for no difference; none with too few patients."""

    better: Sequence[str]
    worse: Sequence[str]
    outcome: str  # "b is better than a"
    metric: str
    samples: str
    judged_by: str
    none_better: bool  # than one grade for all
    none_clear: bool
    not_naive: str  # runs that are not better than one grade for all
    unclear: str
    too_few: bool
    trainings: Sequence[int]
    patients: int | None
    rare: str  # grades of fewer than ten patients


def comparison_verdict(f: ComparisonFacts) -> tuple[str, str]:
    """Title and lead."""
    labels = f"on {f.samples}, with their {f.judged_by}."
    if f.none_better:
        return f"No run is better than one grade for all, by {f.metric}", f"{f.outcome}, {labels}"
    if f.none_clear:
        title = f"No run is clearly better than one grade for all, by {f.metric}"
        return title, f"{f.outcome}, {labels}"
    return f.outcome, f"Judged by {f.metric} {labels}"


def comparison_notes(f: ComparisonFacts) -> Iterator[str]:
    """How far the differences can be trusted."""
    if f.too_few:
        yield f"{f.samples} are too few to show a difference."
    if max(f.trainings) == 1:
        yield (
            "One training per method: the interval does not contain the variation between"
            " trainings."
        )
    if max(f.trainings) > 1:
        yield (
            "Intervals and p-values contain the variation between trainings (Student's t); a"
            " method with one training is taken to vary as the others do."
        )
    if f.patients:
        yield "Intervals and p-values resample patients, the same ones for all runs."
    if not f.patients:
        yield (
            "No patient ids: intervals and p-values resample images, and are too narrow if a"
            " patient has several."
        )
    if f.rare:
        yield (
            f"Of fewer than ten patients: grade {f.rare}. So differences of scores that average"
            " over grades, and of κ, have no interval and no p-value."
        )
    yield (
        "p-values of several runs are corrected for their number (Holm), not for that of the"
        " metrics."
    )


def comparison_facts(comparison: Comparison) -> ComparisonFacts:
    """What the sentences are about."""
    metric = METRICS[comparison.purpose]
    too_few = (comparison.patients or comparison.samples) < TOO_FEW
    groups: dict[str, list[str]] = {"better": [], "worse": [], "not shown to differ": []}
    for row in comparison.differences:
        if row.metric != comparison.purpose:
            continue
        value, low, high = row.difference
        group = "not shown to differ"
        if not (too_few or low <= 0 <= high) and row.adjusted <= 1 - comparison.level:
            group = "better" if (value < 0) == metric.lower_is_better else "worse"
        groups[group].append(row.run)
    naive: dict[str, list[str]] = {"better": [], "not better": [], "unclear": []}
    for name, gains in comparison.gains.items():
        verdicts = {gain.verdict for gain in gains}
        verdict = verdicts.pop() if len(verdicts) == 1 else "unclear"
        naive[verdict].append(_with_scores(name, gains))
    samples = count_of(comparison.samples, "test sample")
    if comparison.patients:
        samples += f" of {count_of(comparison.patients, 'patient')}"
    not_better = len(naive["not better"])
    return ComparisonFacts(
        better=groups["better"],
        worse=groups["worse"],
        outcome=_outcome(comparison.runs, groups),
        metric=metric.long_name,
        samples=samples,
        judged_by=_labels_of(comparison),
        none_better=not_better == len(comparison.runs),
        none_clear=not_better + len(naive["unclear"]) == len(comparison.runs),
        not_naive="; ".join(naive["not better"]),
        unclear="; ".join(naive["unclear"]),
        too_few=too_few,
        trainings=comparison.trainings or (1,),
        patients=comparison.patients,
        rare=", ".join(comparison.rare_grades),
    )


def _labels_of(comparison: Comparison) -> str:
    """ "given grades", "given grades of run 2, 5 of which others have not"."""
    if not comparison.corrected:
        return comparison.judged_by
    others = f"{comparison.corrected:,} of which others have not"
    return f"{comparison.judged_by} of {comparison.labels_of}, {others}"


def _outcome(runs: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str:
    """ "b is better than a", "Against a: b: better; c: not shown to differ"."""
    named = {", ".join(sorted(group)): name for name, group in groups.items() if group}
    if len(runs) > 2 or not named:
        return f"Against {runs[0]}: " + "; ".join(map(": ".join, named.items()))
    (other, name), *_ = named.items()
    if name in ("better", "worse"):
        return f"{other} is {name} than {runs[0]}"
    return f"No difference is shown between {other} and {runs[0]}"


def _with_scores(run: str, gains: Sequence[Gain]) -> str:
    """ "run 1 (0.900; one grade: 0.933)", means over its trainings."""
    score = np.mean([gain.score for gain in gains])
    naive = np.mean([gain.naive for gain in gains])
    return f"{run} ({score:.3f}; one grade: {naive:.3f})"


def _difference_numbers(comparison: Comparison) -> list[KeyNumber]:
    """The differences by the metric that the grades are for; of two runs also by the others."""
    two = len(comparison.runs) == 2
    usual: list[str] = [comparison.purpose]
    if two:
        usual = list(dict.fromkeys([comparison.purpose, *MAIN]))
    numbers = []
    for metric in usual:
        for row in comparison.differences:
            if row.metric != metric:
                continue
            label = metric_heading(row.metric) if two else row.run
            values = f"{row.value:.3f} vs {row.first:.3f}"
            if row.adjusted >= 0:
                values += f", {p_in_words(row.adjusted)}"
            numbers.append(KeyNumber.of(label, row.difference, "+.3f", compared=values))
    return numbers


@page_of.register(Comparison)
def comparison_page(comparison: Comparison) -> Page:
    """The verdict, the differences as a figure, and all numbers."""
    facts = comparison_facts(comparison)
    title, lead = comparison_verdict(facts)
    warnings = []
    if facts.not_naive:
        warnings.append(f"No better than one grade for all: {facts.not_naive}.")
    if facts.unclear:
        warnings.append(f"Not clearly better than one grade for all: {facts.unclear}.")
    for run, count in comparison.trained_on.items():
        warnings.append(
            f"{run} was trained on {count:,} of the samples (same ids): its numbers look too good."
        )
    return Page(
        kind="Comparison",
        title=title,
        lead=lead,
        remarks=list(comparison_notes(facts)),
        key_numbers=_difference_numbers(comparison),
        figure=results.forest_figure(comparison),
        warnings=warnings,
        sections=[Section("numbers", "All metrics", tables=[_difference_table(comparison)])],
        has_ids_option=False,
    )


def _difference_table(comparison: Comparison) -> Table:
    rows = []
    for row in comparison.differences:
        cells = {
            "metric": metric_heading(row.metric),
            "run": row.run,
            "difference": row.difference.value,
            f"{100 * comparison.level:.0f} % interval": between(*row.difference[1:], "+.3f"),
            "p": row.adjusted,
            "this run": row.value,
            "first run": row.first,
        }
        if len(comparison.runs) == 2:
            del cells["run"]  # the same in every row
        rows.append(cells)
    return data_table(
        pd.DataFrame(rows),
        title=f"Differences from {comparison.runs[0]}",
        formats={"difference": "+.3f", "p": p_value},
        slug="differences",
        rule_before=range(len(METRICS), len(rows), len(METRICS)),  # between runs
    )
