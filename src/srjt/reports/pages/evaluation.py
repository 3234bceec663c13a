"""The pages of an evaluation, a run judged by the labels of samples, and of a comparison of runs;
and the sections that the page of a run shares.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from srjt.data.grades import Grades
from srjt.data.manifest import Manifest
from srjt.errors import count_of
from srjt.inference.compare import Comparison
from srjt.inference.decide import refer_if
from srjt.inference.evaluate import Evaluation
from srjt.inference.subgroups import External, Subgroups
from srjt.inference.true_scores import TrueScores
from srjt.ordinal.baseline import Gain
from srjt.ordinal.metrics import MAIN, METRICS, TOO_FEW, Interval, Ints
from srjt.readers.agreement import NetworkComparison
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
from srjt.reports.sections import pictures_of, run_section
from srjt.reports.table import Table, between, data_table, metric_heading
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
# missed: grades that occur and are never predicted; uncovered: that occur and are in no range
RARE: list[Rule[Any]] = [
    (lambda f: f.missed, "{f.missed} never predicted; {f.missed_samples:,} of {f.samples} have {f.it}. What helps: "
     "{f.helps}."),
    (lambda f: f.uncovered and f.coverage_by == "grade", "{f.uncovered} in none of the ranges."),
    (lambda f: f.uncovered and f.coverage_by != "grade", "{f.uncovered} in none of the ranges, whose promise is for "
     "all grades together: srjt predict --coverage-by grade promises it for each grade."),
]  # fmt: skip
NOTES: list[Rule[Any]] = [
    (lambda f: True, "Compared with {f.judged_by}. A predicted grade is {f.grade_rule}."),
    (lambda f: f.judged_by == "given grades", "Given grades may be wrong themselves."),
    (lambda f: f.judged_by == "given grades" and f.true_scores is None and not (f.per or f.side), "What the "
     "scores against the true grades are cannot be told: verify a random part of the labels (column verified_grade), "
     "or have images read twice."),
    (lambda f: f.by_patient, "The 95 % intervals resample patients, not trainings."),
    (lambda f: f.scarce, "{f.scarce} rare here: intervals of scores that average over grades, and of κ, may be too "
     "short."),
    (lambda f: len(f.grades) > 2, "Intervals allow for errors that have not occurred if they are by one grade; if rare "
     "ones are by more, those of the absolute error and of κ are too short."),
    (lambda f: f.ranges is not None and (f.patients or FEW) < FEW, "With so few patients, intervals of how often ranges "
     "hold and of their width are too short."),
    (lambda f: bool(f.recalibration), "Probabilities are recalibrated: {f.recalibration}."),
    (lambda f: f.views > 1, "Probabilities are averaged over {f.views} views of each image."),
    (lambda f: not (f.per or math.isnan(f.naive)), "One grade for all is the most frequent training label; for the "
     "absolute error their median."),
    (lambda f: bool(f.per), "Each {f.per} has one answer (pool: {f.pool}) and is judged by the highest label. One "
     "grade for all is the most frequent of these; for the absolute error their median."),
    (lambda f: f.learned_pooling is not None, "The pooling is fitted on the validation side. {f.pooling_labels}"),
    (lambda f: bool(f.per) and f.judged_by != "true grades", "The highest of several labels is too high where "
     "labels are wrong."),
    (lambda f: f.unknown_units > 0, "Images without a {f.per}, each judged alone: {f.unknown_units:,}."),
]  # fmt: skip
# patients with a grade (samples, without patients), below which a mean over grades rests on a few
# of them
SCARCE = 10
FEW = 15  # patients, below which intervals about ranges hold less often than they promise
# patients of a group, below which errors by several grades may not have occurred in it
FEW_FOR_FAR = 20
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
    is naive, nan if it is not known; untested: why chance cannot be judged; missed, uncovered: as
    in ``RARE``."""
    naive = float(getattr(found.naive, found.purpose, math.nan))
    images = found.images or found.samples
    samples = answered(found.samples, images, found.per, features=found.features, side=found.side)
    if not found.per and found.patients is not None:
        samples += f" of {count_of(found.patients, 'patient')}"
    gain, untested = found.gain, ""
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
        "uncovered": named_grades(found.grades, _never_covered(found)),
        "scarce": named_grades(
            found.grades, np.flatnonzero((occurring > 0) & (independent < SCARCE)).tolist()
        ),
    }
    return SimpleNamespace(**{**vars(found), **own})


def _patients_of_grades(found: Evaluation) -> Ints:
    """(C,) how many patients have a sample of each grade."""
    rows = found.answers[["label", "patient"]].drop_duplicates()
    return np.array([(rows["label"] == grade).sum() for grade in found.grades], dtype=np.int64)


def never_predicted(found: Evaluation) -> list[int]:
    """The places of the grades that samples have and no answer gives."""
    counts = np.asarray(found.confusion)
    return np.flatnonzero((counts.sum(axis=1) > 0) & (counts.sum(axis=0) == 0)).tolist()


def _never_covered(found: Evaluation) -> list[int]:
    """The places of the grades that samples have and that the range of none of them contains."""
    grades = [] if found.ranges is None else found.ranges.grades
    return [
        place for place, (samples, coverage) in enumerate(grades) if samples and coverage.value == 0
    ]


def named_grades(grades: Grades, places: Sequence[int]) -> str:
    """ "Grade 4 is", "Grades 3 and 4 are"; "" for none."""
    names = [grades.shown[place] for place in places]
    if len(names) < 2:
        return "".join(f"Grade {name} is" for name in names)
    return f"Grades {', '.join(names[:-1])} and {names[-1]} are"


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
    patients = "" if found.by_patient else NO_PATIENTS
    facts = evaluation_facts(found)
    rare = sentences(RARE, facts)
    # samples that were trained on come first: they make every other sentence doubtful
    warnings = [found.trained_on, *rare, patients, *map(str, found.overlaps), found.not_compared]
    return list(filter(None, warnings)), sentences(NOTES, facts)


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
        *_asked(found),
        *external_section(found),
        *subgroups_section(found),
        *_readers(found.readers),
        *true_scores_section(found),
        *examples_section(found, data),
        calibration_section(found),
        *([] if run is None else [run_section(run, sources=sources, command=command)]),
    ]
    (title, lead), (warnings, remarks) = judgement(found), evaluation_notes(found)
    return Page(
        kind=f"Evaluation of {found.run}" if found.run else "Evaluation",
        title=title,
        lead=lead + true_scores_lead(found),
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
    if found.decision is not None:
        refer = f"refer from {found.grades.show(found.decision.refer_from)}"
        for name in ("sensitivity", "specificity"):
            numbers.append(KeyNumber.of(name, found.decision.operating_point[name], compared=refer))
    if found.abstention is not None and "accuracy" in found.abstention.kept:
        right, left = (
            found.abstention.kept["accuracy"],
            f"{found.abstention.share:.1%} left to a person",
        )
        numbers.append(KeyNumber.of("right answers of the rest", right, compared=left))
    if found.ranges is not None:
        promised, of = f"promised: {found.ranges.promised:g}", f"of {len(found.grades)}"
        numbers.append(
            KeyNumber.of("coverage of the ranges", found.ranges.coverage, compared=promised)
        )
        numbers.append(KeyNumber.of("grades in a range", found.ranges.width, compared=of))
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


def interval_frame(scores: Mapping[str, Interval], heading: str = "score") -> pd.DataFrame:
    """A row per score: its name, value and interval."""
    rows = [(name, score.value, between(*score[1:])) for name, score in scores.items()]
    return pd.DataFrame(rows, columns=[heading, "value", "95 % interval"])


def by_grade_table(found: Evaluation) -> Table:
    """Samples, recall, precision and error of each grade, and how often the range contains it."""
    counts = pd.DataFrame(found.confusion)
    samples, right = counts.sum(axis=1), np.diag(counts)
    frame = pd.DataFrame({
        "grade": found.grades.shown,
        "samples": samples,
        "recall": right / samples,
        "precision": right / counts.sum(),
        "MAE": found.grade_errors,
    })  # fmt: skip
    caption = ""
    if found.ranges is not None:
        caption = "Coverage: how often the range contains the grade"
        caption += "; all patients count equally." if found.by_patient else "."
        coverage = [interval for _, interval in found.ranges.grades]
        frame["coverage"] = [interval.value for interval in coverage]
        frame["95 %, coverage"] = [between(*interval[1:]) for interval in coverage]
    return data_table(frame, title="By grade", caption=caption, slug="answers-by-grade")


def confusion_of(found: Evaluation) -> CaptionedFigure:
    """The confusion matrix of the answers as a figure."""
    where = f"{found.side.capitalize()} side" if found.side else "These samples"
    counts, rows = np.asarray(found.confusion, dtype=np.float64), found.judged_by.removesuffix("s")
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
    frame.insert(0, f"{found.judged_by.removesuffix('s')} ╲ predicted", found.grades.shown)
    return data_table(frame, title="", slug="confusion")


def calibration_section(found: Evaluation) -> Section:
    """Whether probabilities mean what they say: at home, before recalibration, and as they are."""
    panels, error = {}, f"{found.calibration_error:.3f}"
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
    rows, grades = found.answers.reset_index(drop=True), found.grades
    if found.per or rows.empty or found.features:  # a patient is not one picture
        return []
    rows = rows.assign(
        file=rows["file" if "file" in rows else "image"].astype(str),
        owner=rows["patient" if "patient" in rows else "image"],
        off=(rows["grade"].map(grades.index) - rows["label"].map(grades.index)).abs().clip(upper=2),
    ).sample(frac=1, random_state=0)
    tiles, picture = [], pictures_of(data)
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
    arrow = f"“A → B”: {found.judged_by.removesuffix('s')} A, predicted B."
    text = f"Up to {EXAMPLES} of each kind, of as many patients, chosen at random. {arrow}"
    return [Section("examples", "Examples", text=[text], tiles=tiles)] if tiles else []


# What else may have been asked for.


def _asked(found: Evaluation) -> Iterator[Section]:
    """The decision to refer, the answers left to a person, the ranges."""
    if (decision := found.decision) is not None:
        grade = found.grades.show(decision.refer_from)
        referred = (
            f"{decision.referred:,} of {decision.samples:,} referred, {decision.positives:,}"
            " should be."
        )
        # the first screen has sensitivity and specificity
        predictive = {
            name: n for name, n in decision.operating_point.items() if name.endswith("value")
        }
        table = _scores(
            {**predictive, **decision.areas}, f"Refer {refer_if(grade, decision.threshold)}"
        )
        figures = results.decision_figures(decision, grade=grade)
        text = [f"{referred} {decision.found}"]
        yield Section(
            "decision", "Decision to refer", text=text, tables=[table], figures=figures, brief=True
        )
    if (abstention := found.abstention) is not None and abstention.wanted is not None:
        wrong = f" and {abstention.errors_left:.0%} of the wrong ones" * math.isfinite(
            abstention.errors_left
        )
        text = [
            f"{abstention.share:.1%} of the answers{wrong} are left to a person. {abstention.found}"
        ]
        # the first screen has the accuracy
        kept = {name: score for name, score in abstention.kept.items() if name != "accuracy"}
        tables = (
            [_scores(kept, f"Without the {abstention.share:.1%} least confident answers")]
            if kept
            else []
        )
        figures = [results.risk_coverage_figure(abstention)]
        yield Section(
            "abstention", "Abstention", text=text, tables=tables, figures=figures, brief=True
        )
    if (ranges := found.ranges) is not None:
        fewer = f" Here fewer do: {between(*ranges.coverage[1:], '.0%')}." * (
            ranges.coverage.high < ranges.promised
        )
        yield Section("ranges", "Ranges of grades", text=[ranges.promise + fewer], brief=True)


def _scores(scores: Mapping[str, Interval], title: str) -> Table:
    names = {
        name: name.replace("_", " ").replace("roc area", "area under the ROC curve")
        for name in scores
    }
    return data_table(
        interval_frame({names[name]: score for name, score in scores.items()}), title=title
    )


def _readers(found: NetworkComparison | None) -> list[Section]:
    if found is None:
        return []
    columns = {
        "items": "samples",
        "reader_to_consensus": "κ of the reader",
        "network_to_consensus": "κ of the network",
    }
    table = data_table(
        found.by_reader[["reader", *columns]].rename(columns=columns),
        title="The network as one more reader",
        caption=(
            "Quadratic κ with the consensus of all other readers, on the samples of the reader."
        ),
        formats=dict.fromkeys([*columns.values()][1:], ".2f"),
        slug="readers",
    )
    return [
        Section("readers", "Beside the readers", text=[found.sentence], tables=[table], brief=True)
    ]


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
    (lambda f: max(f.trainings) == 1, "One training per method: the interval does not contain the variation between "
     "trainings."),
    (lambda f: max(f.trainings) > 1, "Intervals and p-values contain the variation between trainings (Student's t); a "
     "method with one training is taken to vary as the others do."),
    (lambda f: f.patients, "Intervals and p-values resample patients, the same ones for all runs."),
    (lambda f: not f.patients, "No patient ids: intervals and p-values resample images, and are too narrow if a "
     "patient has several."),
    (lambda f: f.rare_grades, "Of fewer than ten patients: grade {f.rare}. So differences of scores that average over "
     "grades, and of κ, have no interval and no p-value."),
    (lambda f: True, "p-values of several runs are corrected for their number (Holm), not for that of the metrics."),
]  # fmt: skip


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


@page_of.register(Comparison)
def comparison_page(comparison: Comparison) -> Page:
    """The verdict, the differences as a figure, and all numbers."""
    facts = comparison_facts(comparison)
    # the metric that the grades are for, first; of two runs also the others
    usual = dict.fromkeys([comparison.purpose, *MAIN]) if facts.two else [comparison.purpose]
    return Page(
        kind="Comparison",
        **said(facts, COMPARED, remarks=COMPARED_NOTES),
        key_numbers=[
            KeyNumber.of(
                metric_heading(row.metric) if facts.two else row.run, row.difference, "+.3f",
                compared=f"{row.value:.3f} vs {row.first:.3f}" + f", p {row.adjusted:.3f}" * (row.adjusted >= 0),
            )
            for metric in usual
            for row in comparison.differences
            if row.metric == metric
        ],
        figure=results.forest_figure(comparison),
        warnings=sentences(COMPARED_WARNINGS, facts)
        + [
            f"{run} was trained on {count:,} of the samples (same ids): its numbers look too good."
            for run, count in comparison.trained_on.items()
        ],
        sections=[Section("numbers", "All metrics", tables=[_difference_table(comparison)])],
    )  # fmt: skip


def _difference_table(comparison: Comparison) -> Table:
    rows = [
        (metric_heading(row.metric), row.run, row.difference.value, between(*row.difference[1:], "+.3f"), row.adjusted,
         row.value, row.first)
        for row in comparison.differences
    ]  # fmt: skip
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


# Subgroups.

SUBGROUPS: list[Rule[Subgroups]] = [
    (lambda f: f.worst is None, f"No group has {TOO_FEW} patients: nothing can be said about any of them."),
    (lambda f: f.worst and len(f.groups) == 1, "All are one group: there is none to compare it with."),
    (lambda f: f.worst and len(f.groups) > 1 and not f.differing, "No group is shown to differ from all others in mean "
     "absolute error; the worst is {f.worst}."),
    (lambda f: f.differing, "The mean absolute error differs from that of all others by more than chance (p ≤ 0.05 "
     "after Holm's correction): {f.differing}. The worst is {f.worst}."),
]  # fmt: skip


def subgroups_section(found: Evaluation) -> list[Section]:
    """The worst group, the error of each group and its gap to all others. All scores are in the
    file of the groups."""
    if found.subgroups is None:
        return []
    groups, nothing = found.subgroups.groups, Interval(math.nan, math.nan, math.nan)
    errors = [group.scores.get("mae", nothing) for group in groups]
    gaps = [group.gaps.get("mae") for group in groups]
    frame = pd.DataFrame({
        "group": map(str, groups),
        "patients" if found.by_patient else "samples": [group.patients for group in groups],
        "MAE": [error.value for error in errors],
        "95 %, MAE": [between(*error[1:]) for error in errors],
        "gap": [gap.difference.value if gap else math.nan for gap in gaps],
        "p, Holm": [gap.adjusted if gap else math.nan for gap in gaps],
    })  # fmt: skip
    if found.ranges is not None:
        frame.insert(
            4, "coverage", [group.scores.get("coverage", nothing).value for group in groups]
        )
    table = data_table(
        frame,
        title="Scores of the groups",
        caption=(
            "Gap: mean absolute error of the group minus that of all others. A dash: fewer than"
            f" {TOO_FEW} patients, in the group or in all others. Where a few patients have most of"
            " the images of a group, intervals may be too short; likewise in groups of fewer than"
            f" {FEW_FOR_FAR} patients, if rare errors are by several grades."
        ),
        formats={"gap": "+.3f"},
        slug="subgroups",
        rule_before=[k for k in range(1, len(groups)) if groups[k].column != groups[k - 1].column],
    )
    figure = results.subgroup_figure(found.subgroups, all_samples=found.intervals["mae"].value)
    text = sentences(SUBGROUPS, found.subgroups)
    return [Section("subgroups", "Groups", text=text, tables=[table], figures=[figure], brief=True)]


# Scores against the true grades, where labels may be wrong.

WHY: list[Rule[TrueScores]] = [
    (lambda f: f.basis == "verified grades", "From all labels, corrected by {f.verified:,} verified grades. These must "
     "be a random part, or weighted by how they were drawn; nothing is assumed about the errors of the others."),
    (lambda f: f.basis == "readings", "From what the readings tell about the true grades. The bounds include errors "
     "that all readers share, up to the rate of one reader's own; a few verified grades tell much more."),
    (lambda f: f.basis == "noise matrix", "From the noise of the run's labels ({f.wrong[0]:.0%} to {f.wrong[1]:.0%} "
     "wrong), if these labels are as noisy."),
    (lambda f: f.basis == "share of wrong labels", "How many of the labels are wrong is not determined "
     "({f.wrong[0]:.0%} to {f.wrong[1]:.0%} are plausible). These are bounds, whatever the errors depend on."),
]  # fmt: skip


def true_scores_lead(found: Evaluation) -> str:
    """A second sentence for the top of the page; "" if there is nothing to say."""
    truly = found.true_scores
    if truly is None:
        return ""
    purpose = found.purpose if found.purpose in truly.scores else "mae"
    value, low, high = truly.scores[purpose]
    verified = f"{value:.3f}, " if truly.basis == "verified grades" else ""
    words = METRICS[purpose].long_name.capitalize()
    # bounds that contain the score of one grade for all do not say whether the answers are better:
    # not at the top
    if not verified and low <= float(getattr(found.naive, purpose, math.nan)) <= high:
        return ""
    return (
        ""
        if math.isnan(low)
        else f" {words} against the true grades: {verified}{between(low, high)}."
    )


def true_scores_section(found: Evaluation) -> list[Section]:
    """Scores by the labels and against the true grades."""
    truly = found.true_scores
    if truly is None:
        return []
    by_label = found.intervals | (found.decision.operating_point if found.decision else {})
    scores = {
        name: score
        for name, score in truly.scores.items()
        if name in by_label and math.isfinite(score.low)
    }
    headings = [metric_heading(name) if name in METRICS else name for name in scores]
    frame = pd.DataFrame(
        {"score": headings, "by labels": [by_label[name].value for name in scores]}
    )
    verified = truly.basis == "verified grades"
    if verified:
        frame["by true grades"] = [score.value for score in scores.values()]
    frame["95 % interval" if verified else "bounds"] = [
        between(*score[1:]) for score in scores.values()
    ]
    table = data_table(frame, title="Against the true grades", slug="true-scores")
    text = sentences(WHY, truly)
    return [
        Section("true-scores", "Against the true grades", text=text, tables=[table], brief=True)
    ]


# Samples from elsewhere.

EXTERNAL: list[Rule[External]] = [
    (lambda f: math.isfinite(f.by_mix), "Mean absolute error {f.here.intervals[mae].value:.3f} here and "
     "{f.home.intervals[mae].value:.3f} on the run's own test side: {f.by_mix:+.3f} by another mix of grades, "
     "{f.by_answers:+.3f} by answers to the same grades."),
    (lambda f: not math.isfinite(f.by_mix), "Mean absolute error {f.here.intervals[mae].value:.3f} here and "
     "{f.home.intervals[mae].value:.3f} on the run's own test side, which lacks a grade that is here."),
    (lambda f: f.recalibrated is not None, "Recalibrated on {f.calibrated_on[0]:,} samples: mean absolute error "
     "{f.recalibrated.intervals[mae].value:.3f}, calibration error {f.here.calibration_error:.3f} → "
     "{f.recalibrated.calibration_error:.3f}."),
]  # fmt: skip


def external_section(found: Evaluation) -> list[Section]:
    """What changed and why, as sentences; then the scores at home and here."""
    external = found.external
    if external is None:
        return []
    text = [sentence.replace(" -", " −") for sentence in sentences(EXTERNAL, external)]
    sets = {"home": external.home, "here": external.here}
    if external.recalibrated is not None:
        sets["recalibrated"] = external.recalibrated
    frame = pd.DataFrame({"score": [*map(metric_heading, MAIN), "calibration error ↓"]})
    for name, one in sets.items():
        scores = [one.intervals[metric] for metric in MAIN]
        frame[name] = [*(f"{value:.3f} ({between(low, high)})" for value, low, high in scores),
                       f"{one.calibration_error:.3f}"]  # fmt: skip
    caption = (
        "With 95 % intervals. Home: the run's own test side. Both are by the run as it was trained."
    )
    caption += " Both are of one view of each image." * (found.views > 1)
    table = data_table(frame, title="", slug="external-scores", caption=caption)
    beside = Section("external-scores", "Scores at home and here", tables=[table])
    # a terminal, too narrow for the table, shows the sentences alone
    return [
        Section("external", "Beside the run's own test side", text=text, parts=[beside], brief=True)
    ]
