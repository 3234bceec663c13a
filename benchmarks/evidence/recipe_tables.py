"""The recipe against the other methods, from the stored runs of ``recipe_on_features`` and
``recipe_on_images``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

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


# Few labels: what few_labels.py has measured on the folds that chose nothing.

OPTIMISER = "optimizer=adamw,schedule=cosine,warmup_epochs=1,learning_rate=0.001"
AGREEMENT = "srjt:method_options.grows_with="
OURS = "`srjt`"
BEFORE = "`srjt` before: λ = 4, grows with the epochs, batches of 64"
MEDIAN_GRADE = "no network: the median of the labels"
FEW_LABELS = {
    f"{AGREEMENT}fit,method_options.co_lambda=10": OURS,
    f"{AGREEMENT}training,method_options.co_lambda=4": BEFORE,
    f"co-teaching+ours:{OPTIMISER}": "`co-teaching+ours`, told the rate",
    f"sord:{OPTIMISER}": "`sord`",
    f"standard:{OPTIMISER}": "`standard`",
    f"clean labels:{OPTIMISER}": "`standard`, all true grades",
    "srjt on features": "`srjt` on frozen features, no GPU",
    "median grade": MEDIAN_GRADE,
}
FEW_LABELS_OTHERS = {
    f"eae:{OPTIMISER}": "`eae`",
    f"corn:{OPTIMISER}": "`corn`",
    f"sce:{OPTIMISER}": "`sce`",
    f"f-correction:{OPTIMISER}": "`f-correction`, told the matrix",
}
LITE2 = ",network=timm:tf_efficientnet_lite2,weights=lite2.safetensors"
FEW_CASES = {
    ("knee", "quasi"): "knee X-rays, quasi 0.4",
    ("knee", "one-sided"): "one-sided",
    ("deepdrid", "quasi"): "DeepDRiD, quasi 0.4",
    ("deepdrid", "one-sided"): "one-sided",
    ("acne", "doctor"): "ACNE04, one doctor",
    ("appareal", "vote"): "APPA-REAL, one vote",
    ("eyepacs", "as_it_is"): "EyePACS as it is",
}
EVERY_SET = [case for case in FEW_CASES if case[1] != "one-sided"]
LENGTHS = {100: 40, 300: 40, 1000: 40, 0: 20}  # labels (0: all): epochs
SMALL = ",batch_size=16"  # with fewer than 1,000 labels, for all methods but the former recipe
ALL_FOLDS = 3
FEWEST_SETS = 4  # with all folds, for a row
OTHER_RULE = [f"{name} for_macro_f1 ensemble" for name in ("mae", "macro_f1")]


def few_runs(folder: Path) -> pd.DataFrame:
    """The runs of the tables, without those of a case and seed that lack a fold. Columns: labels,
    name (on the page), set, noise, seed, fold, and the scores."""
    runs = unseen(pd.read_csv(folder / "few_labels.csv"))
    runs = runs[runs["epochs"] == runs["labels"].map(LENGTHS)]
    former = runs["method"].str.startswith(f"{AGREEMENT}training")
    without = runs["method"].isin(["median grade", "srjt on features"])  # without batches
    small = runs["labels"].between(1, 999) & ~former & ~without
    runs = runs[runs["method"].str.endswith(SMALL) == small]
    methods = FEW_LABELS | FEW_LABELS_OTHERS
    names = methods | {f"{method}{LITE2}": f"Lite2: {name}" for method, name in methods.items()}
    runs = runs.assign(name=runs["method"].str.removesuffix(SMALL).map(names))
    keys = ["labels", "name", "set", "noise", "seed"]
    folds = runs.groupby(keys)["fold"].transform("nunique")
    scores = [MAE, ONE_NETWORK, MACRO_F1, *OTHER_RULE]
    return runs[folds == ALL_FOLDS][[*keys, "fold", *scores]]


def few_labels(folder: Path) -> str:
    """MAE above macro-F1 by number of labels. The median where ``srjt`` has been trained."""
    runs = few_runs(folder)
    keys = ["labels", "set", "noise"]
    cases = pd.MultiIndex.from_frame(runs[keys])
    trained = cases.isin(cases[runs["name"] == OURS])
    runs = runs[trained | (runs["name"] != MEDIAN_GRADE)]
    return _few_table(runs, list(FEW_LABELS.values()), list(FEW_CASES))


def few_labels_others(folder: Path) -> str:
    """The methods that the first table leaves out."""
    return _few_table(few_runs(folder), list(FEW_LABELS_OTHERS.values()), EVERY_SET)


def few_labels_lite2(folder: Path) -> str:
    """The second network."""
    runs = few_runs(folder)
    runs = runs[runs["name"].str.startswith("Lite2: ")]
    runs = runs.assign(name=runs["name"].str.removeprefix("Lite2: "))
    cases = [case for case in EVERY_SET if case[0] in set(runs["set"])]
    return _few_table(runs, list(FEW_LABELS.values()), cases)


def _few_table(runs: pd.DataFrame, names: Sequence[str], cases: Sequence[tuple[str, str]]) -> str:
    """A row for each size and method."""
    rows = []
    for labels in LENGTHS:
        for name in names:
            own = runs[(runs["labels"] == labels) & (runs["name"] == name)]
            if own["set"].nunique() < FEWEST_SETS:
                continue
            cells = [_few_cell(own[(own["set"] == s) & (own["noise"] == n)]) for s, n in cases]
            rows.append([f"{labels:,}" if labels else "all", name, *cells])
    return pipes(["labels", "method", *(FEW_CASES[case] for case in cases)], rows)


def _few_cell(rows: pd.DataFrame) -> str:
    """Means over folds and seeds."""
    if not len(rows):
        return "–"
    return f"{rows[MAE].mean():.3f}<br>{rows[MACRO_F1].mean():.3f}"


def few_labels_purpose(folder: Path) -> str:
    """What the target metric changes: means over the five data sets."""
    runs = few_runs(folder).dropna(subset=OTHER_RULE)
    runs = runs[runs["noise"] != "one-sided"]
    rows = []
    for labels in LENGTHS:
        for name in (OURS, "`standard`"):
            own = runs[(runs["labels"] == labels) & (runs["name"] == name)]
            means = own.groupby("set")[[MAE, *OTHER_RULE[:1], MACRO_F1, *OTHER_RULE[1:]]].mean()
            assert len(means) == len(EVERY_SET)
            cells = [f"{mean:.3f}" for mean in means.mean()]
            rows.append([f"{labels:,}" if labels else "all", name, *cells])
    columns = ["MAE", "… with `macro_f1`", "macro-F1", "… with `macro_f1`"]
    return pipes(["labels", "method", *columns], rows)


def few_labels_differences(folder: Path) -> str:
    """``srjt`` minus each other. The data sets are the units of the test: a set's number is the mean
    over its cases, of each the mean over the folds and seeds that both methods have."""
    runs = few_runs(folder)
    columns = {MAE: "MAE", ONE_NETWORK: "MAE, one network each", MACRO_F1: "macro-F1"}
    rows, p_values = [], []
    for labels in LENGTHS:
        sized = runs[runs["labels"] == labels]
        sized = sized.set_index(["name", "set", "noise", "seed", "fold"])[list(columns)]
        for other in [*list(FEW_LABELS.values())[1:], *FEW_LABELS_OTHERS.values()]:
            if other == MEDIAN_GRADE or other not in sized.index.get_level_values("name"):
                continue
            pairs = (sized.loc[OURS] - sized.loc[other]).dropna()
            by_set = pairs.groupby(["set", "noise"]).mean().groupby("set").mean()
            if len(by_set) < FEWEST_SETS:
                continue
            tests = {column: stats.ttest_1samp(by_set[column], 0.0) for column in columns}
            rows.append([f"{labels:,}" if labels else "all", other, str(len(by_set))])
            p_values += [tests[MAE].pvalue, tests[MACRO_F1].pvalue]
            for column in columns:
                found = tests[column].confidence_interval()
                mean = by_set[column].mean()
                interval = f"{mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
                rows[-1].append(interval.replace("-", "−"))
    corrected = iter(holm(p_values))
    for row in rows:
        row[3] += f", {next(corrected):.3f}"
        row[5] += f", {next(corrected):.3f}"
    names = [f"{columns[MAE]}, p", columns[ONE_NETWORK], f"{columns[MACRO_F1]}, p"]
    return pipes(["labels", "`srjt` minus …", "data sets", *names], rows)
