"""The page of a study: tables, figures, the noise, every run, how to reproduce it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from srjt.errors import SrjtError, count_of, duration
from srjt.noise.matrices import ILL_CONDITIONED
from srjt.reports.figures.study import (
    ablation_figures,
    mae_against_rate,
    noise_figures,
    noise_matrix,
    study_noises,
)
from srjt.reports.page import Note, Page, Section
from srjt.reports.sections import settings_section
from srjt.reports.statistics import (
    METRIC_NAMES,
    PAPER_METRICS,
    no_better_than_naive,
    noise_name,
    with_naive_rows,
)
from srjt.reports.study_tables import networks_phrase, study_tables
from srjt.reports.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.config import parse_noise
from srjt.studies.paired_tests import LOWER_IS_BETTER, size_ratio
from srjt.studies.results import display_name

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

# The noise on the page of a study: how much was injected, and which rate the methods used.

COLUMNS = {
    "rho": "ρ",
    "given_rate": "given to methods",
    "estimated_rate": "estimated",
    "used_rate": "used after estimating",
    "nominal_rate": "nominal",
    "realised_rate": "realised",
    "condition_number": "condition number",
}
OPTIONAL = ("given_rate", "estimated_rate", "used_rate")  # only where a run has one
MAX_NAMES = 4


def noise_section(results: StudyResults) -> Section:
    """Each sentence and each column follows from what the runs used."""
    noise = _with_used_rates(results)
    columns = {
        name: label for name, label in COLUMNS.items() if name not in OPTIONAL or noise[name].notna().any()
    }
    table = Table(
        slug="noise",
        title="Share of wrong labels among the training samples",
        caption="Nominal: expected from the matrix and the class mix of the training side, mean over folds. Realised: "
        "the share after injection, mean over folds (smallest … largest). Condition number of the matrix: above "
        f"{ILL_CONDITIONED:.0f}, methods that invert it are unreliable.",
        columns=(
            Column(name="noise", label="noise"),
            *(Column(name=name, label=label, kind="number") for name, label in columns.items()),
        ),
        rows=tuple(
            _row(name, noise[noise["noise"] == name], list(columns)) for name in study_noises(results)
        ),
    )
    figures = [noise_matrix(results, name) for name in study_noises(results)]
    return Section(
        slug="noise",
        heading="Noise",
        text=[" ".join(_sentences(results, noise))],
        tables=[table],
        figures=[figure for figure in figures if figure is not None],
    )


def _with_used_rates(results: StudyResults) -> pd.DataFrame:
    """The noises with the rate that the runs used where they estimated one, if it is not the estimate itself."""
    noise = results.noise.reset_index(drop=True)
    noise = noise.assign(**{name: math.nan for name in OPTIONAL if name not in noise})
    runs = results.runs[results.runs["rate_source"] == "estimate"]
    used = runs.groupby(["noise", "fold", "seed"])["used_rate"].mean().rename("used_rate")
    noise = noise.drop(columns="used_rate").join(used, on=["noise", "fold", "seed"])
    same = (noise["used_rate"] - pd.to_numeric(noise["estimated_rate"])).abs() <= 1e-9
    return noise if (noise["used_rate"].notna() & ~same).any() else noise.assign(used_rate=math.nan)


def _row(name: str, noise: pd.DataFrame, columns: list[str]) -> Row:
    estimated = noise.get("matrix_estimated", pd.Series(False, index=noise.index)).astype(bool)
    given_matrix = bool((noise["matrix"].notna() & ~estimated).any())
    cells = [TableCell(text=noise_name(name))]
    for column in columns:
        values = pd.to_numeric(noise[column]).dropna()
        if column == "condition_number" and not given_matrix and parse_noise(name).kind == "none":
            values = values[:0]  # of a matrix that was given, but not used
        mean = float(values.mean())
        text = MISSING if math.isnan(mean) else f"{mean:.{1 if column == 'condition_number' else 3}f}"
        if column == "realised_rate" and len(values) > 1:
            text += f" ({values.min():.3f} … {values.max():.3f})"
        if column in ("estimated_rate", "used_rate") and len(noise) > 1:
            text = _by_fold(noise, column)
        cells.append(TableCell(text=text, value=None if math.isnan(mean) else mean))
    return Row(cells=tuple(cells))


def _by_fold(noise: pd.DataFrame, column: str) -> str:
    """Every rate with its fold, and its seed if there are several: an average would hide a fold that used none."""
    shown = []
    for row in noise.to_dict("records"):
        seed = f", seed {row['seed']}" if noise["seed"].nunique() > 1 else ""
        rate = MISSING if pd.isna(row[column]) else f"{row[column]:.3f}"
        shown.append(f"fold {row['fold']}{seed}: {rate}")
    return "; ".join(shown)


def _sentences(results: StudyResults, noise: pd.DataFrame) -> list[str]:
    """Which labels the methods saw, and where they got the noise rate from."""
    as_given = [name for name in study_noises(results) if parse_noise(name).kind == "none"]
    text = []
    if len(as_given) < len(study_noises(results)):
        text.append("Noise was injected into training and validation labels, never into test labels.")
    if results.runs["method"].nunique() > 1:
        text.append("All methods used the same labels.")
    text += _estimate_sentences(results, noise)
    if as_given:
        text.append("“Labels as given”: nothing was injected.")
        known = results.noise.loc[results.noise["noise"].isin(as_given), "given_rate"].notna().any()
        if known:
            text.append(f"{_who(results, 'given')} got the rate and the matrix below.")
        elif isinstance(rate := results.facts.get("study", {}).get("noise_rate"), float):
            text.append(f"No method used the given rate {rate:g}.")
    return text


def _estimate_sentences(results: StudyResults, noise: pd.DataFrame) -> list[str]:
    runs = results.runs[results.runs["rate_source"] == "estimate"]
    runs = runs.merge(noise[["noise", "fold", "seed", "estimated_rate"]], on=["noise", "fold", "seed"])
    runs = runs[runs["estimated_rate"].notna() | (runs["used_rate"] == 0)]
    if runs.empty:
        return []
    # resolve_noise takes no label to be wrong if the warm-up's networks know nothing
    unused = runs[(runs["used_rate"] == 0) & runs["estimated_rate"].isna()]
    who = _who(results, "estimate")
    if unused.empty:
        return [f"{who} used an estimate from the training labels."]
    folds = ", ".join(map(str, sorted(set(unused["fold"]))))
    where = f"fold{'s' * (unused['fold'].nunique() != 1)} {folds}"
    how_many = "" if len(unused) == len(runs) else f"In {len(unused)} of {len(runs)} runs ({where}) "
    sentence = (
        "the noise stayed unknown and no label was taken to be wrong: the short trainings had not learnt to "
    )
    sentence = f"{how_many}{sentence}tell the grades apart."
    what = "it" if who.endswith("rate") else "the noise rate"
    return [
        f"{who} estimated {what} from the training labels.",
        sentence[0].upper() + sentence[1:],
    ]


def _who(results: StudyResults, source: str) -> str:
    """The methods with this source of the rate; all that need the noise, if there is no other source."""
    runs = results.runs
    if set(runs["rate_source"]) <= {source, "none"}:
        return "Methods that need the noise rate" if source == "estimate" else "Methods that need the noise"
    chosen = runs.loc[runs["rate_source"] == source, ["method", "variant"]].drop_duplicates()
    names = [display_name(*row) for row in chosen.itertuples(index=False)]
    if len(names) > MAX_NAMES:
        return f"{len(names)} methods"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# The page of a study.

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
    text = f"{count_of(len(rows), 'run')}, {duration(total) if total else 'no time'} of training in all."
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
