"""Tables of the runs that ``recipe_on_features.py`` and ``evidence/recipe_on_images.py`` write."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

SHOWN = (("mae", "median"), ("macro_f1", "argmax"), ("accuracy", "argmax"), ("qwk", "expected"))


def show(files: list[Path]) -> None:
    """MAE, macro-F1, accuracy and QWK by method and case: means over folds and seeds, each by the
    decoding that suits it (median, argmax, argmax, expected). The mean of a method's networks
    decides, one network as it is."""
    runs = pd.concat([pd.read_csv(file) for file in files]).drop_duplicates(
        ["set", "noise", "fold", "seed", "method"]
    )
    runs["case"] = runs["set"] + ", " + runs["noise"]
    cases, methods = list(dict.fromkeys(runs["case"])), list(dict.fromkeys(runs["method"]))
    print(
        "| method (told) | " + " | ".join(f"{case} ({_runs(runs, case)})" for case in cases) + " |"
    )
    print("|---" * (len(cases) + 1) + "|")
    for method in methods:
        own = runs[runs["method"] == method]
        cells = [_cell(own[own["case"] == case]) for case in cases]
        print(f"| {method} ({own['told'].iloc[0]}) | " + " | ".join(cells) + " |")


def _runs(runs: pd.DataFrame, case: str) -> int:
    return int(runs[runs["case"] == case].groupby("method").size().max())


def _cell(rows: pd.DataFrame) -> str:
    if not len(rows):
        return "–"
    return " / ".join(
        f"{rows[f'{name} {decoding} ensemble'].mean():.3f}" for name, decoding in SHOWN
    )
