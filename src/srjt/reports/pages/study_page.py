"""The page of a study."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from srjt.errors import SrjtError, count_of
from srjt.noise.matrices import ILL_CONDITIONED
from srjt.reports.figures.ablation_figures import ablation_figures
from srjt.reports.figures.method_curves import study_noises
from srjt.reports.figures.study_figures import mae_against_rate, noise_figures
from srjt.reports.noise_names import noise_name
from srjt.reports.pages.html import Note, Page, Section
from srjt.reports.pages.settings import settings_section
from srjt.reports.pages.study_noise_section import noise_section
from srjt.reports.tables.naive import no_better_than_naive, with_naive_rows
from srjt.reports.tables.statistics import METRIC_NAMES, PAPER_METRICS
from srjt.reports.tables.study_tables import networks_phrase, study_tables
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER, size_ratio
from srjt.studies.paper import display_name

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = ["read_size_ratio", "study_notes", "study_page"]

MAX_TRACEBACKS = 20
MAX_NAIVE_NOTES = 4
MAX_TRACEBACK = 6000  # characters; the end of a traceback has the error
STATUSES = {"done": "done", "running": "running", "failed": "failed", "left": "not started"}


def study_page(results: StudyResults, *, metrics: Sequence[str] = PAPER_METRICS) -> Page:
    """The page of a study, finished or not."""
    sections = [
        _data(results),
        _tables(results, metrics),
        _figures(results),
        noise_section(results),
        _runs(results),
        _reproduce(results.facts),
    ]
    return Page(
        kind="Study",
        title=str(results.facts.get("name") or results.folder.name or "Study"),
        lead=_lead(results),
        notes=study_notes(results),
        sections=[s for s in sections if s is not None],
    )


def _lead(results: StudyResults) -> str:
    facts, runs = results.facts, results.runs
    parts = (
        count_of(runs["method"].nunique(), "method"),
        count_of(runs["noise"].nunique(), "noise"),
        count_of(runs["fold"].nunique(), "fold"),
        count_of(len(facts.get("seeds", [0])), "seed"),
    )
    status = Counter(runs["status"])
    if not len(runs):
        return "No runs are planned."
    if len(runs) == status["done"] == 1:
        state = "the only run has finished"
    elif status["done"] == len(runs):
        state = f"all {len(runs):,} runs finished"
    else:
        state = f"{status['done']} of {count_of(len(runs), 'run')} finished"
    variants = runs.loc[runs["variant"] != "", ["method", "variant"]].drop_duplicates()
    and_variants = f" and {count_of(len(variants), 'variant')}" if len(variants) else ""
    return f"{parts[0]}{and_variants}, {', '.join(parts[1:-1])} and {parts[-1]}: {state}."


def study_notes(results: StudyResults) -> list[Note]:
    """What the reader should know first: failed and missing runs, doubtful settings."""
    facts, runs = results.facts, results.runs
    notes = []
    failed = runs[runs["status"] == "failed"]
    if len(failed):
        shown = failed.head(MAX_TRACEBACKS)
        more = f" The first {MAX_TRACEBACKS} are shown." if len(failed) > MAX_TRACEBACKS else ""
        notes.append(
            Note(
                text=f"{count_of(len(failed), 'run')} failed and {'is' if len(failed) == 1 else 'are'} missing from "
                f"tables and figures.{more}",
                details=[(_run_title(run), _tail(str(run["error"]))) for _, run in shown.iterrows()],
            )
        )
    status = Counter(runs["status"])
    if unfinished := status["left"] + status["running"]:
        running = f", {status['running']} of them running" if status["running"] else ""
        means = (
            " Means are over the finished runs only, so methods may not be comparable; tables mark means with "
            "missing runs."
        )
        notes.append(
            Note(
                text=f"The study is incomplete: {count_of(unfinished, 'run')} to finish{running}."
                + (means if status["done"] else "")
            )
        )
    if results.damaged:
        notes.append(
            Note(
                text="Facts about the noise are missing, because files are damaged.",
                details=[("Damaged files", "\n".join(results.damaged))],
            )
        )
    if status["done"] and "test" not in set(results.scores["split"]):
        notes.append(Note(text="The splits have no test side: there are no test results."))
    ill = results.noise[results.noise["condition_number"].astype(float) > ILL_CONDITIONED]
    if "garg" in set(runs["method"]) and len(ill):
        worst = ill.groupby("noise", sort=False)["condition_number"].max()
        which = "; ".join(f"{noise_name(str(noise))}: condition number {n:.0f}" for noise, n in worst.items())
        notes.append(
            Note(
                text=f"The noise matrix is nearly singular ({which}). Garg's loss inverts it, which amplifies "
                "random errors: these results do not show how good the method is."
            )
        )
    notes += _naive_notes(results)
    if facts.get("patients") is None:
        notes.append(
            Note(
                text="Patients are unknown: samples of one patient may be in both training and test data, which makes "
                "test results too good."
            )
        )
    if runs["fold"].nunique() == 1:
        spread = (
            "no standard deviation and no paired test"
            if runs["seed"].nunique() == 1
            else "standard deviations in tables are over seeds, and there is no paired test"
        )
        planned = int(facts["folds"])
        only = (
            "There is only one fold" if planned == 1 else f"Only one of {planned} folds is part of the study"
        )
        notes.append(Note(text=f"{only}: {spread}."))
    return notes


def _naive_notes(results: StudyResults) -> list[Note]:
    """Which methods do not beat one grade for all samples; a single note if these are many."""
    sentences = list(no_better_than_naive(results))
    if len(sentences) <= MAX_NAIVE_NOTES:
        return [Note(text=sentence) for sentence in sentences]
    return [
        Note(
            text=f"{len(sentences)} of the means in the tables do not beat a naive prediction.",
            details=[("Which", "\n".join(sentences))],
        )
    ]


def _data(results: StudyResults) -> Section:
    facts = results.facts
    counts = [int(n) for n in facts["class_counts"]]
    patients = facts.get("patients")
    folds, used = int(facts["folds"]), results.runs["fold"].nunique()
    split = count_of(folds, "fold") + (f", {used} of them used" if 0 < used < folds else "")
    known = [
        ("source", str(facts.get("source") or MISSING)),
        ("samples", f"{sum(counts):,}"),
        ("patients", "unknown" if patients is None else f"{patients:,}"),
        (
            "split",
            split + ("" if patients is None else ", each patient on one side only"),
        ),
    ]
    if facts.get("preset"):
        known.append(("preset", str(facts["preset"])))
    return Section(
        slug="data",
        heading="Data",
        facts=known,
        counts=[(str(grade), n) for grade, n in zip(facts["grades"], counts, strict=True)],
    )


def _tables(results: StudyResults, metrics: Sequence[str]) -> Section:
    tables = (
        with_naive_rows(
            study_tables(results, metrics=metrics, test_train_ratio=read_size_ratio(results.folder)),
            results.naive,
        )
        if "test" in set(results.scores["split"])
        else []
    )
    figures = [figure for noise in study_noises(results) for figure in ablation_figures(results, noise)]
    ablation = [table for table in tables if table.slug.startswith("ablation-")]
    paired = [table for table in tables if table.slug.startswith("paired-") or table.slug == "pooled"]
    shown, parts = tables, []
    if ablation or figures:  # the figures follow their table, so the tables after them need a heading
        parts.append(
            Section(slug="ablation", heading="Selection and updating", tables=ablation, figures=figures)
        )
        shown = [table for table in tables if table not in (*ablation, *paired)]
        if paired:
            parts.append(Section(slug="paired", heading="Paired comparison", tables=paired))
    return Section(
        slug="tables",
        heading="Results",
        text=[]
        if tables
        else ["There are no test results." if len(results.scores) else "No run has finished yet."],
        hint="Click the heading of a column to sort by it." if tables else "",
        tables=shown,
        parts=parts,
    )


def read_size_ratio(folder: Path) -> float | None:
    """Size of the test side over that of the training side, for the paired test; None without ``splits.csv``."""
    path = folder / "splits.csv"
    if not path.exists():
        return None
    try:
        return size_ratio(pd.read_csv(path, dtype={"id": str}))
    except (OSError, ValueError, KeyError) as problem:
        raise SrjtError(f"{path} is damaged or not from srjt ({problem}).") from None


def _figures(results: StudyResults) -> Section | None:
    parts = []
    for number, noise in enumerate(study_noises(results)):
        if figures := noise_figures(results, noise):
            parts.append(Section(slug=f"figures-{number}", heading=noise_name(noise), figures=figures))
    if figures := mae_against_rate(results):
        parts.append(Section(slug="figures-rate", heading="Error against noise rate", figures=figures))
    if not parts:
        return None
    return Section(slug="figures", heading="Figures", parts=parts)


def _runs(results: StudyResults) -> Section:
    test = results.scores[results.scores["split"] == "test"]
    values = {
        (key, metric): value
        for key, metric, value in zip(test["key"], test["metric"], test["value"], strict=True)
    }
    columns = (
        *(Column(name=n, label=n) for n in ("method", "noise")),
        *(Column(name=n, label=n, kind="number") for n in ("fold", "seed")),
        Column(name="status", label="status"),
        Column(name="minutes", label="minutes", kind="number"),
        *(_metric_column(metric) for metric in PAPER_METRICS),
    )
    rows = []
    for _, run in results.runs.iterrows():
        cells = [
            TableCell(text=display_name(run["method"], run["variant"])),
            TableCell(text=str(run["noise"])),
            TableCell(text=str(run["fold"]), value=float(run["fold"])),
            TableCell(text=str(run["seed"]), value=float(run["seed"])),
            TableCell(text=STATUSES.get(run["status"], str(run["status"]))),
            _minutes(float(run["seconds"])),
        ]
        cells += [_number(values.get((run["key"], metric)), "{:.3f}") for metric in PAPER_METRICS]
        rows.append(Row(cells=tuple(cells)))
    total = float(pd.to_numeric(results.runs["seconds"]).sum())
    table = Table(
        slug="runs",
        title="Every run",
        caption=f"Test side, mean over the last ten epochs (all, if fewer){networks_phrase(results.facts)}.",
        columns=columns,
        rows=tuple(rows),
    )
    text = f"{count_of(len(rows), 'run')}, {_duration(total) if total else 'no time'} of training in all."
    return Section(slug="runs", heading="Runs", text=[text], tables=[table], closed=True)


def _metric_column(metric: str) -> Column:
    better: Literal["higher", "lower"] = "lower" if metric in LOWER_IS_BETTER else "higher"
    return Column(name=metric, label=METRIC_NAMES[metric][0], kind="number", better=better)


def _reproduce(facts: dict[str, Any]) -> Section:
    known = [
        ("versions", ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items())),
        ("seeds", ", ".join(str(seed) for seed in facts.get("seeds", []))),
        ("hash of the splits", str(facts.get("splits_hash") or MISSING)),
    ]
    return Section(
        slug="reproduce",
        heading="Reproduce",
        text=[
            "The same command on the same data gives the same splits, the same injected noise and the same runs."
        ],
        code=str(facts.get("command") or ""),
        facts=known,
        parts=settings_section(facts.get("config", {})),
    )


def _run_title(run: Any) -> str:
    return f"{display_name(run['method'], run['variant'])}, {run['noise']}, fold {run['fold']}, seed {run['seed']}"


def _tail(text: str) -> str:
    return text if len(text) <= MAX_TRACEBACK else "… " + text[-MAX_TRACEBACK:]


def _minutes(seconds: float) -> TableCell:
    if 0 < seconds < 3:  # would be shown as 0.0
        return TableCell(text="< 0.1", value=seconds / 60)
    return _number(seconds / 60, "{:.1f}")


def _number(value: float | None, form: str) -> TableCell:
    if value is None or not math.isfinite(value):
        return TableCell(text=MISSING)
    return TableCell(text=form.format(value), value=float(value))


def _duration(seconds: float) -> str:
    if seconds < 100:
        return count_of(max(1, round(seconds)), "second")
    if seconds < 5400:
        return count_of(round(seconds / 60), "minute")
    return count_of(round(seconds / 3600), "hour")
