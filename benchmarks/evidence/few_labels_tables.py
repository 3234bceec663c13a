"""``srjt`` against other methods with few labels: what ``few_labels.py`` has measured on the folds
that chose none of the settings of ``srjt``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from recipe_tables import DEVELOPED_ON, MACRO_F1, MAE, ONE_NETWORK, pipes, unseen
from scipy import stats

from srjt.ordinal.intervals import holm

RATE = "0.001"  # of the recipe
RATES = ("0.0003", RATE, "0.003")
OPTIMISER = f"optimizer=adamw,schedule=cosine,warmup_epochs=1,learning_rate={RATE}"
FIT = "method_options.grows_with=fit,method_options.co_lambda=10"
TRAINING = "method_options.grows_with=training,method_options.co_lambda=4"
OURS = "`srjt`"
PLAIN = "`standard`"
BEFORE = "`srjt` before: λ = 4, grows with the epochs, batches of 64"
MEDIAN_GRADE = "no network: the median of the labels"
# method in the file: name on the page
METHODS = {
    f"srjt:{FIT}": OURS,
    f"srjt, 100 verified:{FIT}": "`srjt`, 100 verified grades",
    f"srjt:{TRAINING}": BEFORE,
    f"co-teaching+ours:{OPTIMISER}": "`co-teaching+ours`, told the rate",
    f"sord:{OPTIMISER}": "`sord`",
    f"standard:{OPTIMISER}": PLAIN,
    f"clean labels:{OPTIMISER}": "`standard`, all true grades",
    "srjt on features": "`srjt` on frozen features, no GPU",
    "median grade": MEDIAN_GRADE,
}
OTHERS = {
    f"eae:{OPTIMISER}": "`eae`",
    f"corn:{OPTIMISER}": "`corn`",
    f"sce:{OPTIMISER}": "`sce`",
    f"f-correction:{OPTIMISER}": "`f-correction`, told the matrix",
}
LITE0 = "tf_efficientnet_lite0"
OTHER_NETWORKS = {
    "tf_efficientnet_lite2": "EfficientNet-Lite2",
    "inception_v3": "Inception-v3",
}
CASES = {
    ("knee", "quasi"): "knee X-rays, quasi 0.4",
    ("knee", "one-sided"): "one-sided",
    ("deepdrid", "quasi"): "DeepDRiD, quasi 0.4",
    ("deepdrid", "one-sided"): "one-sided",
    ("acne", "doctor"): "ACNE04, one doctor",
    ("appareal", "vote"): "APPA-REAL, one vote",
    ("eyepacs", "as_it_is"): "EyePACS as it is",
}
EVERY_SET = [case for case in CASES if case[1] != "one-sided"]
LENGTHS = {100: 40, 300: 40, 1000: 40, 0: 20}  # labels (0: all): epochs
SMALL = ",batch_size=16"  # with fewer than 1,000 labels, for all methods but the former recipe
LONGER, LONGER_BATCH = 40, ",batch_size=32"  # with all labels of the two smallest sets
ALL_FOLDS = 3
FEWEST_SETS = 3  # with all folds, for a row
DEFAULT_BATCHES = {300: "16", 1000: "32", 0: "64"}
CHANGES = {
    "epochs": "{} epochs",
    "batch_size": "batches of {}",
    "co_lambda": "λ = {}",
    "grows_with": "grows with the epochs",
    "transition": "no correction",
    "learning_rate": "learning rate {}",
    "augment": "`--augment {}`",
    "verified": "{} verified grades",
}
OTHER_RULE = [f"{name} for_macro_f1 ensemble" for name in ("mae", "macro_f1")]
KEYS = ["labels", "name", "network", "learning_rate", "set", "noise", "seed"]


def trainings(folder: Path) -> pd.DataFrame:
    """The trainings of the tables by every network and learning rate, without those of a case and
    seed that lack a fold. Columns: those of KEYS, fold, and the scores."""
    runs = unseen(pd.read_csv(folder / "few_labels.csv"))
    runs = runs[runs["epochs"] == runs["labels"].map(LENGTHS)]
    former = runs["method"].str.startswith(f"srjt:{TRAINING}")
    without = runs["method"].isin(["median grade", "srjt on features"])  # without batches
    small = runs["labels"].between(1, 999) & ~former & ~without
    runs = runs[runs["method"].str.endswith(SMALL) == small]
    return _named(runs, batch=SMALL)


def _named(runs: pd.DataFrame, *, batch: str) -> pd.DataFrame:
    """With the columns of KEYS in place of the method's settings. batch: an ending to leave out."""
    method = runs["method"].str.removesuffix(batch)
    network = method.str.extract(r",network=timm:(\w+)")[0]
    rate = method.str.extract(r"learning_rate=([\d.]+)")[0]
    method = method.str.replace(r",network=.*", "", regex=True)
    method = method.str.replace(r"learning_rate=[\d.]+", f"learning_rate={RATE}", regex=True)
    named = runs.assign(
        name=method.map(METHODS | OTHERS),
        network=network.fillna(LITE0),
        learning_rate=rate.fillna(RATE),
    )
    folds = named.groupby(KEYS)["fold"].transform("nunique")
    scores = [MAE, ONE_NETWORK, MACRO_F1, *OTHER_RULE]
    return named[folds == ALL_FOLDS][[*KEYS, "fold", *scores]]


def compared(folder: Path, network: str = LITE0) -> pd.DataFrame:
    """The trainings with one network and the recipe's learning rate."""
    runs = trainings(folder)
    return runs[(runs["network"] == network) & (runs["learning_rate"] == RATE)]


def few_labels(folder: Path) -> str:
    """MAE above macro-F1 by number of labels. The median where ``srjt`` has been trained."""
    runs = compared(folder)
    keys = ["labels", "set", "noise", "seed"]
    cases = pd.MultiIndex.from_frame(runs[keys])
    trained = cases.isin(cases[runs["name"] == OURS])
    runs = runs[trained | (runs["name"] != MEDIAN_GRADE)]
    return _by_size(runs, list(METHODS.values()), list(CASES))


def few_labels_others(folder: Path) -> str:
    """The methods that the first table leaves out."""
    return _by_size(compared(folder), list(OTHERS.values()), EVERY_SET)


def few_labels_networks(folder: Path) -> str:
    """Other networks."""
    cases = [case for case in EVERY_SET if case[0] != "eyepacs"]
    rows = []
    for network, label in OTHER_NETWORKS.items():
        runs = compared(folder, network)
        for name in METHODS.values():
            own = runs[runs["name"] == name]
            if len(own):
                rows.append([label, name, *_cells(own, cases)])
    return pipes(["network", "method", *(CASES[case] for case in cases)], rows)


def few_labels_longer(folder: Path) -> str:
    """All labels of the two smallest sets, in longer trainings."""
    runs = unseen(pd.read_csv(folder / "few_labels.csv"))
    former = runs["method"] == f"srjt:{TRAINING}"
    batch = runs["method"].str.endswith(LONGER_BATCH)
    runs = runs[(runs["labels"] == 0) & (runs["epochs"] == LONGER) & (batch | former)]
    runs = _named(runs, batch=LONGER_BATCH)
    cases = [case for case in EVERY_SET if case[0] in ("deepdrid", "acne")]
    rows = [[name, *_cells(runs[runs["name"] == name], cases)] for name in (OURS, BEFORE, PLAIN)]
    return pipes(["method", *(CASES[case] for case in cases)], rows)


def few_labels_settings(folder: Path) -> str:
    """Other settings of ``srjt`` on the folds that chose them, minus the present ones with the same
    set and fold. Marked: some of them have another noise estimate than the present ones."""
    runs = pd.read_csv(folder / "few_labels.csv")
    chosen = runs["fold"].isin(DEVELOPED_ON) & runs["labels"].isin(list(DEFAULT_BATCHES))
    runs = runs[chosen & (runs["seed"] == 0) & (runs["noise"] != "one-sided")]
    of_srjt = runs["method"].str.startswith(("srjt:", "srjt, "))
    runs = runs[of_srjt & ~runs["method"].str.contains("network=") & (runs["set"] != "eyepacs")]
    runs["change"] = [_change(*run) for run in runs[["labels", "epochs", "method"]].to_numpy()]
    runs["noise_estimate"] = runs["noise_estimate"].fillna("")
    index = ["labels", "change", "set", "fold"]
    runs = runs.set_index(index)[[MAE, MACRO_F1, "noise_estimate"]].sort_index()
    rows = []
    for labels in DEFAULT_BATCHES:
        default = runs.loc[labels, ""]
        estimates = default.pop("noise_estimate")
        means = default.groupby("set").mean()
        present = f"**{LENGTHS[labels]} epochs, batches of {DEFAULT_BATCHES[labels]}, λ = 10**"
        scores = [f"{mean:.3f}" for mean in means.mean()]
        rows.append([_size(labels), present, str(len(means)), *scores, "–"])
        changes = set(runs.loc[labels].index.get_level_values("change")) - {""}
        for change in sorted(changes, key=lambda change: (change.count(","), change)):
            own = runs.loc[labels, change]
            minus = (own[[MAE, MACRO_F1]] - default).dropna()
            by_set = minus.groupby("set").mean()
            other_estimate = own["noise_estimate"].loc[minus.index] != estimates.loc[minus.index]
            found = [_difference(by_set[name]) for name in (MAE, MACRO_F1)]
            lower = f"{(minus[MAE] < 0).sum()} of {len(minus)}"
            name = f"{change} ¹" if other_estimate.any() else change
            rows.append([_size(labels), name, str(len(by_set)), *found, lower])
    names = ["labels", "setting", "data sets", "MAE", "macro-F1", "folds with a lower MAE"]
    return pipes(names, rows)


def _change(labels: int, epochs: int, method: str) -> str:
    """What differs from the present settings, for a reader; nothing for the present ones."""
    name, _, settings = method.replace("method_options.", "").partition(":")
    found = {"batch_size": "64"} | dict(item.split("=", 1) for item in settings.split(","))
    found["epochs"] = str(epochs)
    if "verified" in name:
        found["verified"] = "100"
    usual = {
        "epochs": str(LENGTHS[labels]),
        "batch_size": DEFAULT_BATCHES[labels],
        "co_lambda": "10",
        "grows_with": "fit",
    }
    parts = [
        text.format(found[key])
        for key, text in CHANGES.items()
        if key in found and found[key] != usual.get(key)
    ]
    return ", ".join(parts)


def _by_size(runs: pd.DataFrame, names: Sequence[str], cases: Sequence[tuple[str, str]]) -> str:
    """A row for each size and method."""
    rows = []
    for labels in LENGTHS:
        for name in names:
            own = runs[(runs["labels"] == labels) & (runs["name"] == name)]
            if own["set"].nunique() >= FEWEST_SETS:
                rows.append([_size(labels), name, *_cells(own, cases)])
    return pipes(["labels", "method", *(CASES[case] for case in cases)], rows)


def _size(labels: int) -> str:
    return f"{labels:,}" if labels else "all"


def _cells(runs: pd.DataFrame, cases: Sequence[tuple[str, str]]) -> list[str]:
    """Of one method: means over folds and seeds, MAE above macro-F1."""
    cells = []
    for name, noise in cases:
        own = runs[(runs["set"] == name) & (runs["noise"] == noise)]
        cells.append(f"{own[MAE].mean():.3f}<br>{own[MACRO_F1].mean():.3f}" if len(own) else "–")
    return cells


def few_labels_purpose(folder: Path) -> str:
    """What the target metric changes: means over the five data sets."""
    runs = compared(folder).dropna(subset=OTHER_RULE)
    runs = runs[runs["noise"] != "one-sided"]
    rows = []
    for labels in LENGTHS:
        for name in (OURS, PLAIN):
            own = runs[(runs["labels"] == labels) & (runs["name"] == name)]
            means = own.groupby("set")[[MAE, *OTHER_RULE[:1], MACRO_F1, *OTHER_RULE[1:]]].mean()
            assert len(means) == len(EVERY_SET)
            rows.append([_size(labels), name, *(f"{mean:.3f}" for mean in means.mean())])
    columns = ["MAE", "… with `macro_f1`", "macro-F1", "… with `macro_f1`"]
    return pipes(["labels", "method", *columns], rows)


def few_labels_differences(folder: Path) -> str:
    """``srjt`` minus each other. The data sets are the units of the test: a set's number is the mean
    over its cases, of each the mean over the folds and seeds that both methods have. With all
    labels, other methods have been trained with the recipe's learning rate alone, and are left
    out."""
    runs, every_rate = compared(folder), trainings(folder)
    columns = {MAE: "MAE", ONE_NETWORK: "MAE, one network each", MACRO_F1: "macro-F1"}
    rows, p_values = [], []
    for labels in LENGTHS:
        sized = runs[runs["labels"] == labels]
        sized = sized.set_index(["name", "set", "noise", "seed", "fold"])[list(columns)]
        for other in [*list(METHODS.values())[1:], *OTHERS.values()]:
            if other == MEDIAN_GRADE or (labels == 0 and other != BEFORE):
                continue
            if other not in sized.index.get_level_values("name"):
                continue
            pairs = (sized.loc[OURS] - sized.loc[other]).dropna()
            by_set = pairs.groupby(["set", "noise"]).mean().groupby("set").mean()
            if len(by_set) < FEWEST_SETS:
                continue
            p_values += [stats.ttest_1samp(by_set[name], 0.0).pvalue for name in (MAE, MACRO_F1)]
            found = [_difference(by_set[name]) for name in columns]
            rates = by_rate(every_rate[every_rate["labels"] == labels], other)
            tuned = "–"
            if rates is not None:
                tuned = f"{_difference(rates['best'])}; {_signed(rates[RATE].mean())}"
            found.insert(1, tuned)
            rows.append([_size(labels), other, str(len(by_set)), *found])
    corrected = iter(holm(p_values))
    for row in rows:
        row[3] += f", {next(corrected):.3f}"
        row[-1] += f", {next(corrected):.3f}"
    names = ["MAE, p", "MAE, its best rate; at 1e-3", columns[ONE_NETWORK], "macro-F1, p"]
    return pipes(["labels", "`srjt` minus …", "data sets", *names], rows)


def by_rate(runs: pd.DataFrame, other: str) -> pd.DataFrame | None:
    """By set, the MAE of ``srjt`` minus that of another method: with the recipe's learning rate, and
    with the ``best`` of RATES for this set, chosen by the same MAE. Of the seeds and folds that have
    all rates; None where there are none."""
    runs = runs[(runs["network"] == LITE0) & (runs["noise"] != "one-sided")]
    keys = ["set", "seed", "fold"]
    rates = runs[runs["name"] == other].pivot(index=keys, columns="learning_rate", values=MAE)
    rates = rates.reindex(columns=list(RATES)).dropna()
    if rates.empty:
        return None
    ours = runs[runs["name"] == OURS].set_index(keys)[MAE].loc[rates.index]
    minus = rates.groupby("set").mean().rsub(ours.groupby("set").mean(), axis=0)
    return minus[[RATE]].assign(best=minus.max(axis=1))


def _difference(by_set: pd.Series[float]) -> str:
    """The mean with its 95 % interval, of three sets or more."""
    if len(by_set) < FEWEST_SETS:
        return _signed(by_set.mean())
    interval = stats.ttest_1samp(by_set, 0.0).confidence_interval()
    return f"{_signed(by_set.mean())} ({_signed(interval.low)} to {_signed(interval.high)})"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
