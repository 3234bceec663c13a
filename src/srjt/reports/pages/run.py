"""The page of a single run, finished or still in training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt import methods
from srjt.errors import SrjtError, count_of, duration
from srjt.inference.answers import probabilities_of
from srjt.inference.calibrate import side_recalibration
from srjt.methods.registry import lookup
from srjt.noise.estimate import NoiseEstimate
from srjt.ordinal import Purpose
from srjt.ordinal.calibration import calibration_bins, expected_calibration_error
from srjt.ordinal.metrics import NaiveBaseline, naive_baseline
from srjt.reports.figures.canvas import CaptionedFigure, Curve, chart, mean_over_networks
from srjt.reports.figures.results import combined_networks, reliability_figure, run_figures
from srjt.reports.figures.study import describe_ends
from srjt.reports.page import Note, Page, Section
from srjt.reports.pages.answers import answers_section, examples_section
from srjt.reports.run_summary import JudgedSide, judged_run
from srjt.reports.sections import provenance_section
from srjt.reports.statistics import METRIC_NAMES
from srjt.reports.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER
from srjt.studies.results import display_name
from srjt.training.checkpoint import HEADER, LAST, kept_epoch, last_epochs, read_metrics
from srjt.training.config import TrainConfig
from srjt.training.folder import (
    RunFacts,
    compare_with_naive,
    read_facts,
    read_held_out,
    read_noise_estimate,
    read_summary,
    run_baselines,
)
from srjt.training.loop import STARVED
from srjt.training.single_run import finished_metrics
from srjt.training.train import unknown_noise

# Whether the probabilities of a run mean what they say, before and after recalibration.


def calibration_section(folder: Path, facts: RunFacts) -> Section | None:
    """Reliability diagrams on the test side, else on the validation side; None for a run without either."""
    if facts.config.method not in methods.names():  # a plug-in that is not installed
        return None
    networks = methods.lookup(facts.config.method).method.networks
    sides = read_held_out(folder, networks=networks, classes=len(facts.grades))
    shown = next((name for name in ("test", "validation") if name in sides), None)
    if shown is None:
        return None
    side = sides[shown]
    truth = side.true_labels if shown == "test" else None  # as the scores of this side
    labels = side.labels if truth is None else truth
    p = probabilities_of(side.probabilities, "ensemble").astype(np.float64)
    found = side_recalibration(
        sides.get("validation"), config=facts.config, estimate=read_noise_estimate(folder)
    )
    panels = {"As the networks give them": p} if found is None else {"Before": p, "After": found(p)}
    errors = {name: expected_calibration_error(q, labels) for name, q in panels.items()}
    which = "true grades" if truth is not None else "given labels"
    caption = (
        f"Reliability on the {shown} side, compared with the {which}. Larger points stand for more samples."
    )
    text = ["The probabilities are not recalibrated."]
    if found is not None:
        text = [
            f"srjt predict recalibrates the probabilities on {found.samples:,} samples of the validation side: {found}."
        ]
        if shown == "validation":
            caption += " The recalibration was fitted to the same samples."
    figure = CaptionedFigure(
        name="reliability",
        figure=reliability_figure({title: calibration_bins(q, labels) for title, q in panels.items()}),
        caption=caption,
        alt="Reliability diagram. " + " ".join(f"{n}: calibration error {e:.3f}." for n, e in errors.items()),
    )
    known = [
        ("calibration error" if found is None else f"calibration error {name.lower()}", f"{error:.3f}")
        for name, error in errors.items()
    ]
    return Section(slug="calibration", heading="Calibration", text=text, facts=known, figures=[figure])


# The page of a single run.


def run_page(folder: Path, *, grade_names: Mapping[str, str] | None = None) -> Page:
    """The page of a run, finished or not. grade_names: instead of the run's own."""
    facts = read_facts(folder)
    facts = replace(facts, grades=facts.grades.named(grade_names))
    done = (folder / "summary.json").exists()  # the weights may have been deleted to save space
    metrics = finished_metrics(folder) if done else read_metrics(folder / "metrics.csv")
    pooled = facts.config.convention == "published-code"
    matrix, rate = _realised_noise(folder, facts)
    evaluated = _evaluated_against(metrics, rate)
    judged = _judged(folder) if done else None
    answers = [] if judged is None else _answers(judged, facts)
    figures = run_figures(
        metrics,
        grades=facts.grades.shown,
        noise_rate=rate,
        # the answers have a matrix that counts every sample once
        confusion=_confusion(folder) if done and not answers else None,
        noise_matrix=matrix,
        pooled=pooled,
        note=evaluated,
    )
    naive = run_baselines(folder) if done else {}
    sections = [
        _data(facts, rate),
        noise_section(facts),
        *answers,
        _scores(metrics, pooled=pooled, note=evaluated, naive=naive),
    ]
    if figures:
        sections.append(Section(slug="figures", heading="Figures", figures=figures))
    sections += [
        calibration_section(folder, facts) if done else None,
        provenance_section(facts, metrics, unused=_unused(facts)),
    ]
    return Page(
        kind="Run",
        title=folder.resolve().name,
        lead=_lead(facts, metrics, done=done, estimate=read_noise_estimate(folder)),
        notes=[
            *_notes(facts, done=done),
            *_naive_notes(judged, metrics, pooled=pooled, naive=naive, purpose=facts.config.optimise),
            *filter(None, [starvation_note(metrics, facts.grades.shown)]),
        ],
        sections=[section for section in sections if section is not None],
    )


def _judged(folder: Path) -> JudgedSide | None:
    """The answers of srjt predict on the test side, else on the validation side; None if they are not known."""
    try:
        found = judged_run(folder)
    except SrjtError:  # weights of your own network, or a method that is not installed
        return None
    return None if found is None else found[1].get("test") or found[1].get("validation")


def _answers(judged: JudgedSide, facts: RunFacts) -> list[Section | None]:
    """What these answers are worth, and examples with images."""
    grades = facts.grades.shown
    return [answers_section(judged, grades=grades), examples_section(judged, grades=grades)]


def starvation_note(
    metrics: pd.DataFrame, grades: Sequence[str], *, when: str = "At the end of the training"
) -> Note | None:
    """A note if the selection hardly kept a grade in the last epoch. when: what that epoch is."""
    kept = metrics[(metrics["split"] == "train") & metrics["metric"].str.fullmatch(r"kept(\[\d+\])?")]
    last = kept[kept["epoch"] == kept["epoch"].max()]
    overall = last.loc[last["metric"] == "kept", "value"]
    if overall.empty:
        return None
    shares = last[last["metric"] != "kept"].groupby("metric")["value"].min()
    starved = [
        grade
        for c, grade in enumerate(grades)
        if shares.get(f"kept[{c}]", 1.0) < STARVED * float(overall.iloc[0])
    ]
    if not starved:
        return None
    return Note(
        text=f"{when} the selection hardly kept samples of grade "
        f"{', '.join(starved)}: the networks "
        "were unlearning it. Try per_class, a slower ramp (ramp_epochs) or a smaller noise_rate."
    )


def _lead(facts: RunFacts, metrics: pd.DataFrame, *, done: bool, estimate: NoiseEstimate | None) -> str:
    reached = 0 if metrics.empty else int(metrics["epoch"].max())
    planned = facts.config.epochs
    epochs = count_of(reached, "epoch") if done else f"{reached} of {count_of(planned, 'epoch')} so far"
    network = "your own network" if facts.own_network else facts.config.network
    noise = _noise_used(facts.config, estimate, record=facts.noise or {})
    return f"{display_name(facts.config.method)} on {network}, {epochs}{noise and f'; {noise}'}."


def _needs(config: TrainConfig) -> tuple[str, ...]:
    """What the method needs to know of the noise. A plug-in that is not installed may need anything."""
    known = config.method in methods.names()
    return methods.lookup(config.method).method.needs if known else ("noise_rate", "transition")


def _noise_used(
    config: TrainConfig, estimate: NoiseEstimate | None, *, record: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """The noise rate or matrix that the method used, and where it came from; empty if it used none.

    record: what the run recorded of it, empty for runs of earlier versions.
    """
    rate, needs, parts = config.noise_rate, _needs(config), []
    if estimate is None:
        readers = record.get("requested") == "auto"  # nothing was estimated: several readers told it
        assumed = isinstance(record.get("used"), float) and "noise_rate" not in needs
        if "noise_rate" in needs and isinstance(rate, float):
            parts.append(
                f"noise rate {rate:.2f} of the consensus grades, from the readers"
                if readers
                else f"given noise rate {rate:g}"
            )
        if "transition" in needs and config.transition is not None:
            if readers:
                parts.append("transition matrix from the readers")
            elif assumed:
                parts.append(f"given noise rate {record['used']:g}, errors by one grade assumed")
            else:
                parts.append("given transition matrix")
        return " and ".join(parts)
    if not estimate.informed:
        return unknown_noise(estimate)
    source = "estimated from the training labels"
    if estimate.identifiable is False:
        source += ", which do not determine it"
    if "noise_rate" in needs and isinstance(rate, float):
        same = math.isclose(rate, estimate.rate)
        parts.append(
            f"noise rate {rate:.2f}" + ("," if same else f" used, {estimate.rate:.2f}") + f" {source}"
        )
    elif "transition" in needs:
        parts.append(f"transition matrix {source}")
    if config.soft_labels == "estimated":
        parts.append(
            "soft labels from the same estimate" if parts else f"soft labels from the noise {source}"
        )
    return "; ".join(parts)


def _notes(facts: RunFacts, *, done: bool) -> list[Note]:
    notes = []
    if not done:
        notes.append(Note(text="The run has not finished: run the same command again to resume it."))
    sizes: dict[str, Any] = facts.data.get("samples", {})
    if sizes and not (sizes.get("validation") or sizes.get("test")):
        notes.append(Note(text="All samples were used for training: there is no test of the run."))
    elif sizes and not sizes.get("test"):
        notes.append(Note(text="There is no test side: all scores are those of the validation side."))
    return notes


def _naive_notes(
    judged: JudgedSide | None,
    metrics: pd.DataFrame,
    *,
    pooled: bool,
    naive: Mapping[str, NaiveBaseline],
    purpose: Purpose,
) -> Iterator[Note]:
    """A note if one grade for all samples scores as well as the answers of srjt predict.

    Without these: one for each side on which it scores as well as the networks' own grades, which the page shows.
    """
    if judged is not None:
        if judged.naive_warning:
            yield Note(text=judged.naive_warning)
        return
    averages = last_epochs(metrics, pooled=pooled)
    for side, baseline in naive.items():
        rows = averages[averages["split"] == side].set_index("metric")["value"]
        if purpose in rows.index:
            worse = compare_with_naive(
                f"the {side} side",
                "The networks' own grades do",
                score=float(rows[purpose]),
                naive=getattr(baseline, purpose),
                purpose=purpose,
            )
            if worse:
                yield Note(text=worse)


def _evaluated_against(metrics: pd.DataFrame, rate: float | None) -> str:
    """Which labels the scores refer to. Label precision is recorded only if the true grades are known."""
    sides = set(metrics["split"]) & {"validation", "test"}
    if not sides:
        return ""
    if "label_precision" not in set(metrics["metric"]):
        return "Scores compare predictions with the given labels; how many of them are wrong is not known."
    wrong = "" if rate is None else f"; {rate:.1%} of the training labels are wrong"
    if sides == {"test"}:
        return f"Scores compare predictions with the true grades{wrong}."
    if sides == {"validation"}:
        return f"Scores compare predictions with the given labels{wrong}."
    return f"Test scores compare predictions with the true grades, validation scores with the given labels{wrong}."


def _data(facts: RunFacts, rate: float | None) -> Section:
    samples: dict[str, Any] = facts.data.get("samples", {})
    known = [(f"{side} samples", f"{n:,}") for side, n in samples.items() if n]
    if isinstance(facts.data.get("patients"), int):
        known.append(("patients", f"{facts.data['patients']:,}"))
    if rate is not None:
        known.append(("wrong labels", f"{rate:.1%} of the training side"))
    counts = facts.data.get("class_counts") or []
    return Section(
        slug="data",
        heading="Data",
        text=["Training samples by label:"] if counts else [],
        facts=known,
        counts=[(grade, int(n)) for grade, n in zip(facts.grades.shown, counts, strict=True)]
        if counts
        else [],
    )


def noise_section(facts: RunFacts) -> Section | None:
    """The noise rate that was estimated and used, and why; runs of earlier versions did not record it."""
    noise = facts.noise
    if not isinstance(noise, dict) or noise.get("used") is None:
        return None
    known = [
        (name, f"{noise[name]:.3f}")
        for name in ("estimated", "used")
        if isinstance(noise.get(name), (int, float))
    ]
    return Section(slug="noise", heading="Noise rate", text=[str(noise.get("why", ""))], facts=known)


def _scores(
    metrics: pd.DataFrame, *, pooled: bool, note: str, naive: Mapping[str, NaiveBaseline]
) -> Section | None:
    averages = last_epochs(metrics, pooled=pooled)
    if averages.empty:
        return None
    numbers = zip(averages["split"], averages["metric"], averages["value"], averages["std"], strict=True)
    found = {(split, name): (float(value), float(std)) for split, name, value, std in numbers}
    sides = [side for side in ("test", "validation") if side in set(averages["split"])]
    epochs = metrics.loc[metrics["split"].isin(sides), "epoch"]
    kept = kept_epoch(metrics)
    last = epochs[epochs > epochs.max() - LAST].nunique() if kept is None else 1
    rows = []
    for name, (_, long_name) in METRIC_NAMES.items():
        cells = [TableCell(text=f"{long_name} {'↓' if name in LOWER_IS_BETTER else '↑'}")]
        for side in sides:
            value, std = found.get((side, name), (math.nan, math.nan))
            text = f"{value:.3f} ± {std:.3f}" if last > 1 else f"{value:.3f}"
            cells.append(
                TableCell(text=text, value=value) if math.isfinite(value) else TableCell(text=MISSING)
            )
        rows.append(Row(cells=tuple(cells)))
        if name in ("accuracy", "mae") and naive:
            title = {
                "accuracy": "… of the most frequent training label",
                "mae": "… of the median training label",
            }
            values = [getattr(naive[side], name) if side in naive else math.nan for side in sides]
            known_cells = (
                TableCell(text=f"{v:.3f}", value=v) if math.isfinite(v) else TableCell(text=MISSING)
                for v in values
            )
            rows.append(Row(cells=(TableCell(text=title[name]), *known_cells)))
    over = {"mean": " and the networks", "pooled": ", networks pooled"}.get(
        combined_networks(metrics, pooled), ""
    )
    averaged = f"Mean over the last {count_of(last, 'epoch')}{over}"
    if kept is not None:
        averaged = f"Epoch {kept}, the best on the validation side{over.replace(' and', '; mean over', 1)}"
    spread = "± is the standard deviation over those epochs, not over other data. " if last > 1 else ""
    table = Table(
        slug="scores",
        title=averaged,
        caption=f"{spread}{note}",
        columns=(
            Column(name="metric", label="metric"),
            *(Column(name=side, label=side, kind="number") for side in sides),
        ),
        rows=tuple(rows),
    )
    return Section(slug="results", heading="Results", tables=[table])


def _unused(facts: RunFacts) -> set[str]:
    """The settings that had no effect on this run."""
    config, unused = facts.config, set()
    if len(facts.data["in_shape"]) == 1:  # rows of features
        unused |= {"image_size", "crop", "resize", "flip", "pretrained"}
    needs = set(_needs(config))
    if "transition" in needs and (facts.noise or {}).get("used") is not None:
        needs = {"noise_rate"}  # the matrix follows from the rate, or from the estimate
    unused |= {"noise_rate", "transition"} - needs
    if config.reader_targets == "consensus":  # also of data with one reader
        unused |= {"reader_targets"}
    return unused if _uses_soft_labels(config) else unused | {"soft_labels"}


def _uses_soft_labels(config: TrainConfig) -> bool:
    if config.method not in methods.names():  # a plug-in that is not installed
        return True
    options = methods.options(config.method)
    given = {**methods.lookup(config.method).defaults, **config.method_options}
    return "label_matrix" in options and (
        "update" not in options or "soft" in (given.get("select"), given.get("update"))
    )


def _confusion(folder: Path) -> npt.NDArray[np.float64] | None:
    """(C, C) counts on the test side, the networks pooled; None if there are none."""
    counts = read_summary(folder).get("confusion", {}).get("test")
    return None if counts is None else np.asarray(counts, dtype=np.float64)[:-1].sum(axis=0)


def _realised_noise(folder: Path, facts: RunFacts) -> tuple[npt.NDArray[np.float64] | None, float | None]:
    """Training labels by true grade, (C, C) as shares of the rows, and the share of wrong ones; None if unknown."""
    path = folder / "history.csv"
    if not path.exists():
        return None, None
    try:
        history = pd.read_csv(path, dtype={"id": str})
    except (OSError, ValueError) as problem:
        raise SrjtError(f"{path} is damaged or not from srjt ({problem}).") from None
    if not {"grade", "true_grade"} <= set(history.columns) or history.empty:
        return None, None
    size = len(facts.grades)
    true, given = history["true_grade"].to_numpy(np.int64), history["grade"].to_numpy(np.int64)
    joint = np.bincount(true * size + given, minlength=size * size).reshape(size, size).astype(np.float64)
    sums = joint.sum(axis=1, keepdims=True)
    return np.divide(joint, sums, out=np.zeros_like(joint), where=sums > 0), float((true != given).mean())


# The page that shows a training while it runs: curves, the time that is left, messages.

REFRESH = 5  # seconds after which a browser loads the page again
RECENT = 5  # epochs whose mean time predicts the others'
MESSAGES = 30

State = Literal["training", "finished", "stopped"]


def live_page(
    folder: Path,
    *,
    state: State,
    messages: Sequence[str] = (),
    problem: str = "",
    show_test: bool = False,
    link: str = "",
) -> Page:
    """The page of a run in ``folder`` as it is now. Without ``show_test`` it has nothing of the test side.

    messages: what the training has said. problem: why it has stopped. link: the file of the report, beside the page.
    """
    facts = read_facts(folder)
    file = folder / "metrics.csv"
    metrics = read_metrics(file) if file.exists() else pd.DataFrame(columns=list(HEADER))
    grades = facts.grades.shown
    epoch = 0 if metrics.empty else int(metrics["epoch"].max())
    starved = starvation_note(metrics, grades, when=f"In epoch {epoch}")
    stopped = Note(text=f"The training has stopped. {problem} Run the same command again to resume it.")
    figures = _figures(metrics, facts, show_test=show_test)
    sections = [
        _progress(metrics, facts, state=state),
        Section(slug="curves", heading="Curves", figures=figures) if figures else None,
        noise_section(facts),
        Section(slug="messages", heading="Messages", text=list(messages[-MESSAGES:])) if messages else None,
    ]
    return Page(
        kind={"training": "Training", "finished": "Training, finished", "stopped": "Training, stopped"}[
            state
        ],
        title=folder.resolve().name,
        lead=_live_lead(facts, epoch, state=state),
        links=[("The report of the run", link)] if link else [],
        notes=[
            *([stopped] if state == "stopped" else []),
            *([starved] if starved else []),
            *(
                _live_naive_notes(folder, show_test=show_test)
                if state == "finished"
                else _naive_note_so_far(metrics, facts)
            ),
        ],
        sections=[section for section in sections if section is not None],
        refresh=REFRESH if state == "training" else 0,
    )


def _live_naive_notes(folder: Path, *, show_test: bool) -> list[Note]:
    """One for each side that is shown, if one grade for all samples scores as well as the answers of srjt predict."""
    try:
        found = judged_run(folder)
    except SrjtError:  # weights of your own network, or a method that is not installed
        return []
    sides = {} if found is None else found[1]
    shown = [judged for name, judged in sides.items() if show_test or name != "test"]
    return [Note(text=judged.naive_warning) for judged in shown if judged.naive_warning]


def _naive_note_so_far(metrics: pd.DataFrame, facts: RunFacts) -> list[Note]:
    """A note if one grade for all validation samples scores as well as the networks did in the last epoch."""
    if not (facts.data.get("samples") or {}).get("validation"):
        text = "There is no validation side: whether the run beats a naive prediction cannot be seen while it trains."
        return [Note(text=text)]
    pooled, naive = facts.config.convention == "published-code", _naive(facts)
    purpose = facts.config.optimise
    scores = mean_over_networks(metrics, split="validation", metric=purpose, pooled=pooled).dropna()
    if naive is None or scores.empty:
        return []
    own = "network's" if lookup(facts.config.method).networks == 1 else "networks'"
    who = f"After epoch {int(scores.index[-1])} the {own} own grades do"
    worse = compare_with_naive(
        "the validation side",
        who,
        score=float(scores.iloc[-1]),
        naive=getattr(naive, purpose),
        purpose=purpose,
    )
    return [Note(text=worse)] if worse else []


def _live_lead(facts: RunFacts, epoch: int, *, state: State) -> str:
    network = "your own network" if facts.own_network else str(facts.config.network)
    done = f"epoch {epoch} of {facts.config.epochs} is done" if epoch else "the first epoch has begun"
    if state == "finished":
        done = f"{count_of(epoch, 'epoch')} {'was' if epoch == 1 else 'were'} trained"
    return f"{display_name(facts.config.method)} on {network}: {done}."


def _progress(metrics: pd.DataFrame, facts: RunFacts, *, state: State) -> Section:
    known: list[tuple[str, str]] = []
    recorded = metrics[(metrics["split"] == "train") & (metrics["metric"] == "seconds")]
    seconds = recorded.sort_values("epoch")["value"].to_numpy(np.float64)
    text = []
    if len(seconds):
        each = float(seconds[-RECENT:].mean())
        known += [("an epoch takes", _brief(each)), ("time of all epochs", _brief(float(seconds.sum())))]
        left = facts.config.epochs - int(metrics["epoch"].max())
        if state == "training" and left > 0:
            known.append(("still to go", f"{_brief(left * each)}, if all epochs are trained"))
    if state == "training":
        text = [
            "The page is written again after an epoch, at most every few seconds, and a browser loads it by itself. If "
            "it is much older than an epoch takes, the training has stopped."
        ]
    speed = metrics[(metrics["split"] == "train") & (metrics["metric"] == "images_per_second")]
    if len(speed):
        known.append(("samples per second", f"{speed.sort_values('epoch')['value'].iloc[-1]:,.0f}"))
    for side, samples in (facts.data.get("samples") or {}).items():
        if samples:
            known.append((f"{side} samples", f"{samples:,}"))
    known.append(("written", datetime.now(timezone.utc).isoformat(" ", "seconds").replace("+00:00", " UTC")))
    return Section(slug="progress", heading="Progress", text=text, facts=known)


def _brief(seconds: float) -> str:
    return "less than 1 s" if seconds < 1 else f"about {duration(seconds)}"


def _figures(metrics: pd.DataFrame, facts: RunFacts, *, show_test: bool) -> list[CaptionedFigure]:
    pooled = facts.config.convention == "published-code"
    over = {"mean": ", mean over the networks", "pooled": ", networks pooled"}.get(
        combined_networks(metrics, pooled), ""
    )
    naive = _naive(facts)
    figures = []

    def curves(metric: str, splits: Sequence[str]) -> list[Curve]:
        found = []
        for split in splits:
            values = mean_over_networks(metrics, split=split, metric=metric, pooled=pooled).dropna()
            if len(values):
                x, y = values.index.to_numpy(np.float64), values.to_numpy(np.float64)
                found.append(Curve(name=split, x=x, y=y))
        return found

    def add(name: str, title: str, caption: str, shown: list[Curve], level: float | None, text: str) -> None:
        if shown:
            reference = None if level is None else (level, text)
            figures.append(
                CaptionedFigure(
                    name=name,
                    figure=chart(shown, xlabel="epoch", title=title, reference=reference),
                    caption=caption,
                    alt=f"{title} over epochs. {describe_ends(shown)}",
                )
            )

    sides = ["validation", *(["test"] if show_test else [])]
    line = "" if naive is None else " The line: {} for every validation sample."
    add(
        "mae",
        "Mean absolute error",
        f"MAE after each epoch{over}. Lower is better.{line.format('the median training label')}",
        curves("mae", sides),
        None if naive is None else naive.mae,
        "median label",
    )
    add(
        "accuracy",
        "Accuracy",
        f"Accuracy after each epoch{over}.{line.format('the most frequent training label')}",
        curves("accuracy", sides),
        None if naive is None else naive.accuracy,
        "most frequent label",
    )
    several = metrics.loc[metrics["metric"] == "loss", "network"].nunique() > 1
    caption = f"Mean loss of each epoch{', mean over the networks' if several else ''}."
    add("loss", "Training loss", caption, curves("loss", ["train"]), None, "")
    return figures


def _naive(facts: RunFacts) -> NaiveBaseline | None:
    """The naive baseline on the validation side; None where its labels are not recorded."""
    training, validation = (facts.data.get(name) for name in ("class_counts", "validation_counts"))
    if not training or not validation or not sum(training) or not sum(validation):
        return None
    return naive_baseline(training, validation)
