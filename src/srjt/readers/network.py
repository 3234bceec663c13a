"""Is a network as good as a reader? The network is one more reader among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # type: ignore[import-untyped]

from srjt.errors import SrjtError
from srjt.json_values import DictMixin
from srjt.ordinal.intervals import (
    TOO_FEW,
    Interval,
    effective_patients,
    images_worth_one,
    patient_draws,
    wrong_by,
)
from srjt.readers.agreement import ends, weighted_kappa
from srjt.readers.consensus import posterior_median
from srjt.readers.model import refit
from srjt.readers.readings import Evidence, Floats, Ints, Readings, evidence_of
from srjt.readers.variants import Variants, fit_variants


@dataclass(frozen=True, kw_only=True)
class NetworkComparison(DictMixin):
    """The network beside the readers. Kappas are quadratic; nan where they are undefined.

    ``by_reader`` has a row for each reader that shares items with another one: ``reader``,
    ``items`` (that others have read too), ``network_kappa`` and ``others_kappa`` (the reader's κ
    with the network, and with the other readers), ``reader_to_consensus`` and
    ``network_to_consensus`` (κ of the reader and of the network with the consensus of all *other*
    readers, on the same items) and ``difference`` (network − reader) with ``low`` and ``high``.
    """

    by_reader: pd.DataFrame
    # network − reader, mean over the readers, both against the consensus of the others
    difference: Interval
    margin: float
    not_inferior: bool  # whether the interval lies above −margin, and patients are not too few
    compared: int  # so many patients, or items where patients are not known
    by_patient: bool


def compare_network(
    readings: Readings,
    predicted: ArrayLike,
    *,
    margin: float = 0.05,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> NetworkComparison:
    """Compare a network with each reader, leaving that reader out of the consensus.

    Both are compared with the consensus of the *other* readers on the items that the reader has
    read, so neither is judged by itself. The network must not have been trained on these items.

    Parameters
    ----------
    readings : Readings
        Its ``reference`` is not used; its ``groups`` are resampled.
    predicted : (I,) array of int
        The network's grade of each item, −1 where there is none.
    margin : float
        The network is not inferior if its κ is at most this much below the readers', with
        confidence.
    resamples, seed, confidence
        Of the bootstrap over the patients.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(0, 4, size=80)
    >>> item, reader = np.repeat(np.arange(80), 3), np.tile([0, 1, 2], 80)
    >>> error = np.where(rng.random(240) < 0.3, rng.choice([-1, 1], size=240), 0)
    >>> names = {"items": list(map(str, range(80))), "readers": ["Kim", "Lee", "May"]}
    >>> grade = (true[item] + error).clip(0, 3)
    >>> readings = Readings(**names, grades=tuple("0123"), item=item, reader=reader, grade=grade)
    >>> compare_network(readings, true, resamples=100).not_inferior
    True
    """
    Readings.check(readings)
    network = np.asarray(predicted)
    items = len(readings.items)
    classes = len(readings.grades)
    whole = network.shape == (items,) and network.dtype.kind in "iu"
    if not whole or (network < -1).any() or (network >= classes).any():
        raise SrjtError(
            f"predicted holds a whole grade 0 … {classes - 1}, or −1, for each of {items} items.",
            code="unknown_grade",
        )
    if margin <= 0 or resamples < 1 or not 0.0 < confidence < 1.0:
        raise SrjtError(
            "margin is positive, resamples at least 1 and confidence between 0 and 1; "
            f"got {margin:g}, {resamples} and {confidence:g}.",
            code="out_of_bounds",
        )
    owner = readings.owner()
    weights = np.concatenate([*patient_draws(int(owner.max()) + 1, resamples, seed=seed)])
    visits = readings.first()
    number = np.bincount(visits.item, minlength=items)
    evidence = evidence_of(replace(readings, reference=None), repeats="one reading")
    variants = fit_variants(evidence)
    comparable = (number[visits.item] > 1) & (network[visits.item] >= 0)
    judged = visits.item[comparable]
    patients = len(np.unique(owner[judged]))

    resampled = _Resampled(weights=weights, owner=owner, classes=classes)
    rows: list[dict[str, Any]] = []
    differences: list[_Difference] = []
    for reader, name in enumerate(readings.readers):
        of_reader = comparable & (visits.reader == reader)
        if not of_reader.any():
            continue
        item = visits.item[of_reader]
        grade = visits.grade[of_reader]
        others = _consensus_without(reader, evidence, variants)[item]
        row, difference = resampled.compare(grade, network[item], others, item, confidence)
        differences.append(difference)
        kappas = {
            "network_kappa": resampled.kappa_of(grade, network[item], item),
            "others_kappa": resampled.kappa_with_others(reader, visits, grade, item),
        }
        rows.append({"reader": name, "items": len(item), **kappas, **row})
    if not rows:
        raise SrjtError(
            "No item that the network has graded was read by two readers.", code="too_few"
        )
    overall = _mean_difference(differences, effective_patients(owner[judged]), confidence)
    passed = bool(overall.low > -margin) and patients >= TOO_FEW
    return NetworkComparison(
        by_reader=pd.DataFrame(rows),
        difference=overall,
        margin=margin,
        not_inferior=passed,
        compared=patients,
        by_patient=readings.groups is not None,
    )


class _Difference(NamedTuple):
    """κ of the network minus κ of a reader."""

    draws: Floats  # (1 + B,) as it is and of each draw of patients
    lower: float  # by how much one more error of the network would lower it
    higher: float  # and one more of the reader raise it

    def interval(self, patients: float, confidence: float) -> Interval:
        value = float(self.draws[0])
        low, high = ends(self.draws[:, None], patients, confidence, higher=self.higher)[:, 0]
        distance = distance_at_limit(value - low, self.lower, patients=patients, level=confidence)
        return Interval(value, value - distance, float(high))


def distance_at_limit(distance: float, step: float, *, patients: float, level: float) -> float:
    """From a value to a lower limit, with the variance that there would be at the limit.

    distance: with the variance that there is. step: by how much one more error lowers the value.

    A network that has made few errors by chance has a high κ and a small variance: it would look
    certain to be good. At the limit, x below, it has x / step more errors, which vary by a Poisson
    law, so the variance is larger by x step; x² = distance² + t² x step has this solution. Wilson's
    interval of a share does the same. Without any variance it is t² step, about four errors.
    """
    n = max(patients, 2.0)
    half = stdtrit(n - 1.0, (1.0 + level) / 2.0) ** 2 * step / 2.0
    return float(half + np.hypot(half, distance))


def _mean_difference(
    differences: list[_Difference], patients: float, confidence: float
) -> Interval:
    """The mean over the readers for whom it is defined."""
    defined = [one for one in differences if np.isfinite(one.draws[0])]
    if not defined:
        return differences[0].interval(patients, confidence)
    draws = np.ma.masked_invalid([one.draws for one in defined])
    mean = _Difference(
        draws=np.asarray(draws.mean(axis=0).filled(np.nan)),
        lower=float(np.mean([one.lower for one in defined])),
        higher=float(np.mean([one.higher for one in defined])),
    )
    return mean.interval(patients, confidence)


@dataclass(frozen=True, kw_only=True)
class _Resampled:
    """κ of two readers, as it is and of each draw of patients."""

    weights: Floats  # (1 + B, G) how often each draw has a patient
    owner: Ints  # (I,) the patient of each item
    classes: int

    def tables(self, one: Ints, other: Ints, item: Ints) -> Floats:
        """(G, C, C) of each patient the grades by two readers."""
        counts = np.zeros((self.weights.shape[1], self.classes, self.classes))
        np.add.at(counts, (self.owner[item], one, other), 1.0)
        return counts

    def kappa(self, tables: Floats) -> Floats:
        """(1 + B,) quadratic κ of two readers, as it is and of each draw."""
        drawn = self.weights @ tables.reshape(len(tables), -1)
        return weighted_kappa(drawn.reshape(-1, self.classes, self.classes), power=2)

    def kappa_of(self, one: Ints, other: Ints, item: Ints) -> float:
        return float(self.kappa(self.tables(one, other, item))[0])

    def kappa_with_others(self, reader: int, visits: Readings, grade: Ints, item: Ints) -> float:
        """Of a reader, who gave the items these grades, with all others who read them."""
        beside = (visits.reader != reader) & np.isin(visits.item, item)
        grade_of = np.zeros(len(self.owner), dtype=np.int64)
        grade_of[item] = grade
        other_item = visits.item[beside]
        return self.kappa_of(grade_of[other_item], visits.grade[beside], other_item)

    def loss(self, tables: Floats) -> float:
        """By how much one more disagreement lowers κ."""
        total = tables.sum(axis=0)
        apart = ~np.eye(self.classes, dtype=bool)
        worth = images_worth_one(tables, apart, tables.sum(axis=(1, 2)))
        share = total.sum(axis=1, keepdims=True) / total.sum()
        with_one = total + worth * share * wrong_by(1, self.classes)
        before, after = weighted_kappa(np.stack([total, with_one]), power=2)
        if not np.isfinite(before):
            return 0.0
        return max(float(before - after), 0.0)

    def compare(
        self, grade: Ints, network: Ints, others: Ints, item: Ints, confidence: float
    ) -> tuple[dict[str, float], _Difference]:
        """How near a reader and the network are to the consensus of the others."""
        by_reader = self.tables(grade, others, item)
        by_network = self.tables(network, others, item)
        reader_kappa = self.kappa(by_reader)
        network_kappa = self.kappa(by_network)
        difference = _Difference(
            draws=network_kappa - reader_kappa,
            lower=self.loss(by_network),
            higher=self.loss(by_reader),
        )
        value, low, high = difference.interval(effective_patients(self.owner[item]), confidence)
        row = {
            "reader_to_consensus": float(reader_kappa[0]),
            "network_to_consensus": float(network_kappa[0]),
            "difference": value,
            "low": low,
            "high": high,
        }
        return row, difference


def _consensus_without(reader: int, evidence: Evidence, variants: Variants) -> Ints:
    """(I,) the consensus of the other readers."""
    said = evidence.said.copy()
    said.data[said.indices // evidence.classes == reader] = 0.0
    without = replace(evidence, said=said)
    # the fit of all readers is the start, so few iterations are left
    fits = tuple(refit(without, fit, tolerance=2e-4) for fit in variants.fits)
    return posterior_median(replace(variants, fits=fits).mean(lambda fit: fit.posterior))
