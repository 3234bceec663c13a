"""``srjt.plan``: how many patients, readings and verified labels are needed to know a score well enough.

The half-width of a 95 % interval is t · s / √patients, where s is what one patient contributes to the standard
deviation, and t is Student's quantile for as many patients (about 2). With values that are assumed,
s² = v · (1 + (m − 1) · ρ) / (m · share): v is the variance of one image, m the images of a patient, ρ their correlation
and share that of the images that count (for a sensitivity, those to refer). The variance of κ is that of a large sample
with these shares of the grades and errors by one grade. From a pilot, s is the standard deviation of the bootstrap over
its patients, times the root of their number.

More patients do not help against labels that are wrong: readings and verified labels are planned beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import chdtri, stdtrit  # type: ignore[import-untyped]
from scipy.stats import binom  # type: ignore[import-untyped]

from srjt.errors import SrjtError
from srjt.inference.evaluate import Evaluation, best_side
from srjt.inference.options import PlannedMetric, Planning
from srjt.inference.prepare import RunLike, open_run
from srjt.noise.verified import labels_to_verify
from srjt.ordinal.metrics import METRICS, effective_patients, patient_codes, patient_draws, slopes, wrong_by
from srjt.progress import Reported
from srjt.settings import from_names

WIDTHS = (2.0, 1.5, 1.0, 0.75, 0.5)  # of the table, as multiples of the one that is wanted
READINGS = (1, 3, 5, 7, 9)
SHARES = "0.6,0.25,0.1,0.05"  # of the grades, for κ
CLUSTERED = ("images_per_patient", "correlation")


@dataclass(frozen=True, kw_only=True)
class SamplePlan(Reported):
    """The result of ``srjt.plan``.

    Attributes
    ----------
    metric, half_width, value
        What was asked for; the value of the pilot, or the one that was assumed.
    deviation : float
        What one patient contributes: the half-width is t · deviation / √patients, with Student's quantile t.
    images_per_patient : float
    patients, images : int
        Needed for the half-width; of a noise rate, verified labels.
    plausible : tuple of int or None
        The lowest and the highest plausible number of patients (95 %), by how well the pilot tells the deviation. None
        without a pilot.
    pilot : int
        Patients of the pilot; 0 if values were assumed.
    source : str
        Where the numbers come from, in words.
    assumed : dict of str to float or str
        The options that the numbers rest on.
    table : DataFrame
        ``half_width``, ``patients`` and ``images`` for several half-widths; ``verified``, the labels to verify for the
        score against the true grades, if the pilot has verified some.
    readings : DataFrame
        ``readings`` of an image and ``wrong``, the largest share of wrong medians; empty without a reader's error.
    """

    metric: PlannedMetric
    half_width: float
    value: float
    deviation: float
    images_per_patient: float
    patients: int
    images: int
    pilot: int
    source: str
    assumed: dict[str, float | str]
    table: pd.DataFrame
    readings: pd.DataFrame
    plausible: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"<SamplePlan: {self.patients:,} patients for {self.metric} ± {self.half_width:g}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        tables = {name: getattr(self, name).to_dict("records") for name in ("table", "readings")}
        return {**vars(self), **tables}


def plan(pilot: RunLike | Evaluation | None = None, **options: Any) -> SamplePlan:
    """How many patients are needed for an interval of a wanted half-width.

    Parameters
    ----------
    pilot : Trained, Evaluation or path, optional
        A run, whose test side (else validation side) is the pilot, or an evaluation. Default: values are assumed.
    **options
        The fields of ``srjt.inference.options.Planning``.

    Returns
    -------
    SamplePlan
        ``plan(...).report()`` is its page.

    Examples
    --------
    >>> import srjt
    >>> wanted = {"metric": "sensitivity", "value": 0.9, "half_width": 0.05, "prevalence": 0.2}
    >>> srjt.plan(**wanted).patients
    694
    >>> srjt.plan(**wanted, images_per_patient=2, correlation=0.3).patients
    452
    """
    asked = from_names(Planning, options, kind="option of a plan")
    if asked.metric == "noise-rate":
        return _noise_plan(pilot, asked)
    if pilot is None:
        return _assumed(asked)
    judged = pilot if isinstance(pilot, Evaluation) else best_side(open_run(pilot), resamples=0)
    if judged is None or judged.answers.empty:
        raise SrjtError("The pilot has no answers for single images: give a run with a test side, or values.")
    return _from_pilot(judged, asked)


def _result(
    asked: Planning,
    *,
    value: float,
    deviation: float,
    per_patient: float,
    source: str,
    uses: tuple[str, ...],
    pilot: int = 0,
    images: list[int] | None = None,
) -> SamplePlan:
    """per_patient: images of a patient. uses: the options that the numbers rest on. images: needed for each of the
    widths, if not by the deviation."""
    widths, wanted = [asked.half_width * factor for factor in WIDTHS], WIDTHS.index(1.0)
    if images is None:
        patients = [patients_for(deviation, width) for width in widths]
        images = [math.ceil(number * per_patient) for number in patients]
    else:
        patients = [math.ceil(number / per_patient) for number in images]
    readings = pd.DataFrame({"readings": [], "wrong": []})
    if asked.reader_error is not None:  # at most, if readers err independently and to the same side
        wrong = [float(binom.sf(number // 2, number, asked.reader_error)) for number in READINGS]
        readings = pd.DataFrame({"readings": READINGS, "wrong": wrong})
    return SamplePlan(
        metric=asked.metric,
        half_width=asked.half_width,
        value=value,
        deviation=deviation,
        images_per_patient=per_patient,
        patients=patients[wanted],
        images=images[wanted],
        pilot=pilot,
        source=source,
        assumed={name: option for name in (*uses, "reader_error") if (option := getattr(asked, name)) is not None},
        table=pd.DataFrame({"half_width": widths, "patients": patients, "images": images}),
        readings=readings,
    )


def patients_for(deviation: float, half_width: float) -> int:
    """The smallest number of patients n ≥ 2 whose interval t · deviation / √n is no wider, with n − 1 degrees of
    freedom.

    Examples
    --------
    >>> patients_for(0.5, 0.1)
    99
    """
    if not deviation / half_width < 1e4:
        raise SrjtError(f"For ± {half_width:g} more than 100 million patients are needed: give a larger `half_width`.")
    ratio = (deviation / half_width) ** 2
    number = max(2, math.ceil(1.959963**2 * ratio))  # Student's quantile is larger: upwards from here
    while float(stdtrit(number - 1, 0.975)) ** 2 * ratio > number + 1e-9:
        number += 1
    return number


def kappa_variance(value: float, shares: npt.ArrayLike) -> float:
    """The variance of quadratic κ for one image, of a large sample with these shares of the grades (C,), in which
    answers are wrong by one grade, for all grades as often.

    Of two equally frequent grades it is 1 − κ².

    Examples
    --------
    >>> round(kappa_variance(0.8, [0.5, 0.5]), 3), round(kappa_variance(0.8, [0.6, 0.25, 0.1, 0.05]), 3)
    (0.36, 0.179)
    """
    share = np.asarray(shares, dtype=np.float64)[:, None]
    classes, kappa = len(share), METRICS["qwk"].function

    def table(wrong: float) -> npt.NDArray[np.float64]:
        return np.asarray(share * ((1.0 - wrong) * np.eye(classes) + wrong * wrong_by(1, classes)))

    low, high = 0.0, 1.0
    if float(kappa(table(high)[None])[0]) > value:
        raise SrjtError(f"With errors by one grade κ is above {value:g} for these grades: give a pilot.")
    for _ in range(60):
        middle = (low + high) / 2.0
        if float(kappa(table(middle)[None])[0]) > value:
            low = middle
        else:
            high = middle
    found = table(high)
    return float((found * slopes(kappa, found) ** 2).sum())


def _grade_shares(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) < 2 or not (min(shares) > 0 and abs(sum(shares) - 1.0) <= 0.02):  # nan is neither
        raise SrjtError(f"`grade_shares` are positive numbers with sum 1, such as {SHARES}; got {text!r}.")
    return [share / sum(shares) for share in shares]


def _assumed(asked: Planning) -> SamplePlan:
    value, metric = asked.value, asked.metric
    if value is None:
        raise SrjtError("Without a pilot, `value` says what the score will probably be, such as 0.9.")
    if metric == "mae":
        if asked.spread is None and value >= 1.0:
            raise SrjtError("An MAE of 1 or more has errors by several grades: give their `spread`.")
        variance = asked.spread**2 if asked.spread is not None else value * (1.0 - value)
    elif not 0.0 < value < 1.0:
        raise SrjtError(f"The {metric} to plan for must lie between 0 and 1; got {value:g}.")
    elif metric == "qwk":
        asked = replace(asked, grade_shares=asked.grade_shares or SHARES)
        variance = kappa_variance(value, _grade_shares(str(asked.grade_shares)))
    else:
        variance = value * (1.0 - value)
    shares = {"sensitivity": asked.prevalence, "specificity": 1.0 - asked.prevalence}
    share = shares.get(metric, 1.0)
    images = asked.images_per_patient
    effect = 1.0 + max(images - 1.0, 0.0) * asked.correlation
    deviation = math.sqrt(variance * effect / (images * share))
    own = {"mae": ("spread",), "qwk": ("grade_shares",), "sensitivity": ("prevalence",), "specificity": ("prevalence",)}
    uses = (*CLUSTERED, *own.get(metric, ()))
    source = "from values that are assumed"
    return _result(asked, value=value, deviation=deviation, per_patient=images, source=source, uses=uses)


def _from_pilot(pilot: Evaluation, asked: Planning, *, resamples: int = 1000) -> SamplePlan:
    rows, classes = pilot.answers, len(pilot.grades)
    true, answer = (np.array([*map(pilot.grades.index, rows[name])]) for name in ("label", "grade"))
    owner = patient_codes(rows["patient"].tolist() if "patient" in rows else None, len(rows))
    patients = int(owner.max()) + 1
    tables = np.zeros((patients, classes * classes))
    np.add.at(tables, (owner, true * classes + answer), 1.0)
    drawn = np.concatenate([draw @ tables for draw in patient_draws(patients, resamples, seed=0)])
    scores = _score(asked, pilot)(drawn.reshape(-1, classes, classes))
    spread = scores[1:][np.isfinite(scores[1:])]
    if patients < 2 or len(spread) < resamples // 2 or not spread.std() > 0:
        raise SrjtError("The pilot is too small, or all its answers are alike: give values instead.")
    of_run = f" ({pilot.run})" if pilot.run else ""
    effective = max(effective_patients(owner), 2.0)  # the draws vary too little for few patients
    deviation = float(spread.std(ddof=1)) * math.sqrt(patients * (effective + 1.0) / (effective - 1.0))
    result = _result(
        asked,
        value=float(scores[0]),
        deviation=deviation,
        per_patient=len(rows) / patients,
        pilot=patients,
        source=f"from a pilot of {patients:,} {'patients' if 'patient' in rows else 'images'}{of_run}",
        uses=() if asked.metric in METRICS else ("refer_from",),
    )
    # as for the variance of a normal distribution
    ends = [(effective - 1.0) / float(chdtri(effective - 1.0, tail)) for tail in (0.025, 0.975)]
    plausible = tuple(patients_for(deviation * math.sqrt(end), asked.half_width) for end in ends)
    result = replace(result, plausible=(plausible[0], plausible[1]))
    truly = pilot.true_scores
    if truly is None or not truly.verified or asked.metric not in truly.scores:
        return result
    _, low, high = truly.scores[asked.metric]
    verified = np.ceil(truly.verified * ((high - low) / 2.0 / result.table["half_width"]) ** 2)
    return replace(result, table=result.table.assign(verified=verified.astype(np.int64)))


def _score(asked: Planning, pilot: Evaluation) -> Any:
    """A function of confusion matrices (..., C, C)."""
    if asked.metric in METRICS:
        return METRICS[asked.metric].function
    if asked.refer_from is None:
        raise SrjtError(f"The {asked.metric} of a pilot needs `refer_from`, the lowest grade to refer.")
    cut = pilot.grades.find(asked.refer_from)
    part = slice(cut, None) if asked.metric == "sensitivity" else slice(None, cut)

    def share(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        own = counts[..., part, :]
        with np.errstate(invalid="ignore"):
            return np.asarray(own[..., part].sum(axis=(-2, -1)) / own.sum(axis=(-2, -1)))

    return share


def _noise_plan(pilot: RunLike | Evaluation | None, asked: Planning) -> SamplePlan:
    """Labels to verify, by the exact interval; a pilot's noise estimate says what the rate is."""
    value, source = asked.value, "from a rate that is assumed"
    if value is None and pilot is not None and not isinstance(pilot, Evaluation):
        run = open_run(pilot)
        if (estimate := run.noise_estimate) is not None:
            name = "the run" if run.folder is None else run.folder.resolve().name
            value, source = estimate.rate, f"from the noise estimate of {name}"
    if value is None:
        value, source = 0.5, "for the worst rate, one half"
    per_patient = asked.images_per_patient
    effect = 1.0 + max(per_patient - 1.0, 0.0) * asked.correlation
    numbers = [labels_to_verify(value, within=min(asked.half_width * factor, 0.49)) for factor in WIDTHS]
    images = [math.ceil(number * effect) for number in numbers]
    deviation = math.sqrt(value * (1.0 - value) * effect / per_patient)
    return _result(
        asked,
        value=value,
        deviation=deviation,
        per_patient=per_patient,
        source=source,
        uses=CLUSTERED,
        images=images,
    )
