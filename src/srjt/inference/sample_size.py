"""``srjt.plan``: how many patients, readings and verified labels are needed to know a score well
enough.

The half-width of a 95 % interval is about t · s / √patients, where s is what one patient
contributes to the standard deviation, and t is Student's quantile for as many patients (about 2).
With values that are assumed, s² = v · (1 + (m − 1) · ρ) / (m · share): v is the variance of one
image, m the images of a patient, ρ their correlation and share that of the images that count (for a
sensitivity, those to refer). The variance of κ is that of a large sample with these shares of the
grades, for errors by one grade or for errors in the severity, whichever need more patients. From a
pilot, s is the standard deviation of the bootstrap over its patients, times the root of their
number.

The intervals of ``srjt evaluate`` are wider where errors are few, because one that has not occurred
may. So those of a share are planned: Clopper and Pearson's for an accuracy, and for an MAE as that
of a share of errors of one size, by as many images as have the variance s² / patients; Wilson's for
a sensitivity or specificity. To the half-width of κ e / (2 · patients) is added, where e is by how
much an error more and one less would change the κ of one patient.

More patients do not help against labels that are wrong: readings and verified labels are planned
beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import betaincinv, chdtri, ndtr, ndtri, stdtrit  # type: ignore[import-untyped]
from scipy.stats import binom  # type: ignore[import-untyped]

from srjt.data.options import picked, without_none
from srjt.errors import Option, SrjtError
from srjt.inference.calibrated_run import RunLike, open_run
from srjt.inference.evaluate import Evaluation, best_side
from srjt.inference.planning import PlannedMetric, Planning, PlanOptions
from srjt.noise.verified import labels_to_verify
from srjt.notebook import HasPage
from srjt.ordinal import patient_codes
from srjt.ordinal.intervals import (
    draws_of_unequal,
    images_worth_one,
    patient_tables,
    percentile_tails,
    resampled_tables,
    slopes,
    wrong_by,
)
from srjt.ordinal.metrics import METRICS, Floats
from srjt.settings import from_names

if TYPE_CHECKING:  # Python 3.10 has no Unpack
    from typing_extensions import Unpack

WIDTHS = (2.0, 1.5, 1.0, 0.75, 0.5)  # of the table, as multiples of the one that is wanted
READINGS = (1, 3, 5, 7, 9)
SHARES = "0.6,0.25,0.1,0.05"  # of the grades, for κ
SEVERITIES = 4000  # equally likely ones, for an integral over the severity
CLUSTERED = ("images_per_patient", "correlation")


@dataclass(frozen=True, kw_only=True)
class SamplePlan(HasPage):
    """The result of ``srjt.plan``.

    Attributes
    ----------
    metric, half_width, value
        What was asked for; the value of the pilot, or the one that was assumed.
    deviation : float
        What one patient contributes: with many patients the half-width is t · deviation /
        √patients, with Student's quantile t.
    error : float
        The size of an error in grades, for mae; for qwk, by how much an error more and one less
        would change the κ of one patient; 0 for shares.
    images_per_patient : float
    patients, images : int
        Needed for the half-width; of a noise rate, verified labels.
    plausible : tuple of int or None
        The lowest and the highest plausible number of patients, by how well the pilot tells the
        deviation: of ten pilots, nine or more hold the number that is needed. None without a pilot.
    labels : int
        Of a noise rate: the labels of the run, which those to verify are drawn from; 0: of a data
        set that is much larger.
    pilot : int
        Patients of the pilot; 0 if values were assumed.
    source : str
        Where the numbers come from, in words.
    assumed : dict of str to float or str
        The options that the numbers rest on.
    table : DataFrame
        ``half_width``, ``patients`` and ``images`` for several half-widths; ``verified``, the
        labels to verify for the score against the true grades, if the pilot has verified some.
    readings : DataFrame
        ``readings`` of an image and ``wrong``, the largest share of wrong medians; empty without a
        reader's error.
    """

    metric: PlannedMetric
    half_width: float
    value: float
    deviation: float
    error: float
    images_per_patient: float
    patients: int
    images: int
    pilot: int
    source: str
    assumed: dict[str, float | str]
    table: pd.DataFrame
    readings: pd.DataFrame
    plausible: tuple[int, int] | None = None
    labels: int = 0

    def __repr__(self) -> str:
        units = f"{self.patients:,} patients"
        if self.metric == "noise-rate":
            units = f"{self.images:,} labels"
        return f"<SamplePlan: {units} for {self.metric} ± {self.half_width:g}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        tables = {name: getattr(self, name).to_dict("records") for name in ("table", "readings")}
        return {**vars(self), **tables}


def plan(pilot: RunLike | Evaluation | None = None, **options: Unpack[PlanOptions]) -> SamplePlan:
    """How many patients are needed for an interval of a wanted half-width.

    Parameters
    ----------
    pilot : Trained, Evaluation or path, optional
        A run, whose test side (else validation side) is the pilot, or an evaluation. Default:
        values are assumed.
    **options
        The fields of ``srjt.inference.planning.Planning``.

    Returns
    -------
    SamplePlan
        ``srjt.report(plan(...))`` is its page.

    Examples
    --------
    >>> import srjt
    >>> wanted = {"metric": "sensitivity", "value": 0.9, "half_width": 0.05, "prevalence": 0.2}
    >>> srjt.plan(**wanted).patients
    708
    >>> srjt.plan(**wanted, images_per_patient=2, correlation=0.3).patients
    461
    """
    planning = from_names(Planning, options, kind="option of a plan")
    if planning.metric == "noise-rate":
        return _noise_plan(pilot, planning)
    if pilot is None:
        return _assumed(planning)
    judged = pilot if isinstance(pilot, Evaluation) else best_side(open_run(pilot), resamples=0)
    if judged is None or judged.answers.empty:
        raise SrjtError(
            "The pilot has no predictions of single images. Give a run with a test side, or assume"
            " values.",
            code="unsupported",
        )
    return _from_pilot(judged, planning)


def _result(
    planning: Planning,
    *,
    value: float,
    deviation: float,
    error: float = 0.0,
    per_patient: float,
    source: str,
    uses: tuple[str, ...],
    pilot: int = 0,
    images: list[int] | None = None,
) -> SamplePlan:
    """per_patient: images of a patient. uses: the options that the numbers rest on. images: needed
    for each of the widths, if not by the deviation."""
    widths = [planning.half_width * factor for factor in WIDTHS]
    wanted = WIDTHS.index(1.0)
    if images is None:
        half_width = _half_width(planning, value=value, deviation=deviation, error=error)
        patients = [patients_for(half_width, width) for width in widths]
        images = [math.ceil(number * per_patient) for number in patients]
    else:
        patients = [math.ceil(number / per_patient) for number in images]
    readings = pd.DataFrame({"readings": [], "wrong": []})
    if (
        planning.reader_error is not None
    ):  # at most, if readers err independently and to the same side
        wrong = [float(binom.sf(number // 2, number, planning.reader_error)) for number in READINGS]
        readings = pd.DataFrame({"readings": READINGS, "wrong": wrong})
    return SamplePlan(
        metric=planning.metric,
        half_width=planning.half_width,
        value=value,
        deviation=deviation,
        error=error,
        images_per_patient=per_patient,
        patients=patients[wanted],
        images=images[wanted],
        pilot=pilot,
        source=source,
        assumed=without_none(picked(vars(planning), (*uses, "reader_error"))),
        table=pd.DataFrame({"half_width": widths, "patients": patients, "images": images}),
        readings=readings,
    )


MOST_PATIENTS = 100_000_000


def patients_for(half_width: Callable[[int], float], wanted: float) -> int:
    """The smallest number of patients n ≥ 2 whose interval is no wider than wanted.

    Examples
    --------
    >>> patients_for(lambda patients: student_half_width(patients, 0.5), 0.1)
    99
    >>> patients_for(lambda patients: wilson_half_width(patients, 0.5, share=0.5), 0.1)
    95
    """
    low = 1
    high = 2
    while half_width(high) > wanted + 1e-9:
        if high > MOST_PATIENTS:
            raise SrjtError(
                f"A half-width of {wanted:g} needs more than 100 million patients. Increase ",
                Option("half_width"),
                ".",
                code="out_of_bounds",
            )
        low = high
        high = 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if half_width(middle) <= wanted + 1e-9:
            high = middle
        else:
            low = middle
    return high


def student_half_width(patients: int, deviation: float, *, added: float = 0.0) -> float:
    """t · deviation / √n + added / (2 n), with n − 1 degrees of freedom."""
    student = float(stdtrit(patients - 1, 0.975))
    return student * deviation / math.sqrt(patients) + added / (2.0 * patients)


def exact_half_width(patients: int, deviation: float, *, share: float) -> float:
    """Of Clopper and Pearson's interval, of as many independent images as have this variance."""
    images = share * (1.0 - share) * patients / deviation**2
    tail = max(float(percentile_tails(patients)[0]), 1e-9)  # the function below fails for less
    low = betaincinv(share * images, (1.0 - share) * images + 1.0, tail)
    high = betaincinv(share * images + 1.0, (1.0 - share) * images, 1.0 - tail)
    return float(high - low) / 2.0


def wilson_half_width(patients: int, deviation: float, *, share: float) -> float:
    """As ``exact_half_width``, of Wilson's interval."""
    images = share * (1.0 - share) * patients / deviation**2
    squared = float(stdtrit(patients - 1, 0.975)) ** 2
    variance = share * (1.0 - share) / images + squared / (4.0 * images**2)
    return math.sqrt(squared * variance) / (1.0 + squared / images)


def _half_width(
    planning: Planning, *, value: float, deviation: float, error: float
) -> Callable[[int], float]:
    """What ``srjt evaluate`` gives for so many patients."""
    if planning.metric in ("sensitivity", "specificity"):
        return lambda patients: wilson_half_width(patients, deviation, share=value)
    if planning.metric == "accuracy":
        return lambda patients: exact_half_width(patients, deviation, share=value)
    if planning.metric == "mae" and 0.0 < value < error:
        return lambda patients: (
            error * exact_half_width(patients, deviation / error, share=value / error)
        )
    return lambda patients: student_half_width(patients, deviation, added=error)


def kappa_deviation(value: float, shares: npt.ArrayLike) -> list[tuple[float, float]]:
    """The variance of quadratic κ for one image, of a large sample with these shares of the grades
    (C,), and by how much it changes between an image of each grade that is wrong and one that is
    right (half of that).

    One pair for each kind of error with which κ has this value: by one grade, of all grades as
    often; and in the severity, which is normal and cut into these grades, and which is seen with a
    normal error. Of two equally frequent grades the variance is 1 − κ².

    Examples
    --------
    >>> [round(variance, 3) for variance, _ in kappa_deviation(0.8, [0.5, 0.5])]
    [0.36, 0.36]
    >>> [round(variance, 3) for variance, _ in kappa_deviation(0.8, [0.6, 0.25, 0.1, 0.05])]
    [0.179, 0.22]
    """
    share = np.asarray(shares, dtype=np.float64)
    kappa = METRICS["qwk"].function
    pairs = []
    for table_of in (_wrong_by_one(share), _seen_with_error(share)):
        low = 0.0
        high = 1.0
        if float(kappa(table_of(high)[None])[0]) > value:
            continue
        for _ in range(40):
            middle = (low + high) / 2.0
            if float(kappa(table_of(middle)[None])[0]) > value:
                low = middle
            else:
                high = middle
        pairs.append(_large_sample(kappa, table_of(high)))
    return pairs


def _large_sample(score: Any, table: Floats) -> tuple[float, float]:
    """The variance of a score for one image, and the change by half an added image of each grade,
    from a table whose sum is 1."""
    slope = slopes(score, table)
    wrong = (slope * wrong_by(1, len(table))).sum(axis=1)
    return float((table * slope**2).sum()), float((np.diagonal(slope) - wrong).sum() / 2.0)


def _wrong_by_one(share: Floats) -> Callable[[float], Floats]:
    """The table (C, C) of a share of wrong answers, which are one grade off."""
    right = np.eye(len(share))
    near = wrong_by(1, len(share))
    return lambda wrong: share[:, None] * ((1.0 - wrong) * right + wrong * near)


def _seen_with_error(share: Floats) -> Callable[[float], Floats]:
    """The table (C, C) of two normal severities that are cut alike, whose correlation is 1 −
    ``error``."""
    cuts = ndtri(share.cumsum()[:-1])
    severity = ndtri((np.arange(SEVERITIES) + 0.5) / SEVERITIES)
    of_grade = np.searchsorted(cuts, severity)[None, :] == np.arange(len(share))[:, None]

    def table(error: float) -> Floats:
        seen = (1.0 - error) * severity
        spread = math.sqrt(max(1.0 - (1.0 - error) ** 2, 1e-12))
        below = ndtr((cuts - seen[:, None]) / spread)
        of_answer = np.diff(below, axis=1, prepend=0.0, append=1.0)
        return np.asarray(of_grade @ of_answer / SEVERITIES)

    return table


def _grade_shares(text: str) -> list[float]:
    try:
        shares = list(map(float, text.split(",")))
    except ValueError:
        shares = []
    if len(shares) < 2 or not (
        min(shares) > 0 and abs(sum(shares) - 1.0) <= 0.02
    ):  # nan is neither
        raise SrjtError(
            Option("grade_shares"),
            f" are positive numbers with sum 1, such as {SHARES}; got {text!r}.",
            code="wrong_values",
        )
    return [share / sum(shares) for share in shares]


def _assumed(planning: Planning) -> SamplePlan:
    value = planning.value
    metric = planning.metric
    error = 0.0
    if value is None:
        raise SrjtError(
            "Without a pilot, ",
            Option("value"),
            " is required: the expected value of the metric, such as 0.9.",
            code="missing_option",
        )
    if metric == "mae":
        if planning.spread is None and value >= 1.0:
            raise SrjtError(
                "An MAE of 1 or more includes errors of several grades, so ",
                Option("spread"),
                " is required.",
                code="missing_option",
            )
        variance = planning.spread**2 if planning.spread is not None else value * (1.0 - value)
        error = _error_size(value, variance)
    elif not 0.0 < value < 1.0:
        raise SrjtError(
            f"The {metric} to plan for must lie between 0 and 1; got {value:g}.",
            code="out_of_bounds",
            option="value",
        )
    elif metric == "qwk":
        planning = replace(planning, grade_shares=planning.grade_shares or SHARES)
        # the kind of errors that needs more patients
        pairs = kappa_deviation(value, _grade_shares(str(planning.grade_shares)))
        variance, error = max(
            pairs, key=lambda pair: student_half_width(100, math.sqrt(pair[0]), added=pair[1])
        )
    else:
        variance = value * (1.0 - value)
    shares = {"sensitivity": planning.prevalence, "specificity": 1.0 - planning.prevalence}
    share = shares.get(metric, 1.0)
    images = planning.images_per_patient
    effect = 1.0 + max(images - 1.0, 0.0) * planning.correlation
    deviation = math.sqrt(variance * effect / (images * share))
    options_of_metric = {
        "mae": ("spread",),
        "qwk": ("grade_shares",),
        "sensitivity": ("prevalence",),
        "specificity": ("prevalence",),
    }
    uses = (*CLUSTERED, *options_of_metric.get(metric, ()))
    return _result(
        planning,
        value=value,
        deviation=deviation,
        error=error * effect / images if metric == "qwk" else error,
        per_patient=images,
        source="from values that are assumed",
        uses=uses,
    )


def _from_pilot(pilot: Evaluation, planning: Planning, *, resamples: int = 1000) -> SamplePlan:
    rows = pilot.answers
    classes = len(pilot.grades)
    true, answer = (np.array([*map(pilot.grades.index, rows[name])]) for name in ("label", "grade"))
    owner = patient_codes(rows["patient"].tolist() if "patient" in rows else None, len(rows))
    patients = int(owner.max()) + 1
    by_patient = patient_tables(true, answer, num_classes=classes, groups=owner.tolist())
    scores = _score(planning, pilot)(resampled_tables(by_patient, resamples=resamples, seed=0))
    spread = scores[1:][np.isfinite(scores[1:])]
    if patients < 2 or len(spread) < resamples // 2 or not spread.std() > 0:
        raise SrjtError(
            "The pilot is too small, or all its predictions are the same. Assume values instead.",
            code="too_few",
        )
    of_run = f" ({pilot.run})" if pilot.run else ""
    images = np.bincount(owner).astype(np.float64)
    sums = [np.asarray((images**power).sum()) for power in range(1, 6)]
    too_little, known = draws_of_unequal(*sums, patients=patients)
    deviation = float(spread.std(ddof=1)) * math.sqrt(patients / float(too_little))
    value = float(scores[0])
    error = 0.0
    if planning.metric == "mae":
        off = np.abs(true - answer)
        error = _error_size(value, float(off.var()))
    elif planning.metric == "qwk":
        error = _kappa_error(by_patient)
    result = _result(
        planning,
        value=value,
        deviation=deviation,
        error=error,
        per_patient=len(rows) / patients,
        pilot=patients,
        source=(
            f"from a pilot of {patients:,} {'patients' if 'patient' in rows else 'images'}{of_run}"
        ),
        uses=() if planning.metric in METRICS else ("refer_from",),
    )
    degrees = min(float(known), _degrees(_score(planning, pilot), by_patient))
    ends = [degrees / float(chdtri(degrees, tail)) for tail in (0.025, 0.975)]
    plausible = []
    for end in ends:
        half_width = _half_width(
            planning, value=value, deviation=deviation * math.sqrt(end), error=error
        )
        plausible.append(patients_for(half_width, planning.half_width))
    result = replace(result, plausible=(plausible[0], plausible[1]))
    truly = pilot.true_scores
    if truly is None or not truly.verified or planning.metric not in truly.scores:
        return result
    _, low, high = truly.scores[planning.metric]
    verified = np.ceil(truly.verified * ((high - low) / 2.0 / result.table["half_width"]) ** 2)
    return replace(result, table=result.table.assign(verified=verified.astype(np.int64)))


def _error_size(value: float, variance: float) -> float:
    """The size that all errors would have in a sample with this mean and this variance of the
    absolute error."""
    return value + variance / value if value > 0.0 else 1.0


def _kappa_error(by_patient: Floats) -> float:
    """By how much an error more and one less change the κ of one patient, as ``score_draws`` adds
    them.

    by_patient: (G, C, C) the confusion matrix of each patient.
    """
    grade = np.arange(by_patient.shape[-1])
    total = by_patient.sum(axis=0)
    images = by_patient.sum(axis=(1, 2))
    worth = images_worth_one(by_patient, grade[:, None] != grade, images)
    _, changed = _large_sample(METRICS["qwk"].function, total / total.sum())
    return worth / float(images.mean()) * changed


def _degrees(score: Any, by_patient: Floats) -> float:
    """The degrees of freedom of a variance between patients: 2 n / (κ − 1), where κ is the kurtosis
    of what each contributes to a score (3 if that is normal). Rare errors have a large one, so
    their variance is known less well. n are the effective patients: few large ones show too little
    of the kurtosis.

    by_patient: (G, C, C) the confusion matrix of each patient.
    """
    total = by_patient.sum(axis=0)
    images = by_patient.sum(axis=(1, 2))
    effective = float(images.sum() ** 2 / (images**2).sum())
    squared = (by_patient * slopes(score, total / total.sum())).sum(axis=(1, 2)) ** 2
    excess = float((squared**2).sum() / squared.sum() ** 2) - 1.0 / len(by_patient)
    return 2.0 * effective / len(by_patient) / excess if excess > 0.0 else math.inf


def _score(planning: Planning, pilot: Evaluation) -> Any:
    """A function of confusion matrices (..., C, C)."""
    if planning.metric in METRICS:
        return METRICS[planning.metric].function
    if planning.refer_from is None:
        raise SrjtError(
            f"The {planning.metric} of a pilot needs ",
            Option("refer_from"),
            ", the lowest grade to refer.",
            code="missing_option",
        )
    cut = pilot.grades.find(planning.refer_from)
    part = slice(cut, None) if planning.metric == "sensitivity" else slice(None, cut)

    def share(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        of_part = counts[..., part, :]
        with np.errstate(invalid="ignore"):
            return np.asarray(of_part[..., part].sum(axis=(-2, -1)) / of_part.sum(axis=(-2, -1)))

    return share


def _noise_plan(pilot: RunLike | Evaluation | None, planning: Planning) -> SamplePlan:
    """Labels to verify, by the exact interval; a pilot says what the rate is, by its noise
    estimate, and how many labels there are."""
    value = planning.value
    source = "from a rate that is assumed"
    labels = 0
    if pilot is not None and not isinstance(pilot, Evaluation):
        run = open_run(pilot)
        labels = sum(run.facts.data.samples.values())
        estimate = run.noise_estimate
        if value is None and estimate is not None:
            name = "the run" if run.folder is None else run.folder.resolve().name
            value = estimate.rate
            source = f"from the noise estimate of {name}"
            if not estimate.identifiable:
                value = min(max(0.5, estimate.rate_interval[0]), estimate.rate_interval[1])
                source = f"for the worst rate that the noise estimate of {name} allows"
    if value is None:
        value = 0.5
        source = "for the worst rate, one half"
    per_patient = planning.images_per_patient
    effect = 1.0 + max(per_patient - 1.0, 0.0) * planning.correlation
    numbers = [
        labels_to_verify(value, within=min(planning.half_width * factor, 0.49)) for factor in WIDTHS
    ]
    images = []
    for number in numbers:
        needed = number * effect
        if labels:  # what is verified is no longer uncertain: n of N are worth n / (1 − n / N)
            needed /= 1.0 + needed / labels
        images.append(math.ceil(needed))
    deviation = math.sqrt(value * (1.0 - value) * effect / per_patient)
    result = _result(
        planning,
        value=value,
        deviation=deviation,
        per_patient=per_patient,
        source=source,
        uses=CLUSTERED,
        images=images,
    )
    return replace(result, labels=labels)
