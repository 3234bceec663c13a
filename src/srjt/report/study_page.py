"""What a study's report says, in which order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from srjt.ordinal.noise import ILL_CONDITIONED
from srjt.report.figures import injected_matrix, mae_against_rate, noise_figures, noise_name, noises
from srjt.report.html import Note, Page, Section
from srjt.report.tables import PAPER_METRICS, study_tables
from srjt.report.typeset import MISSING, Cell, Column, Row, Table
from srjt.study.paper import display_name, read_noise

if TYPE_CHECKING:
    from srjt.study.results import StudyResults

__all__ = ["study_page"]

MOST = 20  # tracebacks shown
LONGEST = 6000  # letters of one: its end says what happened
STATUSES = {"done": "done", "running": "running", "failed": "failed", "left": "not begun"}


def study_page(results: StudyResults) -> Page:
    sections = [
        _data(results),
        _tables(results),
        _figures(results),
        _noise(results),
        _runs(results),
        _reproduce(results.facts),
    ]
    return Page(
        kind="Study",
        title=str(results.facts.get("name") or results.folder.name or "Study"),
        lead=_lead(results),
        notes=_notes(results),
        sections=[s for s in sections if s is not None],
    )


def _lead(results: StudyResults) -> str:
    facts, runs = results.facts, results.runs
    parts = (
        _count(runs["method"].nunique(), "method"),
        _count(runs["noise"].nunique(), "kind and rate of noise", "kinds and rates of noise"),
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


def _notes(results: StudyResults) -> list[Note]:
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
            )  # fmt: skip
        )
    if facts.get("patients") is None:
        notes.append(
            Note(
                text="Patients are unknown: images of one patient may be on both sides of a split, and the test "
                "results then are too good."
            )  # fmt: skip
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


def _tables(results: StudyResults) -> Section:
    tables = study_tables(results) if len(results.scores) else []
    text = "Click a column's heading to sort by it." if tables else "No run has finished yet."
    return Section(slug="tables", heading="Results", text=[text], tables=tables)


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
    rows = []
    for noise in noises(results):
        mine = results.noise[results.noise["noise"] == noise]
        rho, nominal, realised, condition = (
            pd.to_numeric(mine[name]).dropna()
            for name in ("rho", "nominal_rate", "realised_rate", "condition_number")
        )
        span = f" ({realised.min():.3f} … {realised.max():.3f})" if len(realised) > 1 else ""
        rows.append(
            Row(
                cells=(
                    Cell(text=noise_name(noise)),
                    _number(rho.mean(), "{:.3f}"),
                    _number(nominal.mean(), "{:.3f}"),
                    _number(realised.mean(), "{:.3f}" + span),
                    _number(condition.max(), "{:.1f}"),
                )
            )
        )
    table = Table(
        slug="noise",
        title="Share of wrong labels among the training samples",
        caption="Nominal: expected from the matrix on the training side's class mix, mean over folds. Realised: what "
        "the draws came to, mean over folds (smallest … largest). Condition number of the matrix: above "
        f"{ILL_CONDITIONED:.0f}, methods that invert it are unreliable.",
        columns=tuple(
            Column(name=label, label=label, kind="text" if label == "noise" else "number")
            for label in ("noise", "ρ", "nominal", "realised", "condition number")
        ),
        rows=tuple(rows),
    )
    text = [
        "Training and validation labels were corrupted, test labels never. All methods saw the same labels."
    ]
    if any(read_noise(noise)[0] == "none" for noise in noises(results)):
        text.append(
            "“Labels as given”: nothing was injected. Methods that need to know the noise were told the rate and "
            "the matrix below."
        )
    drawings = [injected_matrix(results, noise) for noise in noises(results)]
    return Section(
        slug="noise",
        heading="Noise",
        text=text,
        tables=[table],
        drawings=[d for d in drawings if d is not None],
    )


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
        *(
            Column(name=m, label=label, kind="number", better=better)
            for m, label, better in zip(
                PAPER_METRICS, ("accuracy", "MAE", "macro-F1"), ("higher", "lower", "higher"), strict=True
            )
        ),
    )
    rows = []
    for _, run in results.runs.iterrows():
        cells = [
            Cell(text=display_name(run["method"], run["variant"])),
            Cell(text=str(run["noise"])),
            Cell(text=str(run["fold"]), value=float(run["fold"])),
            Cell(text=str(run["seed"]), value=float(run["seed"])),
            Cell(text=STATUSES.get(run["status"], str(run["status"]))),
            _number(float(run["seconds"]) / 60, "{:.1f}"),
        ]
        cells += [_number(values.get((run["key"], metric)), "{:.3f}") for metric in PAPER_METRICS]
        rows.append(Row(cells=tuple(cells)))
    total = float(pd.to_numeric(results.runs["seconds"]).sum())
    table = Table(
        slug="runs",
        title="Every run",
        caption="Test side, mean over the last ten epochs and the networks.",
        columns=columns,
        rows=tuple(rows),
    )
    text = f"{_count(len(rows), 'run')}, {_duration(total)} of training in all."
    return Section(slug="runs", heading="Runs", text=[text], tables=[table], closed=True)


def _reproduce(facts: dict[str, Any]) -> Section:
    known = [
        ("versions", ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items())),
        ("seeds", ", ".join(str(seed) for seed in facts.get("seeds", []))),
        ("hash of the splits", str(facts.get("splits_hash") or MISSING)),
        *settings(facts.get("config", {})),
    ]
    return Section(
        slug="reproduce",
        heading="Reproduce",
        text=[
            "The same command on the same data gives the same splits, the same wrong labels and the same runs."
        ],
        code=str(facts.get("command") or ""),
        facts=known,
    )


def settings(config: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), str(value)) for name, value in config.items() if value is not None]


def _who(run: Any) -> str:
    return f"{display_name(run['method'], run['variant'])}, {run['noise']}, fold {run['fold']}, seed {run['seed']}"


def _end_of(text: str) -> str:
    return text if len(text) <= LONGEST else "… " + text[-LONGEST:]


def _number(value: float | None, form: str) -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(text=MISSING)
    return Cell(text=form.format(value), value=float(value))


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _duration(seconds: float) -> str:
    if seconds < 5400:
        return _count(round(seconds / 60), "minute")
    return _count(round(seconds / 3600), "hour")
