"""Pipe tables from the CSV files of results/, for page.py. Each function takes the folder."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import paper_claims
from few_labels_tables import (
    few_labels,
    few_labels_differences,
    few_labels_longer,
    few_labels_networks,
    few_labels_others,
    few_labels_purpose,
    few_labels_settings,
)
from recipe_tables import (
    MACRO_F1,
    MAE,
    METHODS,
    ONE_NETWORK,
    TEST_TO_TRAIN,
    TESTED_CASES,
    feature_runs,
    image_runs,
    pipes,
    recipe_differences,
    recipe_differences_all,
    recipe_on_features,
    recipe_on_images,
    recipe_on_images_all,
    recipe_optimisers,
    recipe_rates,
    unseen,
)

from srjt.noise.estimate import rate_text
from srjt.ordinal.intervals import holm
from srjt.studies.results import PairedTest, corrected_t_test

FAMILIES = {
    "quasi, truncated": "quasi, truncated (the paper's)",
    "asymmetric": "asymmetric (one direction, or by grade)",
    "boundary": "at the boundary between two grades",
    "uniform": "uniform",
}
UNTUNED = {
    "probit": "*a biased reader who sees the severity with an error*",
    "irregular": "*random rows around an ordinal matrix*",
    "nominal": "*random other grades*",
}
TIL = "ours, shared errors 0.5"  # the default, chosen on other data
PEERS = [
    "ours",
    "ours, independent",
    "votes",
    "smoothed votes",
    "Dawid–Skene",
    "GLAD",
    "MACE",
    "cleanlab",
]
TARGETS = ["one reading", "majority", "consensus", "posterior", "readers"]


def ramp(folder: Path) -> str:
    runs = pd.read_csv(folder / "ramp.csv")
    runs = runs[(runs["method"] == "co-teaching+ours") & (runs["decoded"] == "each network")]
    runs = runs[(runs["weights"] == "last") & ~runs["options"].str.contains("temperature")]
    epochs = runs["options"].map(lambda text: json.loads(text)["ramp_epochs"])
    # epoch T′ is the first that keeps only 1 − ε; fold 0 has 4,045 training images
    updates = (epochs - 1) * (4045 // runs["batch"])
    rows = [
        [
            f"{ramp} epochs",
            str(run.batch),
            str(count),
            f"{run.accuracy:.3f}",
            f"{run.mae:.3f}",
            f"{run.macro_f1:.3f}",
        ]
        for count, ramp, run in sorted(
            zip(updates, epochs, runs.itertuples(), strict=True), key=lambda row: row[0]
        )
    ]
    return pipes(
        ["ramp", "batch", "updates before only 1 − ε is kept", "accuracy", "MAE", "macro-F1"], rows
    )


def noise_rates(folder: Path) -> str:
    found = pd.concat([pd.read_csv(folder / f"noise_rates{part}.csv") for part in ("", "_untuned")])
    truth = found["true rate"]
    found = found.assign(
        ours=(found["rate"] - truth).abs(),
        theirs=(found["cleanlab"] - truth).abs(),
    )
    # the last bit of a sum differs between processors: a mean at half a digit must not be rounded
    # by it
    means = found.groupby("family")[["true rate", "ours", "theirs"]].mean().round(9)
    sets = found.groupby("family").size() // found.groupby("family")["kind"].nunique()
    rows = [
        [name, str(sets[family]), f"{truth:.2f}", f"{ours:.3f}", f"{theirs:.3f}"]
        for family, name in (FAMILIES | UNTUNED).items() if family in means.index
        for truth, ours, theirs in [means.loc[family]]
    ]  # fmt: skip
    return pipes(["readers", "label sets", "true rate", "error", "error of cleanlab"], rows)


def label_errors(folder: Path) -> str:
    found = pd.read_csv(folder / "label_errors.csv").groupby("family").mean(numeric_only=True)
    columns = ["AP ours", "cleanlab's best", "oracle", "off"]
    rows = [
        [
            name,
            *(f"{found.loc[family, column]:.{2 if column == 'off' else 3}f}" for column in columns),
        ]
        for family, name in FAMILIES.items()
    ]
    return pipes(["readers", "ours", "cleanlab's best", "oracle", "distance"], rows)


def readers_simulated(folder: Path) -> str:
    """Means over the kinds of readers, by the number of readings."""
    runs = pd.read_csv(folder / "readers_simulated.csv")
    return reader_table(runs, "readings", PEERS)


def readers_peers(folder: Path) -> str:
    """All measures of all peers; cleanlab asks for two readings."""
    runs = pd.read_csv(folder / "readers_simulated.csv").query("readings > 1")
    measures = ["accuracy", "MAE", "log-loss", "calibration error"]
    found = runs.groupby("method")[measures].mean()
    return pipes(
        ["method", *measures], [[name, *(f"{x:.3f}" for x in found.loc[name])] for name in PEERS]
    )


def readers_seeds(folder: Path) -> str:
    """Ours beside the votes on many data sets, and how many 95 % intervals of readers' noise rates
    hold them."""
    runs = pd.read_csv(folder / "readers_seeds.csv")
    rows = []
    for count, own in runs.groupby("readings"):
        wide = own.pivot_table(
            index=["seed", "world"], columns="method", values=["MAE", "log-loss"]
        )
        off = wide["MAE"]["ours"] - wide["MAE"]["votes"]
        sums = own[["intervals", "hold", "hold made"]].sum()
        shares = [
            f"{sums[name] / sums['intervals']:.0%}" if sums["intervals"] else "–"
            for name in ("hold", "hold made")
        ]
        means = [
            f"{wide[measure][name].mean():.3f}"
            for measure in ("MAE", "log-loss")
            for name in ("ours", "votes")
        ]
        rows.append(
            [str(count), *means[:2], f"{off.mean():+.3f} ± {off.sem():.3f}", *means[2:], *shares]
        )
    head = [
        "readings",
        "MAE: ours",
        "MAE: votes",
        "difference",
        "log-loss: ours",
        "log-loss: votes",
    ]
    return pipes([*head, "rate held", "share made held"], rows)


def reader_targets(folder: Path) -> str:
    """MAE, macro-F1 and log-loss of networks that learn from readings, by what they learn from;
    best in bold."""
    runs = pd.read_csv(folder / "reader_targets.csv")
    names = {"doctors": "ACNE04, doctors", "votes": "APPA-REAL, votes"}
    runs["case"] = runs["set"].map(lambda name: names.get(name, f"simulated, {name}"))
    runs["network"] = np.where(runs["network"] == "mlp", "features", "images")
    by = ["case", "network", "readings"]
    rows = []
    for case, own in runs[runs["method"] == "srjt"].groupby(by):
        scores = own.groupby("target")[["MAE", "macro_f1", "log_loss"]].mean().reindex(TARGETS)
        best, cells = scores["MAE"].min(), []
        for mae, f1, loss in scores.to_numpy():
            error = f"**{mae:.3f}**" if mae == best else f"{mae:.3f}"
            cells.append("–" if np.isnan(mae) else f"{error} / {f1:.3f} / {loss:.2f}")
        rows.append([*map(str, case), str(own.groupby(["seed", "fold"]).ngroups), *cells])
    return pipes([*by, "runs", *TARGETS], rows)


def readers_real(folder: Path) -> str:
    acne = pd.read_csv(folder / "readers_acne.csv").assign(
        case="ACNE04, six doctors, 2 or 3 readings"
    )
    brixia = pd.read_csv(folder / "readers_brixia.csv").assign(
        case="Brixia, one radiologist, half with reference"
    )
    votes = pd.read_csv(folder / "readers_votes.csv").query("votes in [1, 3, 10]")
    votes = votes.assign(case="APPA-REAL, votes: " + votes["votes"].astype(str))
    return reader_table(
        pd.concat([acne, brixia, votes]), "case", ["ours", "votes", "smoothed votes", "Dawid–Skene"]
    )


def reader_table(runs: pd.DataFrame, by: str, methods: list[str]) -> str:
    tables = [
        runs.pivot_table(index=by, columns="method", values=measure, sort=False)
        for measure in ("MAE", "log-loss")
    ]
    names = {"votes": "votes"} | {name: name for name in methods}
    head = [
        by,
        *(f"{measure}: {names[name]}" for measure in ("MAE", "log-loss") for name in methods),
    ]
    rows = [
        [str(case), *("–" if pd.isna(table.loc[case].get(name)) else f"{table.loc[case, name]:.3f}"
                      for table in tables for name in methods)]
        for case in tables[0].index
    ]  # fmt: skip
    return pipes(head, rows)


CROWDS = {  # name of the set → what it is
    "web": "relevance of web pages",
    "CF": "weather in short texts",
    "CF_amt": "the same, other workers",
    "dog": "breeds of dogs (no order)",
    "adult": "adult content",
    "relevance": "relevance of documents",
}
CROWD_METHODS = ("ours", "votes", "smoothed votes", "Dawid–Skene", "GLAD", "MACE")


def crowds(folder: Path) -> str:
    """Accuracy, MAE and log-loss of each method on public crowds."""
    runs = pd.read_csv(folder / "crowds_real.csv").set_index(["set", "method"])
    rows = []
    for name, text in CROWDS.items():
        row = [f"{text}: {runs.loc[(name, 'ours'), 'workers']} workers"]
        for method in CROWD_METHODS:
            scores = [
                f"{runs.loc[(name, method), one]:.3f}" for one in ("accuracy", "MAE", "log-loss")
            ]
            row.append(" / ".join(scores))
        rows.append(row)
    return pipes(["crowd", *CROWD_METHODS], rows)


def repeated_readings(folder: Path) -> str:
    """How well a second reading by the same reader is predicted."""
    runs = pd.read_csv(folder / "repeated_readings.csv")
    names = {"twice": "photographs, a month later", "platforms": "pathology, another platform"}
    rows = []
    for _, run in runs.iterrows():
        rows.append(
            [
                names[run["set"]],
                run["method"],
                f"{run['repeats: predicted']:.2f} / {run['repeats: observed']:.2f}",
                f"{run['log-loss of repeating']:.3f}",
                f"{run['log-loss of the grade']:.3f}",
            ]
        )
    head = ["readings", "prediction", "same grade: predicted / observed"]
    return pipes([*head, "log-loss: same grade", "log-loss: grade"], rows)


def ordinal_readers(folder: Path) -> str:
    """Heads on frozen features that learn from several readers: means over folds and seeds."""
    runs = pd.read_csv(folder / "ordinal_readers.csv")
    rows = []
    for method, of_method in runs.groupby("method", sort=False):
        row = [str(method)]
        for name in ("acne", "appareal"):
            mean = of_method[of_method["set"] == name][["MAE", "macro_f1", "log_loss"]].mean()
            row.append(" / ".join(f"{value:.3f}" for value in mean))
        rows.append(row)
    first = runs[runs["method"] == runs["method"].iloc[0]]
    head = []
    for name, text in (("acne", "ACNE04"), ("appareal", "APPA-REAL")):
        head.append(f"{text}, {(first['set'] == name).sum()} runs")
    return pipes(["method", *head], rows)


def feature_differences(folder: Path) -> str:
    """``srjt`` minus each other method, means over the cases whose test grades are true in each
    fold."""
    runs = feature_runs(folder)
    rows = []
    for name in ("standard", "eae", "co-teaching+ours", "f-correction"):
        tests = [lead(runs, name, column) for column in (MAE, MACRO_F1)]
        rows.append([*METHODS[name], *map(interval, tests)])
    return pipes(["told", "method", "MAE", "macro-F1"], rows)


def lead(runs: pd.DataFrame, other: str, column: str) -> PairedTest:
    """``srjt`` minus ``other`` on folds that chose nothing, by the corrected resampled t-test.
    Without EyePACS, whose test labels are noisy too and whose noise nobody knows."""
    runs = unseen(runs).query("set != 'eyepacs' and method in ['srjt', @other]")
    wide = runs.pivot_table(index=["fold", "set", "noise"], columns="method", values=column)
    assert not wide.isna().to_numpy().any(), f"srjt or {other} lacks runs"
    off = (wide["srjt"] - wide[other]).groupby("fold").mean()
    return corrected_t_test(off.to_numpy(), test_train_ratio=TEST_TO_TRAIN)


def interval(test: PairedTest) -> str:
    return f"{test.difference:+.3f} ({test.low:+.3f} to {test.high:+.3f})".replace("-", "−")


VERIFIED_SETS = {
    "acne_features": "ACNE04, a doctor's label, judged by networks",
    "acne_readings": "ACNE04, consensus of three doctors",
    "votes_features": "APPA-REAL, one vote, judged by networks",
    "votes_readings": "APPA-REAL, consensus of three votes",
}
VERIFIED_STATISTICS = {
    "noise rate": "share of wrong labels",
    "accuracy": "accuracy",
    "mae": "MAE",
    "qwk": "κ",
}


def active_verification(folder: Path) -> str:
    """Widths of intervals after 100 verified labels, and how many by doubt are worth 100 at
    random."""
    found = pd.read_csv(folder / "active_verification.csv")
    found["set"] = found["set"].str.replace(r"_seed\d+$", "", regex=True)
    rows = []
    for (data, statistic), part in found.groupby(["set", "statistic"], sort=False):
        at_100 = part[part["verified"] == 100]
        widths = at_100.groupby("drawn")["width"].mean()
        ratio = (widths["doubt"] / widths["random"]) ** 2
        # all labels at hand are known for certain when all are verified; scores are those of new
        # patients
        left = 1 / 100 - 1 / at_100["labels"].mean() if statistic == "noise rate" else 1 / 100
        needed = 1 / (1 / 100 - left + left / ratio)
        by_doubt = part[part["drawn"] == "doubt"]
        worst = by_doubt.groupby("verified")["covered"].mean().min()
        cells = [f"{widths[way]:.3f}" for way in ("random", "model", "doubt")]
        cells += [f"{needed:.0f}", f"{100 * part['at best'].mean():.0f}", f"{worst:.2f}"]
        rows.append([VERIFIED_SETS[data], VERIFIED_STATISTICS[statistic], *cells])
    head = [
        "labels",
        "what is wanted",
        "at random",
        "and a model",
        "by doubt",
        "labels for 100",
        "at best",
        "covered",
    ]
    return pipes(
        head,
        sorted(rows, key=lambda row: (row[0], list(VERIFIED_STATISTICS.values()).index(row[1]))),
    )


NEXT_GOALS = {
    "consensus": "the true grades",
    "readers": "error rates of the doctors",
    "model": "MAE of a network",
}


def next_readings(folder: Path) -> str:
    """The share of the readings after which a statement has 90 % of its certainty, and its error
    when half of them are bought."""
    sys.path.append(str(Path(__file__).parents[1]))
    benchmark = importlib.import_module("next_readings")
    found = benchmark.shares_needed(pd.read_csv(folder / "next_readings.csv"))
    means = found.groupby(["goal", "way"])[["share", "half"]].mean()
    rows = []
    for goal, name in NEXT_GOALS.items():
        cells = []
        for way in benchmark.WAYS:
            share, half = means.loc[(goal, way)]
            cells.append(f"{share:.0%} ({half:.3f})")
        rows.append([name, *cells])
    return pipes(["what is to be known", "by gain", "by entropy", "at random"], rows)


def language_model(folder: Path) -> str:
    """The sensitivity of a perfect classifier, by what judges it."""
    found = pd.read_csv(folder / "language_model.csv")
    means = found.groupby(["way", "read"])[["sensitivity", "low", "high"]].mean()
    names = {
        "seeming": "answers taken for true",
        "readings": "answers as one more reader",
        "verified": "answers as labels, people's grades as verified ones",
    }
    sizes = sorted(found["read"].unique())
    rows = []
    for way, name in names.items():
        cells = []
        for size in sizes:
            value, low, high = means.loc[(way, size)]
            ends = "" if way == "seeming" else f" ({low:.2f} to {high:.2f})"
            cells.append(f"{value:.2f}{ends}")
        rows.append([name, *cells])
    return pipes(["judged by", *(f"{size} images read by people" for size in sizes)], rows)


def purposes(folder: Path) -> str:
    """The most likely grade → the rule of the purpose, each judged by its purpose."""
    names = {
        "clean": "simulated, network predicts true grades",
        "noisy": "… noisy labels",
        "over-confident": "… noisy labels, over-confident",
        "soft": "… soft labels",
        "sord": "human votes, `sord`",
        "standard": "human votes, `standard`",
    }
    found = (
        pd.read_csv(folder / "purposes.csv").groupby(["network", "purpose", "rule"])["value"].mean()
    )
    rows = [
        [name, *(f"{found[network, what, 'argmax']:.3f} → {found[network, what, 'chosen']:.3f}"
                 for what in ("mae", "qwk", "macro_f1"))]
        for network, name in names.items()
    ]  # fmt: skip
    return pipes(["", "MAE ↓", "QWK ↑", "macro-F1 ↑"], rows)


def pooling(folder: Path) -> str:
    found = (
        pd.read_csv(folder / "pooling.csv").groupby(["images", "shown", "pooling"])["QWK"].mean()
    )
    names = ["highest", "mean", "naive", "learned"]
    rows = [
        [f"{images}, {'all' if shown == 1 else 'a fifth'}", *(f"{found[images, shown, name]:.3f}" for name in names)]
        for images in (2, 8, 40) for shown in (1.0, 0.2)
    ]  # fmt: skip
    return pipes(["images per patient, share of them that show the grade", *names], rows)


def duplicates(folder: Path) -> str:
    found = pd.read_csv(folder / "duplicates.csv")
    table = found.pivot_table(index="change", columns="set", values="share", sort=False)
    rows = [[change, *(f"{share:.0%}" for share in table.loc[change])] for change in table.index]
    return pipes(["change", *table.columns], rows)


def garg_start(folder: Path) -> str:
    """MAE / macro-F1 of each start, by length; means over settings and seeds."""
    found = pd.read_csv(folder / "garg_start.csv")
    names = {
        "zeros": "0 (published code)",
        "1 to -1": "1, …, −1",
        "spaced 4": "4 apart",
        "ours": "ours",
    }
    by = ["rows", "epochs"]
    table = found.groupby([*by, "start"])[["MAE", "macro_f1"]].mean().round(9)
    rows = [
        [
            f"{count} rows, {epochs} epochs",
            *("{:.3f} / {:.3f}".format(*table.loc[count, epochs, one]) for one in names),
        ]
        for count, epochs in dict.fromkeys(found[by].itertuples(index=False, name=None))
    ]
    return pipes(["MAE / macro-F1", *names.values()], rows)


def paper_hypotheses(folder: Path) -> str:
    """The hypotheses of paper_claims.yaml, as far as they have been tested."""
    return paper_claims.hypotheses_table(paper_claims.stored(folder))


def summary(folder: Path) -> str:
    """A row for each question: the doctors of ACNE04, and all else. In each cell ours stands
    first."""
    features = feature_runs(folder).query("set != 'eyepacs'")
    images = image_runs(folder)
    images = images[
        [case in TESTED_CASES for case in zip(images["set"], images["noise"], strict=True)]
    ]

    compared = {
        "acne": images[images["set"] == "acne"],
        "others": images[images["set"] != "acne"],
        "features": features,
    }
    tests = {name: lead(runs, "standard", MAE) for name, runs in compared.items()}
    p_values = dict(zip(tests, holm([test.p_value or 1.0 for test in tests.values()]), strict=True))

    def trained(name: str) -> str:
        """``srjt`` is judged as two networks, as its users have it, and each of the two alone
        beside the one of plain training."""
        runs = compared[name]
        mean = unseen(runs).groupby("method")[MAE].mean()
        alone = lead(runs, "standard", ONE_NETWORK).difference
        assert alone is not None
        each = f"each network alone {alone:+.3f}".replace("-", "−")
        means = f"**{mean['srjt']:.3f}**; plain training {mean['standard']:.3f}"
        return f"{means}: {interval(tests[name])}, p = {p_values[name]:.2f}; {each}"

    def found(name: str) -> str:
        means = pd.read_csv(folder / f"{name}.csv")[["AP ours", "cleanlab's best"]].mean()
        return f"**{means.iloc[0]:.2f}**; cleanlab {means.iloc[1]:.2f}"

    simulated = pd.read_csv(folder / "promises.csv").query("meets or promise == 'ranges-none'")
    covered = simulated[simulated["promise"] == "ranges-default"].set_index("setting")["got"]
    as_given = (
        simulated[simulated["promise"] == "ranges-none"]
        .set_index("setting")["got"]
        .reindex(covered.index)
    )
    held = f"**{covered.min():.0%}**; labels taken as right {as_given.min():.0%}"

    def read(runs: pd.DataFrame) -> str:
        losses = runs.groupby("method")["log-loss"].mean()
        others = ("smoothed votes", "Dawid–Skene")
        beside = ", ".join(f"{name} {losses[name]:.2f}" for name in others)
        return f"**{losses['ours']:.2f}**, without shared errors {losses['ours, independent']:.2f}; {beside}"

    til = pd.read_csv(folder / "readers_til.csv").groupby("method")["log-loss"].mean()
    panel = f"**{til[TIL]:.2f}**; smoothed votes {til['smoothed votes']:.2f}"
    acne = pd.read_csv(folder / "noise_rates_acne.csv").iloc[0]
    share = rate_text(acne["rate"] if acne["determined"] else None, (acne["low"], acne["high"]))
    rates = pd.read_csv(folder / "noise_rates_untuned.csv")
    ours, theirs = (
        (rates[name] - rates["true rate"]).abs().mean() for name in ("rate", "cleanlab")
    )
    rows = [
        ["a classifier: MAE by true grades, fine-tuned", trained("acne"),
         trained("others")],
        ["… heads on features", "–", trained("features")],
        ["how many labels are wrong",
         f"{acne['true rate']:.0%} are: **{share}**; cleanlab {acne['cleanlab']:.0%}",
         f"off by **{ours:.2f}**; cleanlab {theirs:.2f}"],
        ["which ones: average precision", found("label_errors_acne"), found("label_errors")],
        ["the true grade from two or three readings: log-loss (shared errors: chosen on ACNE04)",
         read(pd.read_csv(folder / "readers_acne.csv")),
         read(pd.read_csv(folder / "readers_seeds.csv").query("readings == 3"))],
        ["… beside a panel of experts (pathology)", "–", panel],
    ]  # fmt: skip
    if len(covered):
        rows.append(
            [
                f"ranges that promise 90 %: hold the truth, in the worst of {len(covered)} simulations",
                "–",
                held,
            ]
        )
    return pipes(
        [
            "question (**srjt** first)",
            "six doctors (ACNE04)",
            "other data, mostly with errors put in",
        ],
        rows,
    )


def promises(folder: Path) -> str:
    """What is promised and what is got: benchmarks/promises.py has the register, and writes the
    file."""
    sys.path.append(str(Path(__file__).parents[1]))
    register = importlib.import_module("promises")
    return pipes(register.HEADING, register.table(register.read(folder / "promises.csv")))


TABLES: dict[str, Callable[[Path], str]] = {
    "recipe-on-features": recipe_on_features,
    "recipe-on-images": recipe_on_images,
    "recipe-on-images-all": recipe_on_images_all,
    "recipe-differences": recipe_differences,
    "recipe-differences-all": recipe_differences_all,
    "few-labels": few_labels,
    "few-labels-longer": few_labels_longer,
    "few-labels-differences": few_labels_differences,
    "few-labels-networks": few_labels_networks,
    "few-labels-others": few_labels_others,
    "few-labels-purpose": few_labels_purpose,
    "few-labels-settings": few_labels_settings,
    "recipe-rates": recipe_rates,
    "recipe-optimisers": recipe_optimisers,
    "ramp": ramp,
    "noise-rates": noise_rates,
    "label-errors": label_errors,
    "readers-simulated": readers_simulated,
    "readers-peers": readers_peers,
    "readers-seeds": readers_seeds,
    "reader-targets": reader_targets,
    "readers-real": readers_real,
    "crowds": crowds,
    "repeated-readings": repeated_readings,
    "ordinal-readers": ordinal_readers,
    "feature-differences": feature_differences,
    "active-verification": active_verification,
    "next-readings": next_readings,
    "language-model": language_model,
    "purposes": purposes,
    "pooling": pooling,
    "duplicates": duplicates,
    "garg-start": garg_start,
    "paper-hypotheses": paper_hypotheses,
    "summary": summary,
    "promises": promises,
}
