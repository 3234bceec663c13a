"""The page of a single run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt import methods
from srjt.errors import SrjtError
from srjt.noise.estimate import NoiseEstimate
from srjt.reports.figures.run_figures import run_figures
from srjt.reports.pages.html import Note, Page, Section
from srjt.reports.pages.settings import settings_section
from srjt.reports.tables.results import METRIC_NAMES
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER
from srjt.studies.paper import display_name
from srjt.training.config import TrainConfig
from srjt.training.record.metrics_log import LAST, last_epochs, read_metrics
from srjt.training.record.run_folder import RunFacts, is_finished, read_facts, read_noise_estimate

__all__ = ["run_page"]


def run_page(folder: Path) -> Page:
    """The page of a run, finished or not."""
    facts = read_facts(folder)
    metrics = read_metrics(folder / "metrics.csv")
    done = is_finished(folder)
    pooled = facts.config.convention == "published-code"
    matrix, rate = _realised_noise(folder, facts)
    evaluated = _evaluated_against(metrics, rate)
    figures = run_figures(
        metrics,
        grades=facts.grades,
        noise_rate=rate,
        confusion=_confusion(folder) if done else None,
        noise_matrix=matrix,
        pooled=pooled,
        note=evaluated,
    )
    sections = [_data(facts, rate), _noise(facts), _scores(metrics, pooled=pooled, note=evaluated)]
    if figures:
        sections.append(Section(slug="figures", heading="Figures", figures=figures))
    sections.append(_reproduce(facts))
    return Page(
        kind="Run",
        title=folder.resolve().name,
        lead=_lead(facts, metrics, done=done, estimate=read_noise_estimate(folder)),
        notes=_notes(metrics, done=done),
        sections=[section for section in sections if section is not None],
    )


def _lead(facts: RunFacts, metrics: pd.DataFrame, *, done: bool, estimate: NoiseEstimate | None) -> str:
    reached = 0 if metrics.empty else int(metrics["epoch"].max())
    epochs = f"{reached} epochs" if done else f"{reached} of {facts.config.epochs} epochs so far"
    network = "your own network" if facts.own_network else facts.config.network
    noise = _noise_used(facts.config, estimate)
    return f"{display_name(facts.config.method)} on {network}, {epochs}{noise and f'; {noise}'}."


def _noise_used(config: TrainConfig, estimate: NoiseEstimate | None) -> str:
    """The noise rate or matrix that the method used, and where it came from; empty if it needs none."""
    rate = config.noise_rate
    if estimate is not None and isinstance(rate, float):
        if math.isclose(rate, estimate.rate):
            return f"noise rate {rate:.2f}, estimated from the training labels"
        return f"noise rate {rate:.2f} used, {estimate.rate:.2f} estimated from the training labels"
    known = config.method in methods.names()
    needs = methods.lookup(config.method).method.needs if known else ("noise_rate", "transition")
    if "noise_rate" in needs and isinstance(rate, float):
        return f"given noise rate {rate:g}"
    if "transition" in needs and config.transition is not None:
        return "given transition matrix"
    return ""


def _notes(metrics: pd.DataFrame, *, done: bool) -> list[Note]:
    notes = []
    if not done:
        notes.append(Note(text="The run has not finished: run the same command again to resume it."))
    if not set(metrics["split"]) & {"validation", "test"}:
        notes.append(Note(text="All samples were used for training: there is no test of the run."))
    return notes


def _evaluated_against(metrics: pd.DataFrame, rate: float | None) -> str:
    """Which labels the scores refer to. Label precision is recorded only if the true grades are known."""
    if not set(metrics["split"]) & {"validation", "test"}:
        return ""
    if "label_precision" not in set(metrics["metric"]):
        return "Scores compare predictions with the given labels; how many of them are wrong is not known."
    wrong = "" if rate is None else f"; {rate:.1%} of the training labels are wrong"
    return f"Test scores compare predictions with the true grades, validation scores with the given labels{wrong}."


def _data(facts: RunFacts, rate: float | None) -> Section:
    samples: dict[str, Any] = facts.data.get("samples", {})
    known = [(f"{side} samples", f"{n:,}") for side, n in samples.items() if n]
    if rate is not None:
        known.append(("wrong labels", f"{rate:.1%} of the training side"))
    counts = facts.data.get("class_counts") or []
    return Section(
        slug="data",
        heading="Data",
        text=["Training samples by label:"] if counts else [],
        facts=known,
        counts=[(grade, int(n)) for grade, n in zip(facts.grades, counts, strict=True)] if counts else [],
    )


def _noise(facts: RunFacts) -> Section | None:
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


def _scores(metrics: pd.DataFrame, *, pooled: bool, note: str) -> Section | None:
    averages = last_epochs(metrics, pooled=pooled)
    if averages.empty:
        return None
    numbers = zip(averages["split"], averages["metric"], averages["value"], averages["std"], strict=True)
    found = {(split, name): (float(value), float(std)) for split, name, value, std in numbers}
    sides = [side for side in ("test", "validation") if side in set(averages["split"])]
    rows = []
    for name, (_, long_name) in METRIC_NAMES.items():
        cells = [TableCell(text=f"{long_name} {'↓' if name in LOWER_IS_BETTER else '↑'}")]
        for side in sides:
            value, std = found.get((side, name), (math.nan, math.nan))
            known = math.isfinite(value)
            cells.append(
                TableCell(text=f"{value:.3f} ± {std:.3f}", value=value) if known else TableCell(text=MISSING)
            )
        rows.append(Row(cells=tuple(cells)))
    table = Table(
        slug="scores",
        title=f"Mean over the last {min(LAST, int(metrics['epoch'].max()))} epochs and the networks",
        caption=f"± is the standard deviation over those epochs, not over other data. {note}",
        columns=(
            Column(name="metric", label="metric"),
            *(Column(name=side, label=side, kind="number") for side in sides),
        ),
        rows=tuple(rows),
    )
    return Section(slug="results", heading="Results", tables=[table])


def _reproduce(facts: RunFacts) -> Section:
    known = [("srjt", facts.version), ("data fingerprint", str(facts.data.get("fingerprint", "")))]
    settings = settings_section(facts.config.to_dict(), own_network=facts.own_network)
    return Section(slug="reproduce", heading="Reproduce", facts=known, parts=settings)


def _confusion(folder: Path) -> npt.NDArray[np.float64] | None:
    """(C, C) counts on the test side, the networks pooled; None if there are none."""
    path = folder / "summary.json"
    try:
        counts = json.loads(path.read_text()).get("confusion", {}).get("test")
        return None if counts is None else np.asarray(counts, dtype=np.float64)[:-1].sum(axis=0)
    except (OSError, ValueError, AttributeError, IndexError) as problem:
        raise SrjtError(f"{path} is damaged or not from srjt ({problem}).") from None


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
