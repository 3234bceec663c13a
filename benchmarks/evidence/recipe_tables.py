"""The recipe against the other methods, from the stored runs of ``recipe_on_features`` and ``recipe_on_images``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.inference.compare import holm
from srjt.studies.paired_tests import corrected_t_test

CASES = {
    ("deepdrid", "truncated"): "DeepDRiD, truncated 0.4",
    ("deepdrid", "quasi"): "quasi 0.4",
    ("deepdrid", "boundary"): "at the boundary",
    ("deepdrid", "one-sided"): "one-sided",
    ("appareal", "vote"): "APPA-REAL, one vote",
    ("eyepacs", "as_it_is"): "EyePACS as it is",
}
# name in the files → what it is told, name on the page
METHODS = {
    "srjt": ("nothing", "`srjt`"),
    "standard": ("nothing", "`standard`"),
    "standard, best epoch": ("nothing", "`standard --keep best`"),
    "eae": ("nothing", "`eae`"),
    "elr": ("nothing", "`elr`"),
    "gce": ("nothing", "`gce`"),
    "sord": ("nothing", "`sord`"),
    "co-teaching+ours": ("the true rate", "`co-teaching+ours`"),
    "f-correction": ("the true matrix", "`f-correction`"),
    "srjt, 100 verified": ("100 verified grades", "`srjt`"),
    "clean labels": ("all true grades", "`standard`"),
}
DEVELOPED_ON = (0, 1)  # folds
TEST_TO_TRAIN = 20 / 60  # sizes of the sides
MAE, MACRO_F1 = "mae median ensemble", "macro_f1 median ensemble"  # the grades that srjt predicts by default


def pipes(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def unseen(runs: pd.DataFrame) -> pd.DataFrame:
    """The folds on which no loss was chosen; constant weights of the agreement, which are not used, were seen there."""
    return runs[~runs["fold"].isin(DEVELOPED_ON)]


def means(runs: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Methods × cases; missing where a fold is missing."""
    table = runs.pivot_table(index="method", columns=["set", "noise"], values=measure, sort=False)
    count = runs.pivot_table(index="method", columns=["set", "noise"], values=measure, aggfunc="count")
    found = table.where(count.reindex_like(table) == runs["fold"].nunique())
    for case in CASES:  # trained once on the true grades, whatever the noise
        if case[0] == "deepdrid" and case in found and "clean labels" in found.index:
            found.loc["clean labels", [case]] = found.loc["clean labels", ("deepdrid", "quasi")]
    return found


def recipe(runs: pd.DataFrame) -> str:
    """MAE / macro-F1 of the median grade. Bold: best of those not told true grades."""
    found = {name: told for name, told in METHODS.items() if name in set(runs["method"])}
    compared = [name for name, (told, _) in found.items() if "grades" not in told]
    tables = ((means(runs, MAE), "min"), (means(runs, MACRO_F1), "max"))
    rows = []
    for name, (told, label) in found.items():
        cells = []
        for case in CASES:
            parts = []
            for table, best in tables:
                value, best_value = table.loc[name, case], getattr(table.loc[compared, case], best)()
                text = "–" if pd.isna(value) else f"{value:.3f}"
                parts.append(f"**{text}**" if name in compared and value == best_value else text)
            cells.append("–" if parts == ["–", "–"] else " / ".join(parts))
        rows.append([told, label, *cells])
    return pipes(["told", "method", *CASES.values()], rows)


def recipe_on_features(folder: Path) -> str:
    return recipe(unseen(pd.read_csv(folder / "recipe_features.csv")))


def recipe_on_images(folder: Path) -> str:
    return recipe(unseen(pd.read_csv(folder / "recipe_images.csv")))


def recipe_differences(folder: Path) -> str:
    """``srjt`` minus each other method on images: means over the cases in each fold, by the corrected resampled t-test.

    The folds share training patients, which the test allows for; a fold is another test side and another training.
    """
    runs = pd.read_csv(folder / "recipe_images.csv")
    others = [name for name in METHODS if name not in ("srjt", "srjt, 100 verified", "clean labels")]
    tests = {
        (name, measure, folds): corrected_t_test(
            _by_fold(part, "srjt", measure) - _by_fold(part, name, measure), test_train_ratio=TEST_TO_TRAIN
        )
        for name in others
        for measure in (MAE, MACRO_F1)
        for folds, part in (("all", runs), ("new", unseen(runs)))
    }
    first = [(name, measure, "all") for name in others for measure in (MAE, MACRO_F1)]
    adjusted = dict(zip(first, holm([tests[key].p_value or 1.0 for key in first]), strict=True))
    rows = []
    for name in others:
        cells = []
        for measure in (MAE, MACRO_F1):
            one, new = tests[name, measure, "all"], tests[name, measure, "new"]
            cells += [
                f"{one.difference:+.3f} ({one.low:+.3f} to {one.high:+.3f})",
                f"{adjusted[name, measure, 'all']:.3f}",
                f"{new.difference:+.3f}",
            ]
        rows.append([*METHODS[name], *cells])
    head = ["told", "method"]
    for measure in ("MAE", "macro-F1"):
        head += [f"{measure}, five folds", "p, Holm", "folds 2 to 4"]
    return pipes(
        head, [[cell.replace("-", "−") if k > 1 else cell for k, cell in enumerate(row)] for row in rows]
    )


def _by_fold(runs: pd.DataFrame, method: str, measure: str) -> np.ndarray:
    """(F,) means over the six cases."""
    own = runs[runs["method"] == method].pivot_table(index="fold", columns=["set", "noise"], values=measure)
    assert not own.isna().to_numpy().any(), f"{method} lacks runs"
    return own[list(CASES)].mean(axis=1).to_numpy()
