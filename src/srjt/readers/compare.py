"""Is a network as good as a reader? The network is one more reader among them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.errors import SrjtError
from srjt.ordinal.intervals import Interval
from srjt.readers.coefficients import weighted_kappa
from srjt.readers.consensus import posterior_median
from srjt.readers.evidence import Evidence, evidence_of
from srjt.readers.fit import Fit, maximise
from srjt.readers.pairs import first_readings
from srjt.readers.readings import Readings
from srjt.readers.variants import Variants, fit_variants

__all__ = ["NetworkComparison", "compare_network"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NetworkComparison:
    """The network beside the readers. Kappas are quadratic; nan where they are undefined.

    ``by_reader`` has a row for each reader that shares items with another one: ``reader``, ``items`` (that others have
    read too), ``network_kappa`` and ``others_kappa`` (the reader's κ with the network, and with the other readers),
    ``reader_to_consensus`` and ``network_to_consensus`` (κ of the reader and of the network with the consensus of all
    *other* readers, on the same items) and ``difference`` (network − reader) with ``low`` and ``high``.
    """

    by_reader: pd.DataFrame
    difference: (
        Interval  # mean over the readers of network − reader, both against the consensus of the others
    )
    margin: float
    not_inferior: bool  # whether the interval lies above −margin
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON keeps them; None where something is undefined."""
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        rows = self.by_reader.astype(object).where(self.by_reader.notna(), None).to_dict("records")
        values = {k: v if np.isfinite(v) else None for k, v in self.difference._asdict().items()}
        return plain | {"by_reader": rows, "difference": values}


def compare_network(
    readings: Readings,
    predicted: npt.ArrayLike,
    *,
    margin: float = 0.05,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> NetworkComparison:
    """Compare a network with each reader, leaving that reader out of the consensus.

    Both are compared with the consensus of the *other* readers on the items that the reader has read, so neither is
    judged by itself. The network must not have been trained on these items.

    Parameters
    ----------
    readings : Readings
        Its ``reference`` is not used; its ``groups`` are resampled.
    predicted : (I,) array of int
        The network's grade of each item, −1 where there is none.
    margin : float
        The network is not inferior if its κ is at most this much below the readers', with confidence.
    resamples, seed, confidence
        Of the bootstrap over the patients.

    Returns
    -------
    NetworkComparison

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 4, size=200)
    >>> item, reader = np.repeat(np.arange(200), 3), np.tile([0, 1, 2], 200)
    >>> error = np.where(rng.random(600) < 0.3, rng.choice([-1, 1], size=600), 0)
    >>> readings = Readings(
    ...     items=[f"{i}.png" for i in range(200)],
    ...     readers=["Kim", "Lee", "May"],
    ...     grades=("0", "1", "2", "3"),
    ...     item=item,
    ...     reader=reader,
    ...     grade=(true[item] + error).clip(0, 3),
    ... )
    >>> compare_network(readings, true, resamples=100).not_inferior
    True
    """
    Readings.check(readings)
    network = _check(readings, predicted, margin=margin, resamples=resamples, confidence=confidence)
    classes, owner = len(readings.grades), readings.owner()
    weights = _weights(int(owner.max()) + 1, resamples, seed=seed)
    visits = first_readings(readings)
    number = np.bincount(visits.item, minlength=len(readings.items))
    tails = ((1.0 - confidence) / 2.0, 1.0 - (1.0 - confidence) / 2.0)
    evidence = evidence_of(Readings(**{**vars(readings), "reference": None}), repeats="one reading")
    variants = fit_variants(evidence)
    rows: list[dict[str, Any]] = []
    draws: list[Floats] = []
    for reader in range(len(readings.readers)):
        own = (visits.reader == reader) & (number[visits.item] > 1) & (network[visits.item] >= 0)
        if not own.any():
            continue
        item, grade = visits.item[own], visits.grade[own]
        others = posterior_median(_without(reader, evidence, variants))
        by = {"classes": classes, "owner": owner[item], "weights": weights}
        reader_kappa = _kappa(grade, others[item], **by)
        network_kappa = _kappa(network[item], others[item], **by)
        low, high = _quantiles((network_kappa - reader_kappa)[1:], tails)
        beside = (visits.reader != reader) & np.isin(visits.item, item)
        mine = np.zeros(len(readings.items), dtype=np.int64)
        mine[item] = grade
        rows.append(
            {
                "reader": readings.readers[reader],
                "items": len(item),
                "network_kappa": float(_kappa(grade, network[item], **by)[0]),
                "others_kappa": _table_kappa(mine[visits.item[beside]], visits.grade[beside], classes),
                "reader_to_consensus": float(reader_kappa[0]),
                "network_to_consensus": float(network_kappa[0]),
                "difference": float(network_kappa[0] - reader_kappa[0]),
                "low": low,
                "high": high,
            }
        )
        draws.append(network_kappa - reader_kappa)
    if not rows:
        raise SrjtError(
            "No item that the network has graded was read by two readers: a reader can only be compared with others."
        )
    with np.errstate(invalid="ignore"):
        defined = [one for one in draws if np.isfinite(one[0])]
        mean = np.nanmean(defined, axis=0) if defined else np.full(1 + resamples, np.nan)
    low, high = _quantiles(mean[1:], tails)
    difference = Interval(float(mean[0]), low, high)
    passed = bool(low > -margin)
    return NetworkComparison(
        by_reader=pd.DataFrame(rows),
        difference=difference,
        margin=margin,
        not_inferior=passed,
        sentence=_sentence(difference, margin=margin, passed=passed, readers=len(rows)),
    )


def _check(
    readings: Readings, predicted: npt.ArrayLike, *, margin: float, resamples: int, confidence: float
) -> Ints:
    given = np.asarray(predicted)
    if given.shape != (len(readings.items),) or given.dtype.kind not in "iu":
        raise SrjtError(f"predicted holds a whole grade, or −1, for each of the {len(readings.items)} items.")
    if (given < -1).any() or (given >= len(readings.grades)).any():
        raise SrjtError(f"Predicted grades are 0 … {len(readings.grades) - 1}, or −1 where there is none.")
    if margin <= 0 or resamples < 1 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            "margin is positive, resamples at least 1 and confidence between 0 and 1; "
            f"got {margin:g}, {resamples} and {confidence:g}."
        )
    return given.astype(np.int64)


def _without(reader: int, evidence: Evidence, variants: Variants) -> Floats:
    """(I, C) the posterior without one reader. The fit of all readers is the start, so few iterations are left."""
    said = evidence.said.copy()
    said.data[said.indices // evidence.classes == reader] = 0.0
    others = replace(evidence, said=said)

    def posterior(fit: Fit) -> Floats:
        own = maximise(
            others, fit.states, fit.family, strength=fit.strength, start=fit, iterations=30, tolerance=2e-4
        )
        return own.posterior

    return variants.mean(posterior)


def _weights(groups: int, resamples: int, *, seed: int) -> Floats:
    """(1 + B, G) all ones, then the draws."""
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = rng.multinomial(groups, np.full(groups, 1.0 / groups), size=resamples)
    return np.concatenate([np.ones((1, groups)), drawn])


def _kappa(one: Ints, other: Ints, *, classes: int, owner: Ints, weights: Floats) -> Floats:
    """(1 + B,) quadratic κ of two readers, as it is and of each draw."""
    own = np.zeros((weights.shape[1], classes * classes))
    np.add.at(own, (owner, one * classes + other), 1.0)
    return weighted_kappa((weights @ own).reshape(-1, classes, classes), power=2)


def _table_kappa(one: Ints, other: Ints, classes: int) -> float:
    table = np.zeros((classes, classes))
    np.add.at(table, (one, other), 1.0)
    return float(weighted_kappa(table, power=2))


def _quantiles(draws: Floats, tails: tuple[float, float]) -> tuple[float, float]:
    defined = draws[np.isfinite(draws)]
    if not len(defined):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, tails)
    return float(low), float(high)


def _sentence(difference: Interval, *, margin: float, passed: bool, readers: int) -> str:
    who = f"{readers} readers" if readers > 1 else "the one reader"
    if not np.isfinite(difference.value):
        return f"The network cannot be compared with {who}: all grades are the same."
    span = f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
    verdict = (
        f"it is not inferior to a reader by more than {margin:g}"
        if passed
        else f"that it is at most {margin:g} worse than a reader is not shown"
    )
    return f"Against the consensus of the others, the network's κ differs from that of {who} by {span}: {verdict}."
