"""The consensus of crowds: hundreds of workers, many with few labels, some who hardly look.

    python benchmarks/crowds.py simulated --seeds 3 --out crowds_simulated.csv
    python benchmarks/crowds.py real NAME LABELS TRUTH --out crowds_real.csv
    python benchmarks/crowds.py models NAME LABELS TRUTH   # the model of a crowd, and that of a few
    python benchmarks/crowds.py mixture NAME LABELS TRUTH  # ours, MACE and Dawid–Skene averaged
    python benchmarks/crowds.py table crowds_real.csv
    python benchmarks/crowds.py chance KEPT                # which differences are not chance

LABELS has the columns item, worker and label, TRUTH has item and truth; labels are whole numbers
from 0. Such files of public crowds are in github.com/yuan-li/truth-inference-at-scale. ``--drop``
leaves out labels that are no grades, such as a broken link; ``real`` appends to its file, and
``--keep KEPT`` keeps what each method loses on each item.

Beside ours: votes, smoothed votes, and small versions of Dawid–Skene (pseudo count 0.01), GLAD
(normal priors) and MACE (five random starts). A standard error is that of the paired difference to
ours, over items. For the log-loss every method's probabilities are mixed with 1 % of the uniform
distribution.

**Chance.** How often would ours be behind by more than a standard error if all methods were equal?
The differences of each crowd are centred, and its items are drawn again, the same for all methods and
scores. Of ours alone, Holm's correction over all comparisons tells which differences are not chance.

**Models.** Whether a crowd is one, the number of readers decides. Left-out readings would choose the
wrong model where it matters: a model of unclear items predicts readings better, and grades worse.

**Mixtures** were tried and dropped. Weights by the likelihood of left-out readings mend MACE's lead on
the web pages (log-loss 0.524 to 0.445), but choose methods with a worse log-loss for dogs (0.472 to
0.541) and CF_amt (0.599 to 0.678), and depend on which readings are left out. Half ours and half MACE is
better on web (0.435) and in seven of eight simulated crowds, and worse on dog (0.513), CF (0.452 to
0.461) and CF_amt (0.605).

**Simulated crowds**: 150 workers, 1,000 items, five labels each; half of the workers have fewer
than twelve. A fifth are spammers, who say any grade, or nearly always the same. ``names``: errors
to any grade, of which all prefer one; ``order``: to neighbouring grades; ``mixed``: both.
``misled``: order, and in 10 % of the items all see a neighbouring grade.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit, ndtr, softmax

from readers import make_readings, ours, scores, smoothed_votes, votes
from srjt.readers import Readings
from srjt.readers.readings import evidence_of
from srjt.readers.variants import fit_variants, predictive

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
WORLDS = ("names", "order", "mixed", "misled")
SPAMMERS = 0.2
MISLED = 0.1
FIRST_SEED = 70_000
DEPENDENT = 10.0  # so many left-out readings count as one
SCORES = ("accuracy", "MAE", "log-loss")  # of ``_each``


def crowd(
    world: str, seed: int, *, workers: int = 150, items: int = 1000, each: int = 5, classes: int = 3
) -> tuple[Readings, Ints]:
    """Readings and true grades."""
    rng = np.random.default_rng([seed, WORLDS.index(world)])
    true = rng.choice(classes, size=items, p=rng.dirichlet(np.full(classes, 5.0)))
    busy = rng.lognormal(0.0, 1.5, workers)
    reader = np.array(
        [rng.choice(workers, each, replace=False, p=busy / busy.sum()) for _ in range(items)]
    ).ravel()
    item = np.repeat(np.arange(items), each)
    near = np.exp(
        -2.0 * np.abs(np.subtract.outer(np.arange(classes), np.arange(classes)))
    ) - np.eye(classes)
    liked = rng.dirichlet(np.ones(classes), size=classes) * (1.0 - np.eye(classes))
    off = {"names": liked, "mixed": liked + near}.get(world, near)
    off = off / off.sum(axis=1, keepdims=True)
    right = rng.beta(5.0, 3.0, size=(workers, 1, 1))
    own = rng.dirichlet(np.ones(classes), size=(workers, classes)) * (1.0 - np.eye(classes))
    wrong = 0.7 * off + 0.3 * own / own.sum(axis=2, keepdims=True)
    matrices = right * np.eye(classes) + (1.0 - right) * wrong
    spammer = rng.random(workers) < SPAMMERS
    favourite = rng.integers(classes, size=workers)
    always = 0.9 * np.eye(classes)[favourite] + 0.1 / classes
    said = np.where((rng.random(workers) < 0.5)[:, None], always, 1.0 / classes)
    matrices = np.where(spammer[:, None, None], said[:, None, :], matrices)
    rows = matrices[reader, true[item]]
    grade = (rows.cumsum(axis=1) < rng.random((len(item), 1))).sum(axis=1).clip(0, classes - 1)
    if world == "misled":  # what all see is not the truth
        misled = rng.random(items) < MISLED
        true = np.where(misled, (true + rng.choice([-1, 1], items)).clip(0, classes - 1), true)
    return make_readings(item, reader, grade, classes=classes), true


def dawid_skene(readings: Readings, *, iterations: int = 100, smoothing: float = 0.01) -> Floats:
    """Dawid and Skene, 1979: a matrix for each worker, by expectation–maximisation from the votes."""
    classes = len(readings.grades)
    posterior = votes(readings)
    for _ in range(iterations):
        counts = np.full((len(readings.readers), classes, classes), smoothing)
        np.add.at(counts, (readings.reader, slice(None), readings.grade), posterior[readings.item])
        log_matrices = np.log(counts / counts.sum(axis=2, keepdims=True))
        log = np.tile(np.log(posterior.mean(axis=0) + 1e-12), (len(posterior), 1))
        np.add.at(log, readings.item, log_matrices[readings.reader, :, readings.grade])
        new = softmax(log, axis=1)
        if np.abs(new - posterior).max() < 1e-5:
            return np.asarray(new)
        posterior = new
    return posterior


def glad(readings: Readings, *, iterations: int = 50, steps: int = 5, rate: float = 0.2) -> Floats:
    """Whitehill and others, 2009: the ability of a worker times the ease of an item; wrong grades are alike."""
    classes = len(readings.grades)
    item = readings.item
    reader = readings.reader
    grade = readings.grade
    ability = np.ones(len(readings.readers))
    log_ease = np.zeros(len(readings.items))
    prior = np.log(np.bincount(grade, minlength=classes) / len(grade))
    posterior = votes(readings)
    for _ in range(iterations):
        right = expit(ability[reader] * np.exp(log_ease[item])).clip(1e-6, 1 - 1e-6)
        log = np.tile(prior, (len(log_ease), 1))
        each = np.tile(np.log((1.0 - right) / (classes - 1))[:, None], (1, classes))
        each[np.arange(len(item)), grade] = np.log(right)
        np.add.at(log, item, each)
        new = softmax(log, axis=1)
        for _ in range(steps):
            ease = np.exp(log_ease[item])
            off = new[item, grade] - expit(ability[reader] * ease)
            ability += (
                rate
                * (np.bincount(reader, off * ease, len(ability)) - (ability - 1.0))
                / _several(reader)
            )
            log_ease += (
                rate
                * (np.bincount(item, off * ability[reader] * ease, len(log_ease)) - log_ease)
                / _several(item)
            )
        if np.abs(new - posterior).max() < 1e-4:
            break
        posterior = new
    return np.asarray(new)


def _several(index: Ints) -> Floats:
    return 1.0 + np.bincount(index)


def mace(readings: Readings, *, restarts: int = 5, iterations: int = 50) -> Floats:
    """Hovy and others, 2013: a worker says the true grade, or spams by a distribution of their own."""
    classes = len(readings.grades)
    item = readings.item
    reader = readings.reader
    grade = readings.grade
    workers = len(readings.readers)
    rng = np.random.default_rng(0)
    best = (-np.inf, votes(readings))
    for _ in range(restarts):
        spams = rng.uniform(0.2, 0.8, workers)
        strategy = rng.dirichlet(np.full(classes, 5.0), workers)
        for _ in range(iterations):
            guess = spams[reader] * strategy[reader, grade]
            each = np.tile(np.log(guess + 1e-12)[:, None], (1, classes))
            each[np.arange(len(item)), grade] = np.log(guess + 1.0 - spams[reader] + 1e-12)
            log = np.zeros((len(readings.items), classes))
            np.add.at(log, item, each)
            posterior = softmax(log, axis=1)
            fit = float(np.logaddexp.reduce(log, axis=1).sum())
            same = posterior[item, grade]
            spam = 1.0 - same + same * guess / (guess + 1.0 - spams[reader] + 1e-12)
            spams = (np.bincount(reader, spam, workers) + 0.5) / (
                np.bincount(reader, minlength=workers) + 1.0
            )
            counts = np.full((workers, classes), 10.0 / classes)
            np.add.at(counts, (reader, grade), spam)
            strategy = counts / counts.sum(axis=1, keepdims=True)
        if fit > best[0]:
            best = fit, posterior
    return best[1]


METHODS = {
    "ours": ours,
    "votes": votes,
    "smoothed votes": smoothed_votes,
    "Dawid–Skene": dawid_skene,
    "GLAD": glad,
    "MACE": mace,
}


def judged(
    readings: Readings, rows: Ints, true: Ints
) -> tuple[list[dict[str, object]], dict[str, Floats]]:
    """Each method's scores on the items ``rows``, and how far ours is ahead: difference and standard
    error. And each method's answers."""
    answers = {}
    found = []
    for name, method in METHODS.items():
        start = time.perf_counter()
        answers[name] = method(readings)[rows]
        found.append(
            {"method": name, "seconds": time.perf_counter() - start, **scores(answers[name], true)}
        )
    own = _each(answers["ours"], true)
    for row in found:
        theirs = _each(answers[str(row["method"])], true)
        for name in own:
            off = own[name] - theirs[name]
            row |= {
                f"{name} behind": float(off.mean()),
                f"{name} error": float(off.std(ddof=1) / len(off) ** 0.5),
            }
    return found, answers


def _each(posterior: Floats, true: Ints) -> dict[str, Floats]:
    """Of every item, what ``scores`` averages; more is worse."""
    mixed = 0.99 * posterior + 0.01 / posterior.shape[1]
    median = (posterior.cumsum(axis=1)[:, :-1] < 0.5 - 1e-9).sum(axis=1)
    return {
        "accuracy": (posterior.argmax(axis=1) != true).astype(float),
        "MAE": np.abs(median - true).astype(float),
        "log-loss": -np.log(mixed[np.arange(len(true)), true]),
    }


def simulated(args: argparse.Namespace) -> None:
    rows: list[dict[str, object]] = []
    for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
        for world in WORLDS:
            readings, true = crowd(world, seed)
            for row in judged(readings, np.arange(len(true)), true)[0]:
                rows.append({"set": world, "seed": seed, **row})
            store(rows, args.out)


def read_crowd(args: argparse.Namespace) -> tuple[Readings, Ints, Ints]:
    """The readings, the items whose truth is known, and their true grades."""
    table, truth = (pd.read_csv(file) for file in (args.labels, args.truth))
    table.columns = ["item", "reader", "grade"]
    true = truth.set_index("item")["truth"]
    table = table[~table["grade"].isin(args.drop)]
    true = true[~true.isin(args.drop)]
    item, items = pd.factorize(table["item"])
    reader, _ = pd.factorize(table["reader"])
    classes = int(max(table["grade"].max(), true.max())) + 1
    readings = make_readings(item, reader, table["grade"].to_numpy(int), classes=classes)
    rows = np.flatnonzero(pd.Index(items).isin(true.index))
    return readings, rows, true.reindex(items[rows]).to_numpy(int)


def real(args: argparse.Namespace) -> None:
    readings, rows, true = read_crowd(args)
    sizes = {
        "workers": len(readings.readers),
        "items": len(readings.items),
        "labels": len(readings),
    }
    found: list[dict[str, object]] = []
    judgements, answers = judged(readings, rows, true)
    for row in judgements:
        found.append({"set": args.name, **sizes, "truths": len(rows), **row})
    if args.keep is not None:
        lost = {name: np.array(list(_each(p, true).values())) for name, p in answers.items()}
        args.keep.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(args.keep / f"{args.name}.npz", **lost)
    before = pd.read_csv(args.out).to_dict("records") if args.out.exists() else []
    store([*before, *found], args.out)


def chance(args: argparse.Namespace) -> None:
    """How many comparisons are behind by more than a standard error, how many would be if all
    methods were equal, and which are behind after Holm's correction."""
    rng = np.random.default_rng(FIRST_SEED)
    counts = np.zeros(args.draws)
    rows = []
    for file in sorted(args.kept.glob("*.npz")):
        with np.load(file) as stored:
            lost = {name: stored[name] for name in stored.files}
        own = lost.pop("ours")
        off = np.concatenate([own - theirs for theirs in lost.values()])  # (peers · scores, n)
        items = off.shape[1]
        mean = off.mean(axis=1)
        error = off.std(axis=1, ddof=1) / items**0.5
        names = [(file.stem, peer, score) for peer in lost for score in SCORES]
        for name, behind, spread in zip(names, mean, error, strict=True):
            rows.append((*name, behind, spread, behind / spread if spread else 0.0))
        centred = off - mean[:, None]
        for draw in range(args.draws):
            drawn = np.bincount(rng.integers(items, size=items), minlength=items) / items
            by_chance = centred @ drawn
            variance = (centred**2) @ drawn - by_chance**2
            counts[draw] += (by_chance > np.sqrt(variance.clip(0.0) / (items - 1)) + 1e-12).sum()
    table = pd.DataFrame(rows, columns=["set", "method", "score", "behind", "error", "z"])
    table["p"] = 1.0 - ndtr(table["z"])
    table = table.sort_values("p", ignore_index=True)
    table["Holm"] = (table["p"] * (len(table) - np.arange(len(table)))).cummax().clip(upper=1.0)
    seen = int((table["behind"] > table["error"]).sum())
    low, high = np.quantile(counts, [0.025, 0.975])
    print(
        f"behind by more than a standard error: {seen} of {len(table)}; if all methods were equal:"
        f" {counts.mean():.1f} (95 % of draws: {low:.0f} to {high:.0f}), as few or fewer in"
        f" {(counts <= seen).mean():.0%} of {args.draws:,} draws"
    )
    print(table[table["behind"] > table["error"]].round(4).to_string(index=False))


def models(args: argparse.Namespace) -> None:
    """Each model's scores, and the mean log-likelihood of readings that it has not seen."""
    readings, rows, true = read_crowd(args)
    evidence = evidence_of(readings, repeats="one reading")
    rest, held_out = evidence.hold_out()
    for name, most in (("of a few", len(readings.readers)), ("of a crowd", 0)):
        with patch("srjt.readers.readings._CROWD", most):
            found = scores(ours(readings)[rows], true)
            found["left-out readings"] = predictive(rest, held_out, fit_variants(rest).fits[0])
        shown = "  ".join(f"{score} {value:.3f}" for score, value in found.items())
        print(f"{args.name}, the model {name}: {shown}", flush=True)


def mixture(args: argparse.Namespace) -> None:
    """The scores of posteriors that are averaged by the likelihood of left-out readings."""
    readings, rows, true = read_crowd(args)
    print(f"{args.name}: of the items, accuracy is lost, MAE, log-loss")
    out = left_out(readings)
    rest = readings.rows(~out)
    likelihood, answers = [], []
    for method in (ours, mace, dawid_skene):
        likelihood.append(left_out_likelihood(method(rest), rest, readings.rows(out)))
        answers.append(method(readings)[rows])
    weights = softmax(np.array(likelihood) * out.sum() / DEPENDENT)
    tried = {"ours": [1.0, 0.0, 0.0], "MACE": [0.0, 1.0, 0.0], "Dawid–Skene": [0.0, 0.0, 1.0]}
    tried |= {"by likelihood": weights.tolist(), "half ours, half MACE": [0.5, 0.5, 0.0]}
    for name, shares in tried.items():
        found = _each(np.einsum("m,mnc->nc", shares, answers), true)
        shown = " / ".join(f"{values.mean():.3f}" for values in found.values())
        print(f"{name:22s} {np.round(shares, 2)}  {shown}", flush=True)


def left_out(readings: Readings) -> npt.NDArray[np.bool_]:
    """(M,) one reading of about a third of the items that have three or more."""
    rng = np.random.default_rng(1)
    several = np.bincount(readings.item) >= 3
    chosen = several & (rng.random(len(readings.items)) < 0.3)
    first = pd.Series(readings.item).sample(frac=1.0, random_state=1).drop_duplicates()
    out = np.zeros(len(readings.item), dtype=bool)
    out[first[chosen[first]].index] = True
    return out


def left_out_likelihood(posterior: Floats, rest: Readings, out: Readings) -> float:
    """The mean log-likelihood of left-out readings: each reader's matrix, by the posterior, is drawn
    to the mean matrix by five readings of each grade."""
    classes = len(rest.grades)
    counts = np.zeros((len(rest.readers), classes, classes))
    np.add.at(counts, (rest.reader, slice(None), rest.grade), posterior[rest.item])
    mean = counts.sum(axis=0) + 0.1
    matrices = counts + 5.0 * mean / mean.sum(axis=1, keepdims=True)
    matrices /= matrices.sum(axis=2, keepdims=True)
    said = posterior[out.item] * matrices[out.reader, :, out.grade]
    return float(np.log(said.sum(axis=1)).mean())


def store(rows: list[dict[str, object]], out: Path) -> None:
    pd.DataFrame(rows).round(5).to_csv(out, index=False)


def show(args: argparse.Namespace) -> None:
    table = pd.read_csv(args.out)
    for name in ("accuracy", "MAE", "log-loss", "seconds"):
        wide = table.pivot_table(index="set", columns="method", values=name, sort=False)
        print(f"\n{name}\n{wide.round(3).to_string()}")
    for name in ("accuracy", "MAE", "log-loss"):
        far = table[table[f"{name} behind"] > table[f"{name} error"]]
        print(f"\n{name}: ours is behind by more than a standard error")
        print(far[["set", "method", f"{name} behind", f"{name} error"]].to_string(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("simulated")
    one.add_argument("--seeds", type=int, default=3)
    one.add_argument("--out", type=Path, default=Path("crowds_simulated.csv"))
    one.set_defaults(run=simulated)
    two = commands.add_parser("real")
    two.add_argument("--out", type=Path, default=Path("crowds_real.csv"))
    two.add_argument("--keep", type=Path, help="a folder for what each method loses on each item")
    two.set_defaults(run=real)
    both = commands.add_parser("models")
    both.set_defaults(run=models)
    mixed = commands.add_parser("mixture")
    mixed.set_defaults(run=mixture)
    for command in (two, both, mixed):
        command.add_argument("name")
        command.add_argument("labels", type=Path)
        command.add_argument("truth", type=Path)
        command.add_argument("--drop", type=int, nargs="*", default=[])
    three = commands.add_parser("table")
    three.add_argument("out", type=Path)
    three.set_defaults(run=show)
    four = commands.add_parser("chance")
    four.add_argument("kept", type=Path)
    four.add_argument("--draws", type=int, default=2000)
    four.set_defaults(run=chance)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
