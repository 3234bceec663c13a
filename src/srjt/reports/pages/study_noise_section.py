"""The noise on the page of a study: how much was injected, and which rate the methods used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from srjt.noise.matrices import ILL_CONDITIONED
from srjt.reports.figures.method_curves import study_noises
from srjt.reports.figures.study_figures import noise_matrix
from srjt.reports.noise_names import noise_name
from srjt.reports.pages.html import Section
from srjt.reports.tables.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.noise_spec import parse_noise
from srjt.studies.paper import display_name

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

__all__ = ["noise_section"]

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
