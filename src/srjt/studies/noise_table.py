"""The noises of a study, one row per noise, fold and seed: injected, given and estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from srjt.errors import SrjtError
from srjt.files import read_json
from srjt.noise.estimate import NoiseEstimate
from srjt.studies.folder import NoiseRow

__all__ = ["read_noise_table"]

NOISE_COLUMNS = [
    "noise",
    "kind",
    "fold",
    "seed",
    "rho",
    "given_rate",
    "estimated_rate",
    "nominal_rate",
    "realised_rate",
    "condition_number",
    "realised_matrix",
    "matrix",
    "matrix_estimated",
]


def read_noise_table(
    folder: Path,
    facts: dict[str, Any],
    estimates: dict[tuple[str, int, int], NoiseEstimate],
    *,
    given_used: bool,
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The noises, and a sentence for each file that cannot be read.

    estimates: (noise, fold, seed) → the noise estimate that the methods made. given_used: whether a method uses the
    noise that the study knows.
    """
    noises = facts["noises"]
    rows, damaged = [], []
    for path in sorted((folder / "noise").glob("*.json")):
        try:
            row = read_json(path, NoiseRow, advice="run the command of the study again to write it anew")
        except SrjtError as problem:
            damaged.append(str(problem))
            continue
        if row.noise not in noises:  # of an earlier plan
            continue
        estimate = estimates.get((row.noise, row.fold, row.seed))
        if estimate is not None and not estimate.informed:
            estimate = None  # of networks that know nothing: it is none, here as in run.json
        matrix = None if estimate is None else estimate.transition.tolist()
        given_matrix = row.told_matrix if given_used or row.kind != "none" else None
        rows.append(
            {
                **row.model_dump(),
                "given_rate": row.told_rate if given_used else None,
                "estimated_rate": None if estimate is None else estimate.rate,
                "matrix": given_matrix or matrix,
                "matrix_estimated": given_matrix is None and matrix is not None,
            }
        )
    rows.sort(key=lambda row: (noises.index(row["noise"]), row["seed"], row["fold"]))
    return pd.DataFrame(rows, columns=NOISE_COLUMNS), tuple(damaged)
