"""What a study's report says, in which order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from srjt import methods
from srjt.errors import SrjtError
from srjt.noise.matrices import ILL_CONDITIONED
from srjt.reports.figures.ablation_figures import ablation_figures
from srjt.reports.figures.method_curves import noise_name, noises
from srjt.reports.figures.study_figures import injected_matrix, mae_against_rate, noise_figures
from srjt.reports.pages.html import Note, Page, Section
from srjt.reports.tables.study_tables import METRIC_NAMES, PAPER_METRICS, study_tables
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.noise_spec import parse_noise
from srjt.studies.paired_tests import LOWER_IS_BETTER, size_ratio
from srjt.studies.paper import display_name, is_recipe

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = ["settings", "study_notes", "study_page"]

MOST = 20  # tracebacks shown
LONGEST = 6000  # letters of one: its end says what happened
STATUSES = {"done": "done", "running": "running", "failed": "failed", "left": "not begun"}


def study_page(results: StudyResults, *, metrics: Sequence[str] = PAPER_METRICS) -> Page:
    sections = [
        _data(results),
        _tables(results, metrics),
        _figures(results),
        _noise(results),
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
        _count(runs["method"].nunique(), "method"),
        _count(runs["noise"].nunique(), "noise"),
        _count(runs["fold"].nunique(), "fold"),
        _count(len(facts.get("seeds", [0])), "seed"),
    )
    status = Counter(runs["status"])
    if status["done"] == len(runs):
        state = f"all {_count(len(runs), 'run')} finished"
    else:
        state = f"{status['done']} of {_count(len(runs), 'run')} finished"
    variants = runs.loc[runs["variant"] != "", ["method", "variant"]].drop_duplicates()
    also = f" and {_count(len(variants), 'variant')} for the ablation" if len(variants) else ""
    return f"{parts[0]}{also}, {', '.join(parts[1:-1])} and {parts[-1]}: {state}."


def study_notes(results: StudyResults) -> list[Note]:
    facts, runs = results.facts, results.runs
    notes = []
    failed = runs[runs["status"] == "failed"]
    if len(failed):
        shown = failed.head(MOST)
        more = f" The first {MOST} are shown." if len(failed) > MOST else ""
        notes.append(
            Note(
                text=f"{_count(len(failed), 'run')} failed and {'is' if len(failed) == 1 else 'are'} missing from "
                f"tables and figures.{more}",
                details=[(_who(run), _end_of(str(run["error"]))) for _, run in shown.iterrows()],
            )
        )
    status = Counter(runs["status"])
    if unfinished := status["left"] + status["running"]:
        under_way = f", {status['running']} of them under way" if status["running"] else ""
        notes.append(
            Note(
                text=f"The study is incomplete: {_count(unfinished, 'run')} to finish{under_way}. Means are over the "
                "finished runs only, which may make methods incomparable; tables mark them."
            )
        )
    ill = results.noise[results.noise["condition_number"].astype(float) > ILL_CONDITIONED]
    if "garg" in set(runs["method"]) and len(ill):
        worst = ill.groupby("noise", sort=False)["condition_number"].max()
        which = "; ".join(f"{noise_name(str(noise))}: condition number {n:.0f}" for noise, n in worst.items())
        notes.append(
            Note(
                text=f"The noise matrix is nearly singular ({which}). Garg's loss inverts it, which amplifies "
                "chance: do not read its results there as a verdict on the method."
            )
        )
    if facts.get("patients") is None:
        notes.append(
            Note(
                text="Patients are unknown: images of one patient may be on both sides of a split, and the test "
                "results then are too good."
            )
        )
    if runs["fold"].nunique() == 1:
        notes.append(Note(text="There is one fold only: no spread, and no paired test."))
    return notes


def _data(results: StudyResults) -> Section:
    facts = results.facts
    counts = [int(n) for n in facts["class_counts"]]
    patients = facts.get("patients")
    known = [
        ("source", str(facts.get("source") or MISSING)),
        ("images", f"{sum(counts):,}"),
        ("patients", "unknown" if patients is None else f"{patients:,}"),
        ("split", f"{facts.get('folds')} folds" + ("" if patients is None else ", no patient on two sides")),
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
        study_tables(results, metrics=metrics, test_train_ratio=ratio_of_sides(results.folder))
        if len(results.scores)
        else []
    )
    why = [drawing for noise in noises(results) for drawing in ablation_figures(results, noise)]
    ablation = [table for table in tables if table.slug.startswith("ablation-")]
    paired = [table for table in tables if table.slug.startswith("paired-")]
    shown, parts = tables, []
    if ablation or why:  # its figures stand right below it, and what follows needs a heading of its own
        parts.append(
            Section(slug="ablation", heading="Selection and updating", tables=ablation, drawings=why)
        )
        shown = [table for table in tables if table not in (*ablation, *paired)]
        if paired:
            parts.append(Section(slug="paired", heading="Paired comparison", tables=paired))
    return Section(
        slug="tables",
        heading="Results",
        text=[] if tables else ["No run has finished yet."],
        hint="Click a column's heading to sort by it." if tables else "",
        tables=shown,
        parts=parts,
    )


def ratio_of_sides(folder: Path) -> float | None:
    """Test over training size as it was, for the paired test; None where the splits are not at hand."""
    path = folder / "splits.csv"
    if not path.exists():
        return None
    try:
        return size_ratio(pd.read_csv(path, dtype={"id": str}))
    except (OSError, ValueError, KeyError) as problem:
        raise SrjtError(f"{path} is damaged or not from srjt ({problem}).") from None


def _figures(results: StudyResults) -> Section | None:
    parts = []
    for number, noise in enumerate(noises(results)):
        drawings = noise_figures(results, noise)
        if drawings:
            parts.append(Section(slug=f"figures-{number}", heading=noise_name(noise), drawings=drawings))
    if against := mae_against_rate(results):
        parts.append(Section(slug="figures-rate", heading="Error against noise rate", drawings=against))
    if not parts:
        return None
    return Section(slug="figures", heading="Figures", parts=parts)


def _noise(results: StudyResults) -> Section:
    shown = {"rho": "ρ", "given_rate": "given to methods", "estimated_rate": "estimated", "nominal_rate": "nominal",
             "realised_rate": "realised", "condition_number": "condition number"}  # fmt: skip
    shown = {name: label for name, label in shown.items() if name in results.noise}
    estimated = "estimated_rate" in shown and bool(results.noise["estimated_rate"].notna().any())
    if not estimated:
        shown.pop("estimated_rate", None)
    elif "given_rate" in shown and results.noise["given_rate"].isna().all():
        shown.pop("given_rate")  # what was estimated is what methods were told
    rows = []
    for noise in noises(results):
        mine = results.noise[results.noise["noise"] == noise]
        cells = [TableCell(text=noise_name(noise))]
        for name in shown:
            values = pd.to_numeric(mine[name]).dropna()
            form = "{:.1f}" if name == "condition_number" else "{:.3f}"
            if name == "realised_rate" and len(values) > 1:
                form += f" ({values.min():.3f} … {values.max():.3f})"
            cells.append(_number(values.mean(), form))
        rows.append(Row(cells=tuple(cells)))
    table = Table(
        slug="noise",
        title="Share of wrong labels among the training samples",
        caption="Nominal: expected from the matrix on the training side's class mix, mean over folds. Realised: what "
        "the draws came to, mean over folds (smallest … largest). Condition number of the matrix: above "
        f"{ILL_CONDITIONED:.0f}, methods that invert it are unreliable.",
        columns=(
            Column(name="noise", label="noise"),
            *(Column(name=name, label=label, kind="number") for name, label in shown.items()),
        ),
        rows=tuple(rows),
    )
    given = [parse_noise(noise).kind == "none" for noise in noises(results)]
    text = ["All methods saw the same labels."]
    if estimated:
        who = (
            "Those that need to know the noise"
            if "given_rate" not in shown
            else "Those that are not told a rate"
        )
        text.append(f"{who} were told what was estimated from the training labels.")
        text += _raised(results)
    if not all(given):
        text.insert(0, "Training and validation labels were corrupted, test labels never.")
    if any(given):
        text.append(
            "“Labels as given”: nothing was injected. Methods that need to know the noise were told the rate and "
            "the matrix below."
        )
    text = [" ".join(text)]
    drawings = [injected_matrix(results, noise) for noise in noises(results)]
    return Section(
        slug="noise",
        heading="Noise",
        text=text,
        tables=[table],
        drawings=[d for d in drawings if d is not None],
    )


def _raised(results: StudyResults) -> list[str]:
    """Of each recipe that takes low estimates for more."""
    names = [str(name) for name in results.runs["method"].unique() if is_recipe(str(name))]
    rates = {name: methods.lookup(name).recipe.least_rate for name in names}
    return [
        f"{name} took less than {rate:g} for {rate:g} where the estimate was doubtful: its run.json says what it used."
        for name, rate in rates.items()
        if rate > 0
    ]


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
            _number(float(run["seconds"]) / 60, "{:.1f}"),
        ]
        cells += [_number(values.get((run["key"], metric)), "{:.3f}") for metric in PAPER_METRICS]
        rows.append(Row(cells=tuple(cells)))
    total = float(pd.to_numeric(results.runs["seconds"]).sum())
    table = Table(
        slug="runs",
        title="Every run",
        caption="Test side, mean over the last ten epochs (all, if fewer) and the networks.",
        columns=columns,
        rows=tuple(rows),
    )
    text = f"{_count(len(rows), 'run')}, {_duration(total)} of training in all."
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
            "The same command on the same data gives the same splits, the same wrong labels and the same runs."
        ],
        code=str(facts.get("command") or ""),
        facts=known,
        parts=settings(facts.get("config", {})),
    )


def settings(config: Mapping[str, Any]) -> list[Section]:
    """What the networks were trained with, as far as it was written down."""
    known = [(name.replace("_", " "), str(v)) for name, v in config.items() if v not in (None, {}, [])]
    return [Section(slug="settings", heading="Settings", facts=known)] if known else []


def _who(run: Any) -> str:
    return f"{display_name(run['method'], run['variant'])}, {run['noise']}, fold {run['fold']}, seed {run['seed']}"


def _end_of(text: str) -> str:
    return text if len(text) <= LONGEST else "… " + text[-LONGEST:]


def _number(value: float | None, form: str) -> TableCell:
    if value is None or not math.isfinite(value):
        return TableCell(text=MISSING)
    return TableCell(text=form.format(value), value=float(value))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _duration(seconds: float) -> str:
    if seconds < 5400:
        return _count(round(seconds / 60), "minute")
    return _count(round(seconds / 3600), "hour")
