"""The consensus of several readers, beside majority, median, crowd-kit and cleanlab.

    python benchmarks/readers.py simulated --seeds 5 --methods ours votes
    python benchmarks/readers.py simulated --seeds 1       # all peers; GLAD and MACE take long
    python benchmarks/readers.py acne FILE                 # item, reader, grade, published_grade
    python benchmarks/readers.py brixia FILE               # item, image, reader (senior, junior), grade
    python benchmarks/readers.py votes FILE LABELS         # image, vote, grade; image, true_grade
    python benchmarks/readers.py til FOLDER                # til_readings: chooses SHARED_ERRORS by a panel of experts
    python benchmarks/readers.py time                      # 1 million readings by 100 readers; or --readers 5000

Simulated readers have matrices from the model's own family (``ordinal``: errors depend on the grade
alone, ``severity``: on the severity within the grade, ``difficult``: also on the image) and from
outside it (``irregular``: random rows around an ordinal matrix, ``nominal``: errors to any grade).
Every method's probabilities are mixed with 1 % of the uniform distribution for the log-loss; the
grade for the MAE is their median, for the accuracy their mode.

**SHARED_ERRORS.** ``til`` asks a panel by a rule that was written before it was applied: the amount of
0, 0.25, 0.5, 0.75 and 1 under which the grades of the panel are likeliest, if its experts err, too: the
mean log-likelihood (``panel``) of 20 draws of two and of three readings. A bootstrap over slides tells
how often each amount would be chosen; it does not decide. The curve of five draws was known. The rule
says 1; docs/evidence.md says why the constant is still 0.5.

**How frequent the grades are** does not enter shared errors. Two rules in which it does were tried:
shared errors that leave the shares of the grades as they are (log-loss of the panel 1.47 instead of
1.33, ACNE04 0.628 instead of 0.621, APPA-REAL equal), and Bayes' rule with the estimated shares (1.98,
0.613, and 1.12 instead of 1.01 with three votes).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr

from srjt.readers import Consensus, Readings, consensus
from srjt.readers.consensus import true_given_seen

Floats = npt.NDArray[np.float64]
Method = Callable[[Readings], Floats]

WORLDS = ("ordinal", "severity", "difficult", "irregular", "nominal")
COUNTS = (1, 2, 3, 5, 10)
AMOUNTS = (
    0.0,
    0.25,
    0.5,
    0.75,
    1.0,
)  # of shared errors, as a multiple of those that a reader makes alone
RESAMPLES = 2_000  # of slides
FIRST_SEED = 40_000  # the model was developed on other seeds


def simulate(
    world: str, *, count: int, seed: int
) -> tuple[Readings, npt.NDArray[np.int64], Floats]:
    """Readings, the true grades, and each reader's noise rate (2, R): as expected on the items, and
    as it happened."""
    rng = np.random.default_rng([seed, WORLDS.index(world), count])
    classes, items = int(rng.integers(3, 8)), int(rng.choice([200, 600]))
    readers = max(count, int(rng.choice([2, 3, 6, 12, 50])))
    true = rng.choice(classes, size=items, p=rng.dirichlet(np.full(classes, 2.0)))
    item = np.repeat(np.arange(items), count)
    reader = np.argsort(rng.random((items, readers)), axis=1)[:, :count].ravel()
    shares = _shares(
        world, rng, true=true, item=item, reader=reader, classes=classes, readers=readers
    )
    grade = (shares.cumsum(axis=1) < rng.random((len(item), 1))).sum(axis=1).clip(0, classes - 1)
    missed = 1.0 - shares[np.arange(len(item)), true[item]]
    rates = [
        np.bincount(reader, wrong) / np.bincount(reader).clip(1)
        for wrong in (missed, grade != true[item])
    ]
    return make_readings(item, reader, grade, classes=classes), true, np.array(rates)


def _shares(
    world: str,
    rng: np.random.Generator,
    *,
    true: npt.NDArray[np.int64],
    item: npt.NDArray[np.int64],
    reader: npt.NDArray[np.int64],
    classes: int,
    readers: int,
) -> Floats:
    """(M, C) the distribution of each reading."""
    if world == "nominal":
        right = rng.uniform(0.4, 0.9, size=(readers, 1, 1))
        matrices = (1.0 - right) * rng.dirichlet(np.full(classes, 0.5), size=(readers, classes))
        return (matrices + right * np.eye(classes))[reader, true[item]]
    if world == "irregular":
        near = np.exp(-1.2 * np.abs(np.subtract.outer(np.arange(classes), np.arange(classes))))
        base = 0.5 * np.eye(classes) + 0.5 * near
        strength = float(rng.choice([5.0, 20.0])) / base.sum(axis=1)
        rows = [
            [rng.dirichlet(strength[c] * base[c] + 0.05) for c in range(classes)]
            for _ in range(readers)
        ]
        return np.array(rows)[reader, true[item]]
    severity = true.astype(np.float64)
    if world != "ordinal":
        severity += rng.uniform(-0.5, 0.5, size=len(true))
    effort = (
        np.exp(rng.normal(0.0, 0.7, size=len(true))) if world == "difficult" else np.ones(len(true))
    )
    bias = rng.normal(0.0, 0.3, size=readers)[reader]
    spread = (rng.uniform(0.3, 0.7) * np.exp(rng.normal(0.0, 0.4, size=readers)))[reader] * effort[
        item
    ]
    lapse = rng.beta(0.5, 8.0, size=readers)[reader, None]
    limits = np.arange(classes - 1) + 0.5
    below = ndtr((limits - (severity[item] + bias)[:, None]) / spread[:, None])
    ends = np.zeros((len(item), 1)), np.ones((len(item), 1))
    return (1.0 - lapse) * np.diff(np.hstack([ends[0], below, ends[1]]), axis=1) + lapse / classes


def make_readings(
    item: npt.NDArray[np.int64],
    reader: npt.NDArray[np.int64],
    grade: npt.NDArray[np.int64],
    *,
    classes: int,
) -> Readings:
    return Readings(
        items=[str(i) for i in range(int(item.max()) + 1)],
        readers=[str(r) for r in range(int(reader.max()) + 1)],
        grades=tuple(str(c) for c in range(classes)),
        item=item,
        reader=reader,
        grade=grade,
    )


def votes(readings: Readings) -> Floats:
    shares = np.zeros((len(readings.items), len(readings.grades)))
    np.add.at(shares, (readings.item, readings.grade), 1.0)
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)


def smoothed_votes(readings: Readings) -> Floats:
    """A vote counts 0.3 for each neighbouring grade, and every grade has a tenth of a vote."""
    counts = np.zeros((len(readings.items), len(readings.grades)))
    np.add.at(counts, (readings.item, readings.grade), 1.0)
    near = np.abs(np.subtract.outer(np.arange(counts.shape[1]), np.arange(counts.shape[1]))) == 1
    counts = counts + 0.3 * counts @ (near / near.sum(axis=1, keepdims=True)) + 0.1
    return counts / counts.sum(axis=1, keepdims=True)


def ours(readings: Readings) -> Floats:
    return consensus(readings).posterior


def independent(readings: Readings) -> Floats:
    """Ours, as if readers shared no errors."""
    return consensus(readings, shared_errors=0.0).posterior


def crowd_kit(name: str) -> Method:
    def run(readings: Readings) -> Floats:
        from crowdkit import aggregation

        table = pd.DataFrame(
            {"task": readings.item, "worker": readings.reader, "label": readings.grade}
        )
        made = {
            "Dawid–Skene": lambda: aggregation.DawidSkene(n_iter=100),
            "GLAD": lambda: aggregation.GLAD(n_iter=20, silent=True),
            "MACE": lambda: aggregation.MACE(n_restarts=3, random_state=0),
        }[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = made.fit_predict_proba(table)
        shape = {"index": range(len(readings.items)), "columns": range(len(readings.grades))}
        p = found.reindex(**shape, fill_value=0.0).fillna(0.0).to_numpy(dtype=np.float64)
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.maximum(total, 1e-12), 1.0 / p.shape[1])

    return run


def cleanlab(readings: Readings) -> Floats:
    """CROWDLAB without a network: its probabilities are the shares of the grades. The rest of its
    quality is spread."""
    from cleanlab.multiannotator import get_label_quality_multiannotator

    items, classes = len(readings.items), len(readings.grades)
    wide = np.full((items, len(readings.readers)), np.nan)
    wide[readings.item, readings.reader] = readings.grade
    shares = np.bincount(readings.grade, minlength=classes) / len(readings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = get_label_quality_multiannotator(
            pd.DataFrame(wide), np.tile(shares, (items, 1)), verbose=False
        )["label_quality"]
    label = table["consensus_label"].to_numpy().astype(int)
    quality = np.clip(
        table["consensus_quality_score"].to_numpy(dtype=np.float64), 1.0 / classes, 1.0
    )
    p = np.repeat(((1.0 - quality) / (classes - 1))[:, None], classes, axis=1)
    p[np.arange(items), label] = quality
    return p


def methods(names: list[str] | None = None) -> dict[str, Method]:
    """Ours and the peers that are installed."""
    found: dict[str, Method] = {
        "ours": ours,
        "ours, independent": independent,
        "votes": votes,
        "smoothed votes": smoothed_votes,
    }
    try:
        import crowdkit  # noqa: F401

        found |= {name: crowd_kit(name) for name in ("Dawid–Skene", "GLAD", "MACE")}
    except ImportError:
        print("crowd-kit is not installed: its columns are left out (pip install crowd-kit)")
    try:
        import cleanlab as installed  # noqa: F401

        found["cleanlab"] = cleanlab
    except ImportError:
        print('cleanlab is not installed: its column is left out (pip install "srjt[benchmarks]")')
    return {name: method for name, method in found.items() if not names or name in names}


def scores(posterior: Floats, true: npt.NDArray[np.int64]) -> dict[str, float]:
    classes = posterior.shape[1]
    mixed = 0.99 * posterior + 0.01 / classes
    median = (posterior.cumsum(axis=1)[:, :-1] < 0.5 - 1e-9).sum(axis=1)
    mode, sure = posterior.argmax(axis=1), posterior.max(axis=1)
    right = mode == true
    place = np.minimum((10 * sure).astype(int), 9)
    gaps = [abs(float((right[place == b] - sure[place == b]).sum())) for b in range(10)]
    return {
        "accuracy": float(right.mean()),
        "MAE": float(np.abs(median - true).mean()),
        "log-loss": float(-np.log(mixed[np.arange(len(true)), true]).mean()),
        "calibration error": sum(gaps) / len(true),
    }


def show(rows: list[dict[str, object]], by: list[str], out: Path | None = None) -> None:
    """Print the means by ``by`` and method; with ``out``, also write every row."""
    table = pd.DataFrame(rows)
    if out is not None:
        table.round(5).to_csv(out, index=False)
    for measure in ("MAE", "log-loss", "accuracy", "calibration error", "seconds"):
        wide = table.pivot_table(index=by, columns="method", values=measure, sort=False)
        print(f"\n{measure}\n{wide.round(3).to_string()}", flush=True)


def simulated(args: argparse.Namespace) -> None:
    rows: list[dict[str, object]] = []
    chosen = methods(args.methods)
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for world in args.worlds:
            for count in args.counts:
                readings, true, rates = simulate(world, count=count, seed=seed)
                for name, method in chosen.items():
                    if name == "cleanlab" and count == 1:
                        continue  # it asks for several readings of an item
                    start = time.perf_counter()
                    row: dict[str, object] = {
                        "seed": seed, "world": world, "readings": count, "readers": len(readings.readers),
                        "method": name,
                    }  # fmt: skip
                    if name == "ours":
                        found = consensus(readings)
                        p = found.posterior
                        row |= interval_counts(found, rates)
                    else:
                        p = method(readings)
                    rows.append(row | {"seconds": time.perf_counter() - start} | scores(p, true))
        show(rows, ["world", "readings"], args.out)
    show(rows, ["readings"])
    show_intervals(pd.DataFrame(rows))


def interval_counts(found: Consensus, rates: Floats) -> dict[str, object]:
    """How many readers have a 95 % interval of their noise rate, and how many of these hold the
    rate (the expected one, and the share of wrong readings that the reader made); the same of the
    expected rate of all readings together."""
    if not found.determined:
        return {}
    low, high = found.noise_rate_interval
    made = found.readings > 0
    first, last = found.overall_noise_rate_interval
    overall = float(rates[0] @ found.readings / found.readings.sum())
    return {
        "intervals": int(made.sum()),
        "hold": int(((low <= rates[0]) & (rates[0] <= high))[made].sum()),
        "hold made": int(((low <= rates[1]) & (rates[1] <= high))[made].sum()),
        "width": float((high - low)[made].sum()),
        "overall holds": float(first <= overall <= last),
    }


def show_intervals(table: pd.DataFrame) -> None:
    """How far ours is ahead of the median vote, and how many intervals hold what they should."""
    ours = table[table["method"] == "ours"]
    median = table[table["method"] == "votes"]
    if len(ours) and len(median):
        by = ["seed", "world", "readings"]
        off = ours.set_index(by)["MAE"] - median.set_index(by)["MAE"]
        grouped = off.groupby("readings")
        print("\nMAE, ours − median vote: mean and standard error over the data sets")
        print(pd.DataFrame({"mean": grouped.mean(), "error": grouped.sem()}).round(4).to_string())
    if "hold" in ours:
        by_count = ours.groupby("readings")[
            ["intervals", "hold", "hold made", "width", "overall holds"]
        ]
        sums = by_count.sum()
        print(
            "\nshare of the 95 % intervals that hold a reader's noise rate, their width; that of all readings"
        )
        shares = {name: sums[name] / sums["intervals"] for name in ("hold", "hold made", "width")}
        print(
            pd.DataFrame(shares | {"overall": by_count.mean()["overall holds"]})
            .round(3)
            .to_string()
        )
        print(f"all: {sums['hold'].sum() / sums['intervals'].sum():.3f}")


def acne(args: argparse.Namespace) -> None:
    table = pd.read_csv(args.file)
    item, items = pd.factorize(table["item"])
    reader, _ = pd.factorize(table["reader"])
    classes = int(max(table["grade"].max(), table["published_grade"].max())) + 1
    readings = make_readings(item, reader, table["grade"].to_numpy(), classes=classes)
    true = table.groupby("item")["published_grade"].first().reindex(items).to_numpy()
    rows: list[dict[str, object]] = []
    for name, method in methods(args.methods).items():
        start = time.perf_counter()
        p = method(readings)
        rows.append(
            {
                "set": "acne",
                "method": name,
                "seconds": time.perf_counter() - start,
                **scores(p, true),
            }
        )
    show(rows, ["set"], args.out)
    print(consensus(readings))


def brixia(args: argparse.Namespace) -> None:
    """The senior radiologist is the reference for half of the images; the junior's readings of the
    other half."""
    table = pd.read_csv(args.file)
    wide = table.pivot(index="item", columns="reader", values="grade").dropna().astype(int)
    image = table.drop_duplicates("item").set_index("item")["image"].reindex(wide.index)
    names = np.random.default_rng(args.first_seed).permutation(image.unique())
    known = image.isin(names[: len(names) // 2]).to_numpy()
    senior, junior = wide["senior"].to_numpy(), wide["junior"].to_numpy()
    one = np.zeros(len(wide), dtype=np.int64)
    alone = make_readings(np.arange(len(wide)), one, junior, classes=4)
    checked = Readings(**{**vars(alone), "reference": np.where(known, senior, -1)})
    rows: list[dict[str, object]] = []
    for name, p in (("ours", consensus(checked).posterior), ("votes", votes(alone))):
        rows.append(
            {"set": "brixia", "method": name, "seconds": 0.0, **scores(p[~known], senior[~known])}
        )
    show(rows, ["set"], args.out)


def crowd(args: argparse.Namespace) -> None:
    """Consensus of k random votes; the crowd is one reader whose readings are independent."""
    table, labels = pd.read_csv(args.file), pd.read_csv(args.labels)
    truth = labels.set_index("image")["true_grade"]
    classes = int(max(table["grade"].max(), truth.max())) + 1
    rows: list[dict[str, object]] = []
    chosen = methods(args.methods)
    for count in COUNTS:
        mixed = table.sample(frac=1.0, random_state=args.first_seed + count)
        drawn = mixed.groupby("image", sort=False).head(count)
        item, images = pd.factorize(drawn["image"])
        true = truth.reindex(images).to_numpy()
        grade, one = drawn["grade"].to_numpy(), np.zeros(len(drawn), dtype=np.int64)
        readings = make_readings(item, one, grade, classes=classes)
        # Peers that need a worker for each vote of an item get the vote's number: exchangeable
        # workers.
        number = drawn.groupby("image").cumcount().to_numpy()
        numbered = make_readings(item, number, grade, classes=classes)
        known = np.full(len(true), -1)
        known[:200] = true[:200]
        checked = Readings(**{**vars(readings), "reference": known})
        runs: dict[str, Callable[[], Floats]] = {
            "ours": lambda r=readings: consensus(r, repeats="independent").posterior,
            "ours, independent": lambda r=readings: (
                consensus(r, repeats="independent", shared_errors=0.0).posterior
            ),
            "ours, 200 known": lambda r=checked: consensus(r, repeats="independent").posterior,
        }
        runs |= {
            name: lambda m=method, r=numbered: m(r)
            for name, method in chosen.items()
            if not name.startswith("ours")
        }
        for name, run in runs.items():
            if name == "cleanlab" and count == 1:
                continue
            start = time.perf_counter()
            p = run()
            passed = time.perf_counter() - start
            rows.append(
                {"votes": count, "method": name, "seconds": passed, **scores(p[200:], true[200:])}
            )
    show(rows, ["votes"], args.out)


def til(args: argparse.Namespace) -> None:
    """The amount of shared errors that a panel of experts who are not readers finds likeliest.

    FOLDER: readings.csv (item, slide, reader, grade) and expert_panel.csv (the same), of regions of
    pathology slides. The truth is the lower median of the panel. Of each item two or three readings
    are drawn, as many as people usually have. Errors that readers share have no direction, so the
    posterior of every amount follows from one fit. Experts err, too: ``panel`` is the mean
    log-likelihood of all their readings, relative to that of experts who know nothing.
    """
    table = pd.read_csv(args.folder / "readings.csv").dropna(subset=["grade"])
    panel = pd.read_csv(args.folder / "expert_panel.csv").dropna(subset=["grade"])
    truth = panel.groupby("item")["grade"].quantile(0.5, interpolation="lower").astype(int)
    slide = panel.groupby("item")["slide"].first()
    classes = int(max(table["grade"].max(), truth.max())) + 1
    likelihood = panel_likelihood(panel, classes=classes)
    rows: list[dict[str, object]] = []
    by_item: list[pd.DataFrame] = []
    for draw, count in product(range(args.draws), (2, 3)):
        mixed = table.sample(frac=1.0, random_state=args.first_seed + draw)
        drawn = mixed.drop_duplicates(["item", "reader"]).groupby("item", sort=False).head(count)
        item, items = pd.factorize(drawn["item"])
        reader, _ = pd.factorize(drawn["reader"])
        readings = make_readings(item, reader, drawn["grade"].to_numpy(int), classes=classes)
        found = consensus(readings, shared_errors=0.0)
        judged = np.flatnonzero(pd.Index(items).isin(truth.index))
        answers = {
            f"ours, shared errors {amount:g}": found.posterior
            @ true_given_seen(found.mean_matrix, amount)
            for amount in AMOUNTS
        }
        answers |= {"votes": votes(readings), "smoothed votes": smoothed_votes(readings)}
        true = truth.reindex(items[judged]).to_numpy()
        by_true = likelihood.reindex(items[judged]).to_numpy()
        told = {}
        for name, p in answers.items():
            blurred = 0.99 * p[judged] + 0.01 / classes
            told[name] = np.log((blurred * by_true).sum(axis=1))
            known = {"draw": draw, "readings": count, "method": name}
            mean = {"panel": float(told[name].mean())}
            rows.append(known | scores(p[judged], true) | mean)
        by_item.append(pd.DataFrame(told, index=items[judged]))
    table = pd.DataFrame(rows)
    if args.out is not None:
        table.round(5).to_csv(args.out, index=False)
    means = pd.concat(by_item).groupby(level=0).mean()
    chosen = chosen_amounts(means, slide.reindex(means.index), seed=args.first_seed)
    print(
        f"{truth.size} regions of {slide.nunique()} slides with a panel of experts, {args.draws}"
        " draws of two and of three readings"
    )
    columns = ["log-loss", "MAE", "calibration error", "panel"]
    shown = table.groupby("method", sort=False)[columns].mean()
    print(shown.join(chosen).round(3).to_string())


def chosen_amounts(told: pd.DataFrame, slide: pd.Series, *, seed: int) -> pd.DataFrame:
    """Of each amount: how far it is behind the likeliest one, the standard error of this by a
    bootstrap over slides, and the share of the draws in which it is the likeliest one.

    told: a row for each item, a column for each method.
    """
    names = [f"ours, shared errors {amount:g}" for amount in AMOUNTS]
    owner, slides = pd.factorize(slide)
    per_slide = told[names].groupby(owner).agg(["sum", "size"])
    sums = per_slide.xs("sum", axis=1, level=1).to_numpy()
    sizes = per_slide.xs("size", axis=1, level=1).to_numpy()[:, 0]
    best = int(told[names].mean().to_numpy().argmax())
    rng = np.random.default_rng(seed)
    times = rng.multinomial(len(slides), np.full(len(slides), 1.0 / len(slides)), size=RESAMPLES)
    means = times @ sums / (times @ sizes)[:, None]
    behind = means[:, [best]] - means
    likeliest = np.bincount(means.argmax(axis=1), minlength=len(names)) / RESAMPLES
    mean = told[names].mean()
    return pd.DataFrame(
        {"behind": mean.max() - mean, "error": behind.std(axis=0), "likeliest": likeliest},
        index=names,
    )


def panel_likelihood(panel: pd.DataFrame, *, classes: int) -> pd.DataFrame:
    """A row for each item, a column for each true grade: how likely the readings of the experts are
    if it is true, who err independently, relative to the mean over the grades."""
    panel = panel.drop_duplicates(["item", "reader"])
    item, items = pd.factorize(panel["item"])
    reader, _ = pd.factorize(panel["reader"])
    readings = make_readings(item, reader, panel["grade"].to_numpy(int), classes=classes)
    found = consensus(readings, shared_errors=0.0)
    return pd.DataFrame(found.posterior / found.prior, index=items)


def million(args: argparse.Namespace) -> None:
    rng = np.random.default_rng(args.first_seed)
    items, readers, classes = 333_334, args.readers, 5
    true = rng.choice(classes, size=items, p=[0.4, 0.25, 0.15, 0.1, 0.1])
    item = np.repeat(np.arange(items), 3)[:1_000_000]
    reader = rng.integers(0, readers, size=len(item))
    shares = _shares(
        "severity", rng, true=true, item=item, reader=reader, classes=classes, readers=readers
    )
    grade = (shares.cumsum(axis=1) < rng.random((len(item), 1))).sum(axis=1).clip(0, classes - 1)
    readings = make_readings(item, reader, grade, classes=classes)
    start, cpu = time.perf_counter(), time.process_time()
    found = consensus(readings)
    passed, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(
        f"{len(readings):,} readings by {readers} readers: {passed:.0f} s, {cpu:.0f} s of processor time"
    )
    print({name: round(value, 3) for name, value in scores(found.posterior, true).items()})
    print(f"MAE of the median vote {scores(votes(readings), true)['MAE']:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("simulated")
    one.add_argument("--seeds", type=int, default=2)
    one.add_argument("--worlds", nargs="+", default=WORLDS, choices=WORLDS)
    one.add_argument("--counts", nargs="+", type=int, default=COUNTS, choices=COUNTS)
    one.set_defaults(run=simulated)
    two = commands.add_parser("acne")
    two.add_argument("file", type=Path)
    two.set_defaults(run=acne)
    three = commands.add_parser("votes")
    three.add_argument("file", type=Path)
    three.add_argument("labels", type=Path)
    three.set_defaults(run=crowd)
    five = commands.add_parser("brixia")
    five.add_argument("file", type=Path)
    five.set_defaults(run=brixia)
    six = commands.add_parser("til")
    six.add_argument("folder", type=Path)
    six.add_argument("--draws", type=int, default=20)
    six.set_defaults(run=til)
    four = commands.add_parser("time")
    four.add_argument("--readers", type=int, default=100)
    four.set_defaults(run=million)
    for command in (one, two, three):
        command.add_argument(
            "--methods", nargs="+", help="only these, for example ours votes Dawid–Skene"
        )
    for command in (one, two, three, five, six):
        command.add_argument(
            "--out", type=Path, help="a CSV file with a row for each method and data set"
        )
    for command in (one, two, three, four, five, six):
        command.add_argument("--first-seed", type=int, default=FIRST_SEED)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
