"""The page of a single run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt import methods
from srjt.data.grade_names import check_grade_names, display_grade
from srjt.errors import SrjtError, count_of
from srjt.noise.estimate import NoiseEstimate
from srjt.ordinal.baselines import NaiveBaseline
from srjt.ordinal.purpose import Purpose
from srjt.reports.figures.run_figures import combined_networks, run_figures
from srjt.reports.judged_sides import JudgedSide, judged_run
from srjt.reports.pages.answers_section import answers_section, examples_section
from srjt.reports.pages.calibration_section import calibration_section
from srjt.reports.pages.html import Note, Page, Section
from srjt.reports.pages.provenance_section import provenance_section
from srjt.reports.tables.statistics import METRIC_NAMES
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER
from srjt.studies.paper import display_name
from srjt.training.config import TrainConfig
from srjt.training.engine.starvation import STARVED
from srjt.training.record.baselines import compare_with_naive, run_baselines
from srjt.training.record.metrics_log import LAST, kept_epoch, last_epochs, read_metrics
from srjt.training.record.run_folder import RunFacts, read_facts, read_noise_estimate, read_summary
from srjt.training.resolve_noise import unknown_noise
from srjt.training.run_results import finished_metrics

__all__ = ["noise_section", "run_page", "starvation_note"]


def run_page(folder: Path, *, grade_names: Mapping[str, str] | None = None) -> Page:
    """The page of a run, finished or not. grade_names: instead of the run's own."""
    facts = read_facts(folder)
    if grade_names is not None:
        facts = replace(facts, grade_names=check_grade_names(grade_names, facts.grades))
    done = (folder / "summary.json").exists()  # the weights may have been deleted to save space
    metrics = finished_metrics(folder) if done else read_metrics(folder / "metrics.csv")
    pooled = facts.config.convention == "published-code"
    matrix, rate = _realised_noise(folder, facts)
    evaluated = _evaluated_against(metrics, rate)
    judged = _judged(folder) if done else None
    answers = [] if judged is None else _answers(judged, facts)
    figures = run_figures(
        metrics,
        grades=_shown_grades(facts),
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
            *filter(None, [starvation_note(metrics, _shown_grades(facts))]),
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
    grades = _shown_grades(facts)
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


def _shown_grades(facts: RunFacts) -> list[str]:
    return [display_grade(grade, facts.grade_names) for grade in facts.grades]


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
        counts=[(grade, int(n)) for grade, n in zip(_shown_grades(facts), counts, strict=True)]
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
