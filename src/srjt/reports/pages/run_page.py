"""What the report of a single run says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError
from srjt.reports.figures.study_figures import run_figures
from srjt.reports.pages.html import Note, Page, Section
from srjt.reports.pages.study_page import settings
from srjt.reports.tables.study_tables import METRIC_NAMES
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER
from srjt.studies.paper import display_name
from srjt.training.record.metrics_log import LAST, last_epochs, read_metrics
from srjt.training.record.run_folder import RunFacts, is_finished, read_facts

__all__ = ["run_page"]


def run_page(folder: Path) -> Page:
    """A run, finished or under way."""
    facts = read_facts(folder)
    metrics = read_metrics(folder / "metrics.csv")
    done = is_finished(folder)
    pooled = facts.config.convention == "published-code"
    matrix, rate = _noise(folder, facts)
    reached = 0 if metrics.empty else int(metrics["epoch"].max())
    drawings = run_figures(
        metrics,
        grades=facts.grades,
        noise_rate=rate,
        confusion=_confusion(folder) if done else None,
        noise_matrix=matrix,
        pooled=pooled,
    )
    state = f"{reached} epochs" if done else f"{reached} of {facts.config.epochs} epochs so far"
    told = "" if facts.config.noise_rate is None else f"; told a noise rate of {facts.config.noise_rate:g}"
    notes = []
    if not done:
        notes.append(Note(text="The run has not finished: run the same command again to go on."))
    if not set(metrics["split"]) & {"validation", "test"}:
        notes.append(Note(text="All samples were trained on: there is nothing to judge the run by."))
    sections = [_data(facts, rate), _scores(metrics, pooled=pooled)]
    if drawings:
        sections.append(Section(slug="figures", heading="Figures", drawings=drawings))
    sections.append(_reproduce(facts))
    return Page(
        kind="Run",
        title=folder.resolve().name,
        lead=f"{display_name(facts.config.method)} on {facts.config.network}, {state}{told}.",
        notes=notes,
        sections=[section for section in sections if section is not None],
    )


def _data(facts: RunFacts, rate: float | None) -> Section:
    samples: dict[str, Any] = facts.data.get("samples", {})
    known = [(f"{name} images", f"{n:,}") for name, n in samples.items() if n]
    if rate is not None:
        known.append(("wrong labels", f"{rate:.1%} of the training side"))
    counts = facts.data.get("class_counts") or []
    return Section(
        slug="data",
        heading="Data",
        text=["Counted below: the training side, by the labels that were learnt from."] if counts else [],
        facts=known,
        counts=[(grade, int(n)) for grade, n in zip(facts.grades, counts, strict=True)] if counts else [],
    )


def _scores(metrics: pd.DataFrame, *, pooled: bool) -> Section | None:
    averages = last_epochs(metrics, pooled=pooled)
    if averages.empty:
        return None
    numbers = zip(averages["split"], averages["metric"], averages["value"], averages["std"], strict=True)
    found = {(split, name): (float(value), float(std)) for split, name, value, std in numbers}
    sides = [side for side in ("test", "validation") if side in set(averages["split"])]
    rows = []
    for name, (_, words) in METRIC_NAMES.items():
        cells = [TableCell(text=f"{words} {'↓' if name in LOWER_IS_BETTER else '↑'}")]
        for side in sides:
            value, std = found.get((side, name), (math.nan, math.nan))
            cells.append(
                TableCell(text=f"{value:.3f} ± {std:.3f}", value=value)
                if value == value
                else TableCell(text=MISSING)
            )
        rows.append(Row(cells=tuple(cells)))
    table = Table(
        slug="scores",
        title=f"Mean over the last {min(LAST, int(metrics['epoch'].max()))} epochs and the networks",
        caption="± the standard deviation over those epochs, which says nothing about other data. Validation labels "
        "are as noisy as those of training.",
        columns=(
            Column(name="metric", label="metric"),
            *(Column(name=side, label=side, kind="number") for side in sides),
        ),
        rows=tuple(rows),
    )
    return Section(slug="results", heading="Results", tables=[table])


def _reproduce(facts: RunFacts) -> Section:
    known = [("srjt", facts.version), ("data fingerprint", str(facts.data.get("fingerprint", "")))]
    return Section(slug="reproduce", heading="Reproduce", facts=known, parts=settings(facts.config.to_dict()))


def _confusion(folder: Path) -> npt.NDArray[np.float64] | None:
    """(C, C) counts on the test side, the single networks pooled; None where none were kept."""
    path = folder / "summary.json"
    try:
        counts = json.loads(path.read_text()).get("confusion", {}).get("test")
        return None if counts is None else np.asarray(counts, dtype=np.float64)[:-1].sum(axis=0)
    except (OSError, ValueError, AttributeError, IndexError) as problem:
        raise SrjtError(f"{path} is damaged or not from srjt ({problem}).") from None


def _noise(folder: Path, facts: RunFacts) -> tuple[npt.NDArray[np.float64] | None, float | None]:
    """The labels learnt from against the true grades, where those are known: (C, C) shares of rows, and the rate."""
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
