"""Simulations of several readers: their agreement, their errors, the consensus, and a network
beside them.

Readers see the severity with an error and a bias of their own. Half of the items are read by all,
the others by two.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from promised.population import Floats, Ints, Sample, Setting, draw, many, seeded
from promised.scores import Held, answers_of, confusion, holds
from srjt.errors import SrjtError
from srjt.inference.true_scores import true_scores
from srjt.ordinal.metrics import METRICS
from srjt.readers import Readings
from srjt.readers.agreement import COEFFICIENTS, Agreement, agreement
from srjt.readers.consensus import Consensus, consensus
from srjt.readers.network import compare_network
from srjt.readers.reader_plan import ReaderPlan, plan_items
from srjt.readers.repeats import repeats_of

RESAMPLES = 300
BLUR = 0.3  # of a reader, in severities
NETWORK_BLUR = 0.45  # of the network beside them
BIASES = (-0.15, 0.1, 0.05, 0.0, -0.1, 0.15)
MISLED = 0.12  # of the items, all readers see a neighbouring grade

# What is simulated, each called in one place.


def agreement_of(readings: Readings) -> Agreement:
    return agreement(readings, resamples=RESAMPLES)


def consensus_of(readings: Readings) -> Consensus:
    return consensus(readings)


def plan_of(readings: Readings, agree: Agreement) -> ReaderPlan:
    return plan_items(readings, agree)


# Readings.


def readings_of(
    setting: Setting, sample: Sample, rng: np.random.Generator
) -> tuple[Readings, Ints]:
    """The table, and all readings (N, R), also those that were not made."""
    size = len(sample)
    shown = sample.severity
    if setting.noise == "shared":
        misled = rng.random(size) < MISLED
        shown = shown + misled * rng.choice([-0.8, 0.8], size)
    blur = BLUR * rng.normal(size=(size, setting.readers))
    graded = np.searchsorted(
        setting.thresholds, shown[:, None] + np.array(BIASES[: setting.readers]) + blur
    )
    made = np.ones((size, setting.readers), dtype=bool)
    if setting.readers > 2:
        some = rng.random(size) < 0.5
        for item in np.flatnonzero(some).tolist():
            made[item, rng.permutation(setting.readers)[2:]] = False
    item, reader = np.nonzero(made)
    table = Readings(
        items=[str(place) for place in range(size)],
        readers=[f"reader {number}" for number in range(setting.readers)],
        grades=tuple(str(grade) for grade in range(setting.grades)),
        item=item,
        reader=reader,
        grade=graded[item, reader],
        groups=sample.groups,
    )
    return table, graded


@lru_cache
def true_agreement(setting: Setting) -> dict[str, float]:
    """Of many items; of the pair of the first two readers, too."""
    few = Setting(**{**vars(setting), "patients": max(5000, 30_000 // (setting.images or 4))})
    rng = seeded("readers", setting)
    found = agreement(readings_of(few, draw(few, rng), rng)[0], resamples=0)
    truths = {name: getattr(found, name).value for name in (*COEFFICIENTS, "exact", "within_one")}
    truths["pair"] = float(found.pairs["quadratic"][0])
    truths["bias"] = float(found.by_reader["bias"][0])
    return truths


def agree(setting: Setting, rng: np.random.Generator) -> Held:
    table, _ = readings_of(setting, draw(setting, rng), rng)
    found, truth = agreement_of(table), true_agreement(setting)
    held = {
        name: holds(getattr(found, name), truth[name])
        for name in (*COEFFICIENTS, "exact", "within_one")
    }
    pair, reader = found.pairs.iloc[0], found.by_reader.iloc[0]
    held["one pair"] = holds((pair["quadratic"], pair["low"], pair["high"]), truth["pair"])
    held["bias"] = holds((reader["bias"], reader["bias_low"], reader["bias_high"]), truth["bias"])
    return held


def planned(setting: Setting, rng: np.random.Generator) -> Held:
    """Whether the plausible numbers of items hold the number that is needed."""
    table, _ = readings_of(setting, draw(setting, rng), rng)
    try:
        found = plan_of(table, agreement_of(table))
    except SrjtError:  # a pilot that is too small
        return {}
    return {"items": holds((0.0, *found.plausible), _needed(setting, found.half_width))}


@lru_cache
def _needed(setting: Setting, half_width: float) -> float:
    """So many items have an interval of this half-width."""
    few = Setting(**{**vars(setting), "patients": max(1000, 6000 // (setting.images or 4))})
    rng = seeded("readers", setting)
    table, _ = readings_of(few, draw(few, rng), rng)
    return float(plan_of(table, agreement_of(table)).items)


def read_twice(setting: Setting, sample: Sample, rng: np.random.Generator) -> Readings:
    """All readers read all items twice; half of the variance of a reader's error comes back."""
    shape = (len(sample), setting.readers)
    own = sample.severity[:, None] + BLUR * np.sqrt(0.5) * rng.normal(size=shape)
    noise = BLUR * np.sqrt(0.5) * rng.normal(size=(*shape, 2))
    grade = np.searchsorted(setting.thresholds, own[:, :, None] + noise)
    item, reader, _ = np.indices(grade.shape)
    return Readings(
        items=[str(place) for place in range(len(sample))],
        readers=[f"reader {number}" for number in range(setting.readers)],
        grades=tuple(str(one) for one in range(setting.grades)),
        item=item.ravel(),
        reader=reader.ravel(),
        grade=grade.ravel(),
        groups=sample.groups,
    )


OF_A_READER = ("exact", "kappa", "difference", "limit_low", "limit_high")


@lru_cache
def true_repeats(setting: Setting) -> dict[str, float]:
    """Of many items."""
    few = Setting(**{**vars(setting), "patients": max(5000, 30_000 // (setting.images or 4))})
    rng = seeded("repeats", setting)
    found = repeats_of(read_twice(few, draw(few, rng), rng), resamples=0)
    assert found is not None
    truths = {name: float(found.by_reader[name][0]) for name in OF_A_READER}
    return truths | {"all": found.exact.value, "between": found.exact_between.value}


def read_again(setting: Setting, rng: np.random.Generator) -> Held:
    found = repeats_of(read_twice(setting, draw(setting, rng), rng), resamples=RESAMPLES)
    assert found is not None
    truth = true_repeats(setting)
    held = {
        "all": holds(found.exact, truth["all"]),
        "between": holds(found.exact_between, truth["between"]),
    }
    reader = found.by_reader.iloc[0]
    for name in OF_A_READER:
        interval = (reader[name], reader[f"{name}_low"], reader[f"{name}_high"])
        held[name] = holds(interval, truth[name])
    return held


def agreed_twice(setting: Setting, rng: np.random.Generator) -> Held:
    """How often readers err who have read every item twice, where the weight of second readings is
    estimated."""
    sample = draw(setting, rng)
    table = read_twice(setting, sample, rng)
    wrong = table.grade != sample.true[table.item]
    rates = np.bincount(table.reader, wrong) / np.bincount(table.reader)
    found = consensus(table, repeats="estimated")
    return _rates_hold(found, rates, float(wrong.mean()))


def _rates_hold(found: Consensus, rates: Floats, overall: float) -> Held:
    """rates: (R,) the share of wrong readings of each reader."""
    low, high = found.noise_rate_interval
    return {
        "each": float(((low - 1e-9 <= rates) & (rates <= high + 1e-9)).mean()),
        "all": holds((0.0, *found.overall_noise_rate_interval), overall),
    }


def agreed(setting: Setting, rng: np.random.Generator) -> Held:
    """The consensus: how often readers err, and it; a network's scores against the truth."""
    sample = draw(setting, rng)
    table, graded = readings_of(setting, sample, rng)
    found = consensus_of(table)
    made = graded[table.item, table.reader]
    wrong = made != sample.true[table.item]
    rates = np.array(
        [float((graded[:, reader] != sample.true).mean()) for reader in range(setting.readers)]
    )
    least, most = found.error_interval
    error = float((found.grade != sample.true).mean())
    in_intervals = _rates_hold(found, rates, float(wrong.mean()))
    held = {
        **{f"reader-rates: {name}": value for name, value in in_intervals.items()},
        "reader-bias": _biases_hold(found, graded, sample.true),
        "consensus-error": holds((error, least, most), error),
    }
    truth = _true_scores(setting)
    scores = true_scores(
        answers_of(sample, setting.grades, labels=found.grade), readings=table, resamples=RESAMPLES
    )
    if scores is not None and scores.basis == "readings":
        for metric, value in truth.items():
            held[f"true-scores-readings: {metric}"] = holds(scores.scores[metric], value)
    return held


def _biases_hold(found: Consensus, graded: Ints, true: Ints) -> float:
    bias = (graded - true[:, None]).mean(axis=0)
    low, high = found.bias_interval
    return float(((low - 1e-9 <= bias) & (bias <= high + 1e-9)).mean())


@lru_cache
def _true_scores(setting: Setting) -> dict[str, float]:
    new = many(setting)
    counts = confusion(new.true, new.predicted, setting.grades)
    return {name: float(METRICS[name](counts)) for name in ("accuracy", "mae", "qwk")}


def network_beside_readers(setting: Setting, rng: np.random.Generator) -> Held:
    """A network that is inferior by just the margin: is it said not to be?

    The network is one more reader, with a larger error. The margin is how much smaller its κ is on
    very many items.
    """
    sample = draw(setting, rng)
    table, _ = readings_of(setting, sample, rng)
    margin = _margin(setting)
    comparison = compare_network(
        table, _network(setting, sample, rng), margin=margin, resamples=RESAMPLES
    )
    return {
        "not-inferior": float(comparison.not_inferior),
        "network-difference": holds(comparison.difference, -margin),
    }


def _network(setting: Setting, sample: Sample, rng: np.random.Generator) -> Ints:
    """The grades of a network that sees the severity with an error of its own."""
    seen = sample.severity + NETWORK_BLUR * rng.normal(size=len(sample))
    return np.searchsorted(setting.thresholds, seen)


@lru_cache
def _margin(setting: Setting) -> float:
    """How much lower the κ of the network with the consensus is: mean of eight draws of 3,000 items,
    with a standard error of 0.0015. A single draw, with one of 0.004, would be another margin."""
    many_items = Setting(**{**vars(setting), "patients": 3000, "images": 1})
    differences = []
    for number in range(8):
        rng = seeded("margin", number, setting)
        sample = draw(many_items, rng)
        table, _ = readings_of(many_items, sample, rng)
        network = _network(many_items, sample, rng)
        differences.append(compare_network(table, network, resamples=1).difference.value)
    return -float(np.mean(differences))
