"""What a study of readers needs, from the readings so far: how many items for the agreement, how
many readings of an item for its grade, and how many second readings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq  # type: ignore[import-untyped]
from scipy.special import chdtri, stdtrit  # type: ignore[import-untyped]

from srjt.errors import Option, SrjtError
from srjt.noise.matrices import SHARED_ERRORS
from srjt.notebook import HasPage
from srjt.ordinal.intervals import Interval, effective_patients
from srjt.readers.agreement import Agreement
from srjt.readers.consensus import Consensus, posterior_median, true_given_seen
from srjt.readers.readings import ENOUGH, Floats, Ints, Readings
from srjt.readers.repeats import Repeated, repeats_of

WIDTHS = (2.0, 1.5, 1.0, 0.75, 0.5)  # of the table, as multiples of the one that is wanted
NARROWEST, WIDEST = 1e-4, 0.5  # half-widths of the interval of a share
Z = 1.959964  # of a 95 % interval
READINGS = (1, 2, 3, 5, 7)
OUTSIDE = 0.05  # of the variances of a pilot; the plausible numbers promise 90 %
_ITEMS = 4000  # simulated, for the share of wrong grades


@dataclass(frozen=True, kw_only=True)
class ReaderPlan(HasPage):
    """What a study of readers needs.

    Attributes
    ----------
    half_width : float
        Wanted, of the 95 % interval of the share of equal grades.
    noun : str
        What is read.
    pilot : int
        Items that two readers have read.
    agreement : Interval
        The share of equal grades of two readers, so far.
    items : int
        How many items give the half-width, if as many readers read each of them as in the pilot.
    plausible : tuple of int
        The least and the most that are plausible: of ten pilots, nine or more hold the number
        that is needed.
    table : DataFrame
        ``half_width`` and ``items`` for several half-widths.
    readings : DataFrame
        ``readings`` of an item by as many readers like these, and ``wrong``, the expected share of
        wrong grades; ``low`` and ``high``, if readers share no errors, and as many as one makes.
        Empty if the readings do not determine how often readers err.
    reason : str
        Why it is empty.
    second : int
        Second readings that give the share of grades that readers repeat within the half-width.
    repeats : Repeated or None
        What the second readings so far say.
    """

    half_width: float
    noun: str
    pilot: int
    agreement: Interval
    items: int
    plausible: tuple[int, int]
    table: pd.DataFrame
    readings: pd.DataFrame
    reason: str
    second: int
    repeats: Repeated | None

    def __repr__(self) -> str:
        return f"<ReaderPlan: {self.items:,} {self.noun}s for the agreement ± {self.half_width:g}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        tables = {name: getattr(self, name).to_dict("records") for name in ("table", "readings")}
        repeats = None if self.repeats is None else self.repeats.to_dict()
        return {**vars(self), **tables, "agreement": self.agreement._asdict(), "repeats": repeats}


def plan_readings(
    readings: Readings,
    agree: Agreement,
    agreed: Consensus,
    *,
    half_width: float = 0.05,
    noun: str = "item",
) -> ReaderPlan:
    """Plan the rest of a study from its first readings. agree, agreed: of the same readings."""
    plan = plan_items(readings, agree, half_width=half_width, noun=noun)
    return replace(plan, readings=wrong_by_readings(agreed), reason=agreed.reason)


def plan_items(
    readings: Readings, agree: Agreement, *, half_width: float = 0.05, noun: str = "item"
) -> ReaderPlan:
    """The plan without the wrong grades."""
    if not NARROWEST <= half_width <= WIDEST:  # nan is neither
        raise SrjtError(
            Option("half_width"),
            f" of the share of equal grades lies between {NARROWEST:g} and {WIDEST:g}; got"
            f" {half_width:g}.",
            code="out_of_bounds",
        )
    if agree.shared_items < ENOUGH:
        raise SrjtError(
            f"{agree.shared_items:,} {noun}s were read by two readers: a plan needs {ENOUGH} or"
            " more.",
            code="too_few",
        )
    exact = agree.exact
    alike = max(effective_patients(readings.owner()[readings.pairs().item]), 2.0)
    pilot = agree.shared_items
    widths = [width for factor in WIDTHS if (width := half_width * factor) <= WIDEST]
    times = [pilots_for(exact, width, patients=alike) for width in widths]
    wanted = [math.ceil(pilot * one) for one in times]
    items = wanted[widths.index(half_width)]
    # the variance between patients is known as that of so many numbers, and follows from the share
    degrees = alike - 1.0
    ends = [1.0, *(degrees / chdtri(degrees, [OUTSIDE / 2.0, 1.0 - OUTSIDE / 2.0]))]
    ends += [_spread(end) / _spread(exact.value) for end in (exact.low, exact.high)]
    if exact.low < 0.5 < exact.high:
        ends.append(0.25 / _spread(exact.value))
    repeats = repeats_of(readings)
    again = exact.value if repeats is None else repeats.exact.value
    return ReaderPlan(
        half_width=half_width,
        noun=noun,
        pilot=pilot,
        agreement=exact,
        items=items,
        plausible=(max(1, math.floor(items * min(ends))), math.ceil(items * max(ends))),
        table=pd.DataFrame({"half_width": widths, "items": wanted}),
        readings=pd.DataFrame(columns=["readings", "wrong", "low", "high"]),
        reason="",
        second=math.ceil(_spread(again) * (Z / half_width) ** 2),
        repeats=repeats,
    )


def pilots_for(share: Interval, half_width: float, *, patients: float) -> float:
    """How many times the pilot has to be as large for Wilson's interval of this half-width, as
    ``proportion_interval`` computes it.

    share: of the pilot. patients: that count alike in it.

    Examples
    --------
    >>> from srjt.ordinal.decisions import proportion_interval
    >>> same = proportion_interval([True] * 60 + [False] * 40)
    >>> pilots_for(same, (same.high - same.low) / 2.0, patients=100)
    1.0
    >>> round(pilots_for(same, 0.05, patients=100), 2)  # 100 answers give 0.096
    3.69
    """
    spread = share.value * (1.0 - share.value)

    def wilson(answers: float) -> float:
        root = math.sqrt(spread / answers + Z**2 / (4.0 * answers**2))
        return Z * root / (1.0 + Z**2 / answers)

    def answers_of(width: float) -> float:
        """So many independent ones have this half-width."""
        if width >= wilson(1e-6):
            return 1e-6
        return float(brentq(lambda answers: wilson(answers) - width, 1e-6, 1e9))

    def lost(patients: float) -> float:
        """How much fewer the answers seem, because few patients tell the variance badly."""
        degrees = max(patients, 1.5) - 1.0
        return float((Z / stdtrit(degrees, 0.975)) ** 2) * degrees / (degrees + 1.0)

    now = answers_of((share.high - share.low) / 2.0) / lost(patients)
    wanted = answers_of(half_width)

    def off(times: float) -> float:
        return times * now * lost(times * patients) - wanted

    if off(1.0 / patients) >= 0.0:  # one patient is enough
        return 1.0 / patients
    times: float = brentq(off, 1.0 / patients, 10.0 * max(1.0, wanted / now))
    return round(times, 9)


def _spread(share: float) -> float:
    """The variance of one answer; not 0, since none is certain."""
    return max(share * (1.0 - share), 0.01)


def wrong_by_readings(agreed: Consensus, *, seed: int = 0) -> pd.DataFrame:
    """The expected share of wrong grades of items with 1, 2, … readings, each by another reader
    like those of the consensus: ``readings``, ``wrong``, ``low`` and ``high``.

    Items are simulated by the model, and their grades are the median of its posterior. ``low``: no
    errors are shared; ``high``: something in an item misleads all readers as often as one of them
    errs; ``wrong``: as often as the consensus assumes.
    """
    if not agreed.determined:
        return pd.DataFrame({"readings": [], "wrong": [], "low": [], "high": []})
    rows = []
    for count in READINGS:
        wrong = np.zeros(3)
        fits = zip(agreed.variants.weights, agreed.variants.fits, strict=True)
        for weight, fit in fits:
            posterior = _simulated(fit.prior, fit.matrices, agreed.readings, count, seed=seed)
            of_grade = fit.states.of_grade
            by_grade = posterior @ of_grade
            grade = posterior_median(by_grade)
            said = np.einsum("r,rsj->sj", agreed.readings / agreed.readings.sum(), fit.matrices)
            seen = of_grade.T @ (fit.prior[:, None] * said)
            seen /= seen.sum(axis=1, keepdims=True)
            for place, amount in enumerate((0.0, SHARED_ERRORS, 1.0)):
                true = by_grade @ true_given_seen(seen, amount)
                wrong[place] += weight * (1.0 - true[np.arange(len(true)), grade].mean())
        rows.append((count, wrong[1], wrong[0], wrong[2]))
    return pd.DataFrame(rows, columns=["readings", "wrong", "low", "high"])


def _simulated(prior: Floats, matrices: Floats, made: Ints, count: int, *, seed: int) -> Floats:
    """(n, S) the posterior of simulated items. matrices: (R, S, C); made: (R,) the readings of each
    reader, in proportion to which readers are drawn."""
    rng = np.random.default_rng(seed)
    state = rng.choice(len(prior), size=_ITEMS, p=prior / prior.sum())
    log = np.tile(np.log(prior + 1e-300), (_ITEMS, 1))
    for _ in range(count):
        reader = rng.choice(len(matrices), size=_ITEMS, p=made / made.sum())
        rows = matrices[reader, state]
        said = (rows.cumsum(axis=1) < rng.random((_ITEMS, 1))).sum(axis=1)
        said = said.clip(0, rows.shape[1] - 1)
        log += np.log(matrices[reader, :, said] + 1e-300)
    log -= log.max(axis=1, keepdims=True)
    return np.asarray(np.exp(log) / np.exp(log).sum(axis=1, keepdims=True))
