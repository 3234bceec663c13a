"""The recipe against the other methods, from the stored runs of ``recipe_on_features`` and
``recipe_on_images``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from srjt.ordinal.intervals import holm
from srjt.studies.results import corrected_t_test

CASES = {
    ("deepdrid", "truncated"): "DeepDRiD, truncated 0.4",
    ("deepdrid", "quasi"): "quasi 0.4",
    ("deepdrid", "boundary"): "at the boundary",
    ("deepdrid", "one-sided"): "one-sided",
    ("appareal", "vote"): "APPA-REAL, one vote",
    ("eyepacs", "as_it_is"): "EyePACS as it is",
}
FOR_MACRO_F1 = "srjt, macro-F1"
# name in the files → what it is told, name on the page
METHODS = {
    "srjt": ("nothing", "`srjt`"),
    FOR_MACRO_F1: ("nothing", "`srjt`, `--target-metric macro_f1`"),
    "standard": ("nothing", "`standard`"),
    "standard, best epoch": ("nothing", "`standard --keep best`"),
    "eae": ("nothing", "`eae`"),
    "elr": ("nothing", "`elr`"),
    "gce": ("nothing", "`gce`"),
    "sord": ("nothing", "`sord`"),
    "corn": ("nothing", "`corn`"),
    "sce": ("nothing", "`sce`"),
    "cdw-ce": ("nothing", "`cdw-ce`"),
    "co-teaching+ours": ("the true rate", "`co-teaching+ours`"),
    "f-correction": ("the true matrix", "`f-correction`"),
    "srjt, 100 verified": ("100 verified grades", "`srjt`"),
    "clean labels": ("all true grades", "`standard`"),
}
ON_FILE_ONLY = ("elr", "gce", "cdw-ce")  # never first: the page leaves them to the CSV files
IMAGE_CASES = {
    ("deepdrid", "truncated"): "DeepDRiD, truncated 0.4",
    ("deepdrid", "quasi"): "quasi 0.4",
    ("deepdrid", "boundary"): "at the boundary",
    ("deepdrid", "one-sided"): "one-sided",
    ("acne", "doctor"): "ACNE04, one doctor",
    ("appareal", "vote"): "APPA-REAL, one vote",
    ("eyepacs", "as_it_is"): "EyePACS as it is",
}
TESTED_CASES = list(IMAGE_CASES)[:6]  # on EyePACS the truth is not known
DEVELOPED_ON = (0, 1)  # folds
TEST_TO_TRAIN = 20 / 60  # sizes of the sides
MAE, MACRO_F1 = (
    "mae predict ensemble",
    "macro_f1 predict ensemble",
)  # the grades that srjt predict gives
ONE_NETWORK = "mae predict network"  # the mean of the networks alone
LEARN_SOFT_LABELS = ("sord", "co-teaching+ours", "jocor+ours", "codis+ours")


def pipes(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def unseen(runs: pd.DataFrame) -> pd.DataFrame:
    """The folds on which no loss was chosen; constant weights of the agreement, which are not used,
    were seen there."""
    return runs[~runs["fold"].isin(DEVELOPED_ON)]


def means(
    runs: pd.DataFrame, measure: str, *, cases: Iterable[tuple[str, str]] = tuple(CASES)
) -> pd.DataFrame:
    """Methods × cases; missing where a fold is missing."""
    runs = runs[[case in cases for case in zip(runs["set"], runs["noise"], strict=True)]]
    table = runs.pivot_table(index="method", columns=["set", "noise"], values=measure, sort=False)
    count = runs.pivot_table(
        index="method", columns=["set", "noise"], values=measure, aggfunc="count"
    )
    found = table.where(count.reindex_like(table) == runs["fold"].nunique())
    for case in cases:  # trained once on the true grades, whatever the noise
        if case[0] == "deepdrid" and case in found and "clean labels" in found.index:
            found.loc["clean labels", [case]] = found.loc["clean labels", ("deepdrid", "quasi")]
    return found


def recipe(runs: pd.DataFrame, cases: Mapping[tuple[str, str], str]) -> str:
    """MAE above macro-F1 of the predicted grades. Bold: best of those not told true grades."""
    found = {name: told for name, told in METHODS.items() if name in set(runs["method"])}
    compared = [name for name, (told, _) in found.items() if "grades" not in told]
    tables = ((means(runs, MAE, cases=cases), "min"), (means(runs, MACRO_F1, cases=cases), "max"))
    rows = []
    for name, (told, label) in found.items():
        cells = []
        for case in cases:
            parts = []
            for table, best in tables:
                value, best_value = (
                    table.loc[name, case],
                    getattr(table.loc[compared, case], best)(),
                )
                text = "–" if pd.isna(value) else f"{value:.3f}"
                parts.append(f"**{text}**" if name in compared and value == best_value else text)
            cells.append("–" if parts == ["–", "–"] else "<br>".join(parts))
        rows.append([label if told == "nothing" else f"{label}, {told}", *cells])
    return pipes(["method, what it is told", *cases.values()], rows)


def feature_runs(folder: Path) -> pd.DataFrame:
    """These runs kept the median without undoing soft labels: methods that learn those have the
    most likely grade."""
    runs = pd.read_csv(folder / "recipe_features.csv")
    soft = runs["method"].isin(LEARN_SOFT_LABELS)
    for measure in (MAE, MACRO_F1, ONE_NETWORK):
        plain, argmax = (runs[measure.replace("predict", rule)] for rule in ("median", "argmax"))
        runs = runs.assign(**{measure: plain.where(~soft, argmax)})
    return runs


def recipe_on_features(folder: Path) -> str:
    return recipe(unseen(feature_runs(folder)), CASES)


def image_runs(folder: Path, name: str = "recipe_images") -> pd.DataFrame:
    """The runs on images; ``settings`` is what was changed of the method's own way to learn the
    weights."""
    runs = pd.read_csv(folder / f"{name}.csv")
    parts = runs["method"].str.partition(":")
    purpose = parts[2] == "optimise=macro_f1"
    return runs.assign(
        method=parts[0].mask(purpose, FOR_MACRO_F1), settings=parts[2].mask(purpose, "")
    )


def recipe_on_images(folder: Path, without: Sequence[str] = ON_FILE_ONLY) -> str:
    runs = image_runs(folder)
    assert not set(runs["fold"]) & set(DEVELOPED_ON)
    return recipe(runs[~runs["method"].isin(without)], IMAGE_CASES)


def recipe_on_images_all(folder: Path) -> str:
    return recipe_on_images(folder, without=())


def _rate(settings: str) -> str:
    """The learning rate that a run's settings name; without any, it is the paper's."""
    return (
        f"{float(settings.rpartition('=')[2]):.0e}".replace("e-0", "e-")
        if settings
        else "1e-4 (steps)"
    )


def recipe_rates(folder: Path) -> str:
    """Noisy validation MAE by rate, folds 0 and 1: the lowest one is used on folds 2 to 4."""
    runs = image_runs(folder, "recipe_rates")
    measure = "mae noisy validation ensemble"
    table = runs.pivot_table(index="method", columns=["set", "settings"], values=measure)
    rows = []
    for name in (name for name in METHODS if name in table.index):
        cells = []
        for one in ("deepdrid", "acne"):
            own = table.loc[name, one].sort_index()
            cells += [f"**{value:.3f}**" if value == own.min() else f"{value:.3f}" for value in own]
        rows.append([METHODS[name][1], *cells])
    options = [_rate(one) for one in table["deepdrid"].columns.sort_values()]
    return pipes(
        ["method", *(f"{one}, {rate}" for one in ("DeepDRiD", "ACNE04") for rate in options)], rows
    )


def recipe_optimisers(folder: Path) -> str:
    """The search for how ``srjt`` learns the weights: MAE / macro-F1 of the median, folds 0 and
    1."""
    runs = pd.read_csv(folder / "recipe_search.csv").query("round == 'optimiser'")
    rows = []
    for name in dict.fromkeys(runs["method"]):
        own = runs[runs["method"] == name].groupby(["set", "noise"])
        mae, f1 = (own[f"{measure} median ensemble"].mean() for measure in ("mae", "macro_f1"))
        rows.append([name.removeprefix("srjt: "), *(
            f"{mae[case]:.3f} / {f1[case]:.3f}" if case in mae else "–" for case in IMAGE_CASES
        )])  # fmt: skip
    return pipes(["", *IMAGE_CASES.values()], rows)


def recipe_differences_all(folder: Path) -> str:
    return recipe_differences(folder, without=())


def recipe_differences(folder: Path, without: Sequence[str] = ON_FILE_ONLY) -> str:
    """``srjt`` minus each other method on images: means over six cases in each fold, corrected
    resampled t-test.

    Folds 2 to 4 alone, on which nothing was chosen. They share training patients, which the test
    allows for; a fold is another test side and another training.
    """
    runs = image_runs(folder)
    by_fold = {
        name: [_by_fold(runs, name, measure) for measure in (MAE, MACRO_F1)] for name in METHODS
    }
    others = [
        name for name in METHODS if not name.startswith("srjt") and by_fold[name][0] is not None
    ]
    tests = {
        (name, k): corrected_t_test(
            by_fold["srjt"][k] - by_fold[name][k], test_train_ratio=TEST_TO_TRAIN
        )
        for name in others
        for k in (0, 1)
    }
    adjusted = dict(zip(tests, holm([test.p_value or 1.0 for test in tests.values()]), strict=True))
    rows = []
    for name in (name for name in others if name not in without):
        cells = []
        for k in (0, 1):
            test = tests[name, k]
            difference = f"{test.difference:+.3f} ({test.low:+.3f} to {test.high:+.3f}), {adjusted[name, k]:.3f}"
            cells.append(difference.replace("-", "−"))
        rows.append([METHODS[name][1], *cells])
    return pipes(["method", "MAE, p", "macro-F1, p"], rows)


def _by_fold(runs: pd.DataFrame, method: str, measure: str) -> np.ndarray | None:
    """(F,) means over the tested cases; None if a run is missing."""
    own = runs[runs["method"] == method].pivot_table(
        index="fold", columns=["set", "noise"], values=measure
    )
    own = own.reindex(columns=pd.MultiIndex.from_tuples(TESTED_CASES))
    return (
        None
        if len(own) < runs["fold"].nunique() or own.isna().to_numpy().any()
        else own.mean(axis=1).to_numpy()
    )
