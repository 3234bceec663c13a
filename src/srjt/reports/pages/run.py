"""The page of a run: finished, unfinished, or in training, when a browser reloads it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from srjt import methods
from srjt.data.grades import Grades
from srjt.errors import SrjtError, duration
from srjt.inference.evaluate import Evaluation, evaluate_sides
from srjt.ordinal.baseline import Gain
from srjt.ordinal.metrics import MAIN, METRICS, NaiveBaseline
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.figures.results import run_figures
from srjt.reports.page import KeyNumber, Page, Section, page_of
from srjt.reports.pages import evaluation
from srjt.reports.sections import counts_table, provenance_section, shared_patients
from srjt.reports.table import between, metric_heading
from srjt.studies.results import display_name
from srjt.training import folder as run_folder
from srjt.training.baselines import baseline_from, run_baselines
from srjt.training.checkpoint import HEADER, LAST, MetricRow, kept_epoch, last_epochs, read_metrics
from srjt.training.choose_head import head_sentence
from srjt.training.frozen import NO_WEIGHTS, frozen_sentences
from srjt.training.rarely_kept import rarely_kept_advice, rarely_kept_grades, to_try
from srjt.training.single_run import finished_metrics
from srjt.training.trained import Trained, load_run

RESUME = "Run the same command again to resume it."


State = Literal["training", "stopped", "unfinished", "finished"]


@dataclass(frozen=True, kw_only=True)
class SidesApart:
    """Whether the test side scores better or worse than the validation side by more than chance."""

    apart: Literal["better", "worse", ""] = ""  # "": the two 95 % intervals overlap
    test_score: float = math.nan
    validation_score: float = math.nan
    why_apart: str = ""  # what is known about the reason


@dataclass(frozen=True, kw_only=True)
class RunPageFacts(SidesApart, evaluation.BesideOneGrade):
    """What the sentences are about; those about the answers of ``srjt predict`` are on the page of
    an evaluation. None, nan, "": not known, or nothing to say."""

    state: State
    reached: int  # epochs
    planned: int
    left: str  # how long the rest will take
    problem: str
    by_size: int  # samples for which srjt chose the number of epochs; 0: it did not
    training: int  # samples
    sides: frozenset[str]
    kept: int  # the epoch whose networks were kept; 0: the last one
    averaged: int  # epochs that the scores are means over
    answers: bool  # whether those of srjt predict are known
    side: str  # that the scores are of
    scores: Mapping[str, float]  # by metric: means over the last epochs of the networks' own grades
    baseline: NaiveBaseline | None  # one grade for all
    truth: bool  # whether true grades are known
    wrong: float  # the share of wrong training labels
    frozen: Sequence[str]  # sentences about the frozen backbone
    weights_missing: bool
    head: str
    shared: str  # patients on two sides, as a sentence
    starved: str  # grades that are hardly selected
    starved_advice: str


def verdict_of(f: RunPageFacts) -> tuple[str, str]:
    """Title and lead of the page."""
    if f.state == "training" and not f.reached:
        return f"The first of {f.planned} epochs has begun", ""
    if f.state == "training":
        return f"Epoch {f.reached} of {f.planned} is done", f.left
    if f.state == "stopped":
        return f"Stopped after epoch {f.reached} of {f.planned}", f"{f.problem} {RESUME}"
    if f.state == "unfinished":
        return f"Not finished: {f.reached} of {f.planned} epochs", RESUME
    if not f.side:
        lead = f"All {f.training:,} samples were used for training."
        return "It is not known how good the run is", lead
    return evaluation.verdict_of(f)


def warnings_of(f: RunPageFacts) -> Iterator[str]:
    """What may have gone wrong."""
    if f.shared:  # it makes every score doubtful
        yield f.shared
    if f.weights_missing:
        yield (
            f"{NO_WEIGHTS} Fetch weights where there is a connection (srjt weights fetch"
            " efficientnet-lite0), and train again (srjt train --preset cpu --weights FILE)."
        )
    if f.starved:
        yield (
            f"The selection hardly keeps grade {f.starved}: the networks unlearn"
            f" it.{f.starved_advice}"
        )
    if f.state != "finished" and f.verdict == "not better":
        yield (
            f"No better than one grade for all so far: {f.metric} {f.score:.3f} on {f.samples};"
            f" {f.naive:.3f} for one grade."
        )
    if f.apart:
        yield (
            f"The test side scores much {f.apart} than the validation side: {f.metric}"
            f" {f.test_score:.3f} and {f.validation_score:.3f}. {f.why_apart}"
        )
    if f.state == "finished" and f.sides == {"train", "validation"}:
        yield "There is no test side: all scores are those of the validation side."
    if f.state == "training" and "validation" not in f.sides:
        yield "There is no validation side: how good the run is cannot be seen while it trains."


def notes_of(f: RunPageFacts) -> Iterator[str]:
    """How the numbers were made."""
    if f.frozen:
        yield f.frozen[2]
    if f.head:
        yield f.head
    if f.by_size:
        yield (
            f"{f.planned} epochs are the choice of srjt for {f.by_size:,} images: smaller data sets"
            " need more epochs and smaller batches."
        )
    if f.side and not f.answers and not f.kept and f.averaged > 1:
        yield (
            f"Scores are means over the last {f.averaged} epochs, not the answers of srjt predict."
        )
    if f.kept > 0:
        yield f"The networks are those of epoch {f.kept}, the best on the validation side."
    if f.side:
        yield (
            "Curves take the networks together, as in the paper's figures; metrics.csv has each"
            " network's."
        )
    if f.side and f.truth:
        yield "Test scores compare with the true grades, validation scores with the given labels."
    if f.state == "training":
        yield (
            "The page is written after an epoch, at most every few seconds. If it is much older,"
            " the training has stopped."
        )


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run, in memory or in a folder, as far as it is there."""

    state: State
    facts: run_folder.RunFacts
    metrics: pd.DataFrame
    sides: Mapping[str, Evaluation]
    folder: Path | None = None
    problem: str = ""  # why a training has stopped

    @property
    def title(self) -> str:
        if self.folder is None:
            return display_name(self.facts.config.method)
        return self.folder.resolve().name

    @property
    def pooled(self) -> bool:
        return self.facts.config.convention == "published-code"

    @property
    def evaluation(self) -> Evaluation | None:
        """Of the test side, else of the validation side."""
        return self.sides.get("test") or self.sides.get("validation")

    @property
    def shown_sides(self) -> list[str]:
        """The sides that the networks' own grades are judged on."""
        shown = ["test", "validation"]
        if self.state in ("training", "stopped"):
            shown.remove("test")  # whoever watches test scores will choose settings by them
        return [side for side in shown if side in set(self.metrics["split"])]


def run_page(folder: Path, **options: Any) -> Page:
    """The page of the run in a folder, finished or not. options: as for ``read_record``."""
    if "live" in options and not (folder / "run.json").exists():
        return Page(  # nothing is recorded before the first step
            kind=f"Training: {folder.resolve().name}",
            title="The training is being prepared",
            lead="This page reloads itself.",
            progress=0.0,
        )
    return _page(read_record(folder, **options))


def read_record(
    folder: Path, *, live: Literal["training", "stopped"] | None = None, problem: str = ""
) -> RunRecord:
    """What the page of a run shows. live: the training is running, or has just stopped. problem: as
    in the record."""
    facts = run_folder.read_facts(folder)
    file = folder / "metrics.csv"
    # weights may have been deleted to save space
    if live is None and (folder / "summary.json").exists():
        return RunRecord(
            state="finished",
            facts=facts,
            metrics=finished_metrics(folder),
            sides=stored_sides(folder, facts.grades),
            folder=folder,
            problem=problem,
        )
    metrics = pd.DataFrame(columns=list(HEADER))
    if file.exists():
        metrics = read_metrics(file)
    return RunRecord(
        state=live or "unfinished",
        facts=facts,
        metrics=metrics,
        sides={},
        folder=folder,
        problem=problem,
    )


@page_of.register(Trained)
def trained_page(
    run: Trained, sides: Mapping[str, Evaluation] | None = None, *, brief: bool = False
) -> Page:
    """The page of a run in memory. sides: its held-out sides, if they are evaluated already. brief:
    for a terminal."""
    metrics = run.metrics.reindex(columns=list(HEADER))  # there may be none
    if sides is None:
        sides = evaluate_sides(run)
    record = RunRecord(
        state="finished", facts=run.facts, metrics=metrics, sides=sides, folder=run.folder
    )
    return _page(record, brief=brief)


def stored_sides(folder: Path, grades: Grades) -> dict[str, Evaluation]:
    """The held-out sides with the answers of srjt predict; none if the networks cannot be
    opened."""
    run_folder.check_files(folder)  # a damaged file is an error, not an answer less
    try:
        return evaluate_sides(replace(load_run(folder, device="cpu"), grades=grades))
    except SrjtError:  # no weights, those of your own network, or a method that is not installed
        return {}


def run_page_facts(record: RunRecord) -> RunPageFacts:
    """What the sentences are about."""
    metrics = record.metrics
    config = record.facts.config
    side = next(iter(record.shown_sides), "")
    sizes: Mapping[str, int] = record.facts.data.samples
    averages = last_epochs(metrics, pooled=record.pooled)
    means = averages[averages["split"] == side]
    scores = dict(zip(means["metric"], means["value"].astype(float), strict=True))
    score = scores.get(config.target_metric, math.nan)
    baseline = _naive(record, side)
    naive = float(getattr(baseline, config.target_metric, math.nan))
    epochs = metrics.loc[metrics["split"] == side, "epoch"]
    rows = [MetricRow(*row) for row in metrics.itertuples(index=False)]
    grades = record.facts.grades.shown
    starved = (rarely_kept_grades(rows, grades) or [set()])[-1]
    averaged = 0
    reached = 0
    if len(metrics):
        reached = int(metrics["epoch"].max())
        averaged = int(epochs[epochs > epochs.max() - LAST].nunique())
    by_size = sum(sizes.values())
    if config.backbone is not None or not (
        config.has_length_by_size and config.epochs == config.length(by_size)["epochs"]
    ):
        by_size = 0
    frozen: Sequence[str] = []
    if backbone := record.facts.data.frozen:
        frozen = frozen_sentences(config, backbone)
    head = ""
    if record.facts.head is not None:
        head = head_sentence(record.facts.head)
    return RunPageFacts(
        state=record.state,
        reached=reached,
        planned=config.known_epochs,
        left=_time_left(metrics, config.known_epochs),
        problem=record.problem,
        by_size=by_size,
        training=int(sizes.get("train", 0)),
        sides=frozenset(name for name, count in sizes.items() if count),
        kept=kept_epoch(metrics) or 0,
        averaged=averaged,
        answers=record.evaluation is not None,
        side=side,
        samples=f"the {side} side, by the networks' own grades",
        metric=METRICS[config.target_metric].long_name,
        scores=scores,
        score=score,
        baseline=baseline,
        naive=naive,
        verdict=Gain(metric=config.target_metric, score=score, naive=naive).verdict,
        chance="Without the networks' answers chance cannot be judged.",
        truth="label_precision" in set(metrics["metric"]),
        wrong=_wrong_labels(record),
        frozen=frozen,
        weights_missing=record.facts.data.weights_missing,
        head=head,
        shared=shared_patients(record.facts.data),
        starved=", ".join(grade for grade in grades if grade in starved),
        starved_advice=_starved_advice(config.method),
        **vars(sides_apart(record.sides, config.target_metric)),
    )


def _starved_advice(name: str) -> str:
    """What to try, as a sentence; empty for a method whose module is not imported, because its
    options are unknown."""
    if name not in methods.names():
        return ""
    advice = to_try(rarely_kept_advice(methods.lookup(name).method))
    return advice.written(lambda option: str(option).strip("`"))


def sides_apart(sides: Mapping[str, Evaluation], metric: str) -> SidesApart:
    """The two sides, and what is known about why they differ."""
    if not {"test", "validation"} <= sides.keys():
        return SidesApart()
    test = sides["test"].intervals[metric]
    validation = sides["validation"].intervals[metric]
    apart: Literal["better", "worse", ""] = ""
    if test.high < validation.low or test.low > validation.high:
        lower = test.value < validation.value
        apart = "better" if lower == METRICS[metric].lower_is_better else "worse"
    why = (
        "Both are judged by given grades; other samples, or other errors among their labels, make"
        " the difference."
    )
    if sides["test"].judged_by == "true grades":
        why = (
            "The test side is judged by true grades, the validation side by given ones, whose"
            " errors count as errors."
        )
        if apart == "worse":
            why = "The test side is judged by true grades, the validation side by given ones."
    return SidesApart(
        apart=apart,
        test_score=test.value,
        validation_score=validation.value,
        why_apart=why,
    )


def _naive(record: RunRecord, side: str) -> NaiveBaseline | None:
    """One grade for all samples; while the run trains only the labels of the validation side are
    recorded."""
    if record.folder is not None and (record.folder / "summary.json").exists():
        return run_baselines(record.folder).get(side)
    if side != "validation":
        return None
    counts = record.facts.data.validation_counts
    return baseline_from(record.facts, counts)


def _time_left(metrics: pd.DataFrame, planned: int) -> str:
    seconds = metrics.loc[
        (metrics["split"] == "train") & (metrics["metric"] == "seconds"), "value"
    ].tail(5)
    left = planned - metrics["epoch"].max()
    if not len(seconds) or not left:
        return ""
    return f"About {duration(max(seconds.mean() * left, 1))} to go."


def _wrong_labels(record: RunRecord) -> float:
    """The share of training labels that are not the true grade; nan if true grades are not
    known."""
    if record.folder is None:
        return math.nan
    history = run_folder.read_history(record.folder)
    if "true_grade" not in history or not len(history):
        return math.nan
    return float((history["true_grade"] != history["grade"]).mean())


# The page.


def _page(record: RunRecord, *, brief: bool = False) -> Page:
    f = run_page_facts(record)
    judged = record.evaluation
    warnings = list(warnings_of(f))
    remarks = list(notes_of(f))
    if judged is None:
        title, lead = verdict_of(f)
    else:
        title, lead = evaluation.judgement(judged)
        more_warnings, more_remarks = evaluation.evaluation_notes(judged)
        warnings += more_warnings
        remarks = [*more_remarks, *remarks]
    kind = {"training": "Training", "stopped": "Training, stopped"}.get(record.state, "Run")
    page = Page(
        kind=f"{kind}: {record.title}",
        title=title,
        lead=lead,
        warnings=warnings,
        remarks=remarks,
        key_numbers=_key_numbers(record, f),
        figure_table=None if judged is None else evaluation.confusion_table(judged),
    )
    if record.state == "training":
        page = replace(page, progress=f.reached / max(f.planned, 1))
    if brief:
        return page
    figures = _figures(record, f)
    sections = list(_sections(record, f, figures[1:]))
    return replace(page, figure=figures[0] if figures else None, sections=sections)


def _key_numbers(record: RunRecord, f: RunPageFacts) -> list[KeyNumber]:
    numbers: list[KeyNumber] = []
    config = record.facts.config
    estimate = None
    if record.folder is not None:
        estimate = run_folder.read_noise_estimate(record.folder)
    if record.evaluation is not None:
        numbers = evaluation.key_numbers(record.evaluation)
    elif f.side:
        for name in MAIN:
            score = f.scores.get(name, math.nan)
            if not math.isnan(score):
                numbers.append(_key_number(name, score, f))
    if estimate is not None:
        interval = between(*estimate.rate_interval, ".0%")
        number = KeyNumber("wrong labels, estimated", f"{estimate.rate:.0%}", interval)
        if not (estimate.informed and estimate.identifiable):  # a point would be that of a prior
            number = KeyNumber("wrong labels", "unknown", interval, "not determined by the labels")
        numbers.append(number)
    if f.training:
        network = "your own network" if record.facts.own_network else config.network_name
        made_by = f"{display_name(config.method)} on {network}"
        if f.frozen:
            made_by += f", {config.crop} px"
        numbers.append(KeyNumber("training samples", f"{f.training:,}", compared=made_by))
    return numbers


def _key_number(metric: str, score: float, f: RunPageFacts) -> KeyNumber:
    compared = ""
    if f.baseline is not None:
        compared = f"one grade: {getattr(f.baseline, metric):.3f}"
    return KeyNumber(f"{metric_heading(metric)}, {f.side}", f"{score:.3f}", compared=compared)


def _figures(record: RunRecord, f: RunPageFacts) -> list[CaptionedFigure]:
    """The confusion matrix of the answers, and curves, unless there is one epoch only."""
    curves = []
    if f.planned > 1:
        curves = run_figures(
            record.metrics,
            grades=record.facts.grades.shown,
            sides=record.shown_sides,
            naive=f.baseline,
            noise_rate=None if math.isnan(f.wrong) else f.wrong,
            pooled=record.pooled,
        )
    if record.evaluation is None:
        return curves
    return [evaluation.confusion_of(record.evaluation), *curves]


def _sections(
    record: RunRecord, f: RunPageFacts, curves: Sequence[CaptionedFigure]
) -> Iterator[Section]:
    facts = record.facts
    judged = record.evaluation
    if judged is not None:
        tables = []
        for name, side in record.sides.items():
            scores = evaluation.scores_table(side)
            title = f"All metrics, {name} side"
            tables.append(replace(scores, title=title, slug=f"scores-{name}"))
        yield Section("scores", "Scores", tables=[*tables, evaluation.by_grade_table(judged)])
    if curves:
        yield Section("curves", "Curves", figures=curves)
    if judged is not None:
        yield from evaluation.examples_section(judged)
        yield evaluation.calibration_section(judged)
    noise = facts.noise or {}
    sizes = facts.data.samples
    known = [(f"{side} samples", f"{count:,}") for side, count in sizes.items() if count]
    if facts.data.patients:
        known.append(("patients", f"{facts.data.patients:,}"))
    if noise.get("used") is not None:
        known.append(("noise rate used", f"{noise['used']:.2f}"))
    if not math.isnan(f.wrong):
        known.append(("wrong labels", f"{f.wrong:.1%} of the training side"))
    text = list(f.frozen[:2])
    if noise.get("why"):
        text.append(str(noise["why"]))
    labels = facts.data.class_counts
    tables = []
    if any(labels):
        tables.append(counts_table(facts.grades.shown, labels, "training labels"))
    yield Section("data", "Data", text=text, facts=known, tables=tables)
    yield provenance_section(facts, record.metrics)
