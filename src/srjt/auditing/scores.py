"""Score every label from a cross-fit and a noise estimate, and sum the scores up to error rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.auditing.caveat import network_scores, networks_caveat
from srjt.data.groups import contradictory_twins
from srjt.errors import count_of
from srjt.noise.estimate import NoiseEstimate
from srjt.noise.label_quality import suggestion_shares, true_grade_posterior
from srjt.noise.verified import exact_interval, labels_to_verify
from srjt.training.crossfit import CrossFit

__all__ = [
    "error_rates",
    "score",
    "summarise",
    "verification_plan",
    "verified_alone",
    "verified_summary",
    "wilson",
]

Floats = npt.NDArray[np.float64]
WITHIN = 0.05  # how precisely the plan of a verification aims to know the rate
DIGITS = 6  # of probabilities: differences beyond are rounding, and must not decide the order


def score(
    fitted: CrossFit,
    estimate: NoiseEstimate,
    *,
    images: Sequence[str],
    reader: str | None = None,
    posterior: Floats | None = None,
) -> pd.DataFrame:
    """One row per sample, the most doubtful label first (ties by id), with the columns of ``audit.csv``.

    Contradictory twins (the same pixels with different labels) come before all others, each beside its twin: one of
    their labels is wrong for certain. Their column ``twins`` numbers the pairs.

    images: (N,) the file of each sample's image, "" if there is none. reader: the column that names the reader of
    each label. posterior: (N, C) p(true grade | image, all readings), if several readers graded the samples. The index
    is the sample's row in ``fitted.manifest``. ``suggested`` is the most probable grade; "" where that is another than
    the label, but of such suggestions less than half are expected to be right, or where the networks do not recognise
    the one grade or the other. ``right`` is that share. What readings suggest does not rest on the networks alone.
    """
    manifest, names = fitted.manifest, np.array(fitted.manifest.grades, dtype=object)
    labels = manifest.labels
    twins = contradictory_twins(manifest)
    together = {"same_image": np.where(twins > 0, twins, -np.arange(len(twins)))} if twins.any() else {}
    from_readings = posterior is not None
    if posterior is None:
        posterior = true_grade_posterior(
            labels,
            fitted.probabilities,
            groups=manifest.groups,
            verified=manifest.verified_labels,
            rate=estimate.rate,
            **together,
        )
    suggested = posterior.argmax(axis=1)
    withheld = np.zeros(len(labels), dtype=bool)
    if not from_readings:
        right = suggestion_shares(
            labels, fitted.probabilities, suggested, estimate=estimate, groups=manifest.groups
        )
        seen = network_scores(labels, list(fitted.grades), grades=manifest.grades)["grades"]
        known = np.array([row["recognised"] for row in seen])
        withheld = (suggested != labels) & ((right < 0.5) | ~known[suggested] | ~known[labels])
        certain = twins > 0  # one label of a pair is wrong for certain, and a verified grade is known
        if (verified := manifest.verified_labels) is not None:
            certain |= verified >= 0
        withheld &= ~certain
        right = np.where(certain, posterior.max(axis=1), right)
    posterior = posterior.round(DIGITS)
    columns: dict[str, Any] = {
        "id": manifest.ids,
        "image": list(images),
        "grade": names[labels],
        "suggested": np.where(withheld, "", names[suggested]),
        "quality": posterior[np.arange(len(labels)), labels],
        "distance": np.abs(suggested - labels),
    }
    if not from_readings:
        columns["right"] = right.round(DIGITS)
    columns |= {f"p_{grade}": posterior[:, grade] for grade in range(manifest.num_classes)}
    columns |= {f"network_{k + 1}": names[answer] for k, answer in enumerate(fitted.grades)}
    columns |= {"fold": fitted.fold, "selected": fitted.selected.round(DIGITS)}
    if manifest.patients is not None:
        columns["patient"] = manifest.patients
    if reader is not None:
        columns["reader"] = ["" if pd.isna(name) else str(name) for name in manifest.table[reader]]
    if manifest.true_labels is not None:
        columns["true_grade"] = names[manifest.true_labels]
    if (verified := manifest.verified_labels) is not None:
        columns["verified_grade"] = np.where(verified >= 0, names[verified], "")
    table = pd.DataFrame(columns)
    if twins.any():
        table["twins"] = twins
        lowest = table.groupby(twins)["quality"].transform("min").where(twins > 0, np.inf)
        table["pair"] = pd.Series(twins).where(twins > 0, twins.max() + 1)
        order = (
            table.assign(lowest=lowest).sort_values(["lowest", "pair", "quality", "id"], kind="stable").index
        )
        ranked = table.drop(columns="pair").loc[order]
        ranked["twins"] = _numbered(ranked["twins"])
    else:
        ranked = table.sort_values(["quality", "id"], kind="stable")
    ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
    return ranked


def _numbered(twins: pd.Series[int]) -> list[str]:
    """1, 2, … in the order of the rows; "" for samples without a twin."""
    number: dict[int, int] = {0: 0}
    return [str(number.setdefault(pair, len(number)) or "") for pair in twins.tolist()]


def error_rates(scores: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    """For each value of a column: the number of labels, how many of them are expected to be wrong, and the error
    rate with its interval; the highest rate first (ties by name)."""
    rates = []
    for value, group in scores.groupby(column, sort=True):
        errors = float((1 - group["quality"]).sum())
        low, high = wilson(errors, len(group))
        rates.append(
            {
                column: str(value),
                "samples": len(group),
                "expected_errors": round(errors, 2),
                "rate": round(errors / len(group), 4),
                "interval": [round(low, 4), round(high, 4)],
            }
        )
    return sorted(rates, key=lambda row: -row["rate"])  # a stable sort: ties stay in the order of names


def wilson(errors: float, samples: int, *, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion; ``errors`` may be an expectation, so it need not be an integer."""
    share = errors / samples
    centre = share + z**2 / (2 * samples)
    spread = z * math.sqrt(max(share * (1 - share), 0.0) / samples + z**2 / (4 * samples**2))
    scale = 1 + z**2 / samples
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def summarise(
    scores: pd.DataFrame, estimate: NoiseEstimate, *, grades: Sequence[str], readings: bool = False
) -> dict[str, Any]:
    """The contents of ``summary.json``, as values that JSON can hold. readings: whether several readers graded."""
    place = {name: code for code, name in enumerate(grades)}
    labels = np.asarray(scores["grade"].map(place), dtype=np.int64)
    networks = [
        np.asarray(scores[name].map(place), dtype=np.int64)
        for name in scores
        if str(name).startswith("network_")
    ]
    by_grade = {row["grade"]: row for row in error_rates(scores, "grade")}
    summary: dict[str, Any] = {
        "samples": len(scores),
        "caveat": networks_caveat(
            labels,
            networks,
            num_classes=len(grades),
            learnt=estimate.learnt,
            readings=readings,
        ),
        "learnt": estimate.learnt,
        "networks": network_scores(labels, networks, grades=grades),
        "rate": estimate.rate,
        "rate_interval": list(estimate.rate_interval),
        "identifiable": estimate.identifiable,
        "reason": estimate.reason,
        "lower_bound": estimate.lower_bound,
        "assumption": estimate.assumption,
        "form": estimate.form,
        "form_weight": estimate.form_weight,
        "matrix": estimate.transition.tolist(),
        "prior": estimate.prior.tolist(),
        "expected_errors": round(float((1 - scores["quality"]).sum()), 2),
        "another_likelier": int((scores["distance"] > 0).sum()),
        "grades": [by_grade[name] for name in grades if name in by_grade],
        "patients": error_rates(scores, "patient") if "patient" in scores else None,
        "readers": error_rates(scores, "reader") if "reader" in scores else None,
    }
    if "right" in scores:
        offered = scores[(scores["suggested"] != "") & (scores["suggested"] != scores["grade"])]
        share = float(offered["right"].mean()) if len(offered) else 0.0
        summary["suggestions"] = {"count": len(offered), "expected_right": round(share, 4)}
    if "verified_grade" in scores:
        sample = scores[scores["verified_grade"] != ""]
        wrong = int((sample["grade"] != sample["verified_grade"]).sum())
        summary["verified"] = verified_summary(labels=len(sample), wrong=wrong)
    summary["verify_more"] = _verify_more(estimate)
    if "twins" in scores:
        summary["twins"] = {
            "images": int(scores["twins"].replace("", None).nunique()),
            "labels": int((scores["twins"] != "").sum()),
        }
    if "true_grade" in scores:
        summary["known"] = _against_truth(scores)
    return summary


def verified_alone(verified: Mapping[str, Any]) -> str:
    """The rate of the verified labels alone, in one sentence; ``verified``: that part of the summary."""
    low, high = verified["interval"]
    return (
        f"Wrong among {count_of(verified['labels'], 'verified label')}: {verified['wrong']:,}, {verified['rate']:.0%} "
        f"(exact 95 % interval: {low:.0%} to {high:.0%}, without the model)."
    )


def verification_plan(summary: Mapping[str, Any]) -> str:
    """How many labels to verify to know the rate, in one sentence; "" if it is known, or in an earlier audit."""
    more = int(summary.get("verify_more", 0))
    if not more:
        return ""
    more_of_them = "more " if "verified" in summary else ""
    labels = count_of(more, f"{more_of_them}label")
    return f"Verify {labels}, drawn at random, to know the rate within ±{WITHIN:.0%}."


def verified_summary(*, labels: int, wrong: int) -> dict[str, Any]:
    """What a random sample of verified labels says by itself, without any model."""
    rate = wrong / labels
    return {"labels": labels, "wrong": wrong, "rate": rate, "interval": list(exact_interval(rate, labels))}


def _verify_more(estimate: NoiseEstimate) -> int:
    """How many more labels to verify, at random, to know the rate within ± ``WITHIN``; 0: it is known."""
    low, high = estimate.rate_interval
    if estimate.identifiable and high - low <= 2 * WITHIN:
        return 0
    # Undetermined: the rate that needs the largest sample of those in the interval.
    rate = estimate.rate if estimate.identifiable else min(max(0.5, low), high)
    verified, labels = estimate.verified, estimate.samples
    needed = labels_to_verify(rate, within=WITHIN)  # of infinitely many, without the model
    # n verified labels are worth gain · n / (1 − n / N) of these: what is verified is no longer uncertain.
    gain = estimate.verified_worth * (1.0 - verified / labels) / verified if verified else 1.0
    return max(0, math.ceil(needed / (gain + needed / labels)) - verified)


def _against_truth(scores: pd.DataFrame) -> dict[str, Any]:
    """How well the ranking finds the labels that are known to be wrong."""
    from sklearn.metrics import average_precision_score

    wrong = (scores["grade"] != scores["true_grade"]).to_numpy()
    offered = scores[(scores["suggested"] != "") & (scores["suggested"] != scores["grade"])]
    count = int(wrong.sum())
    if not 0 < count < len(wrong):
        return {"wrong": count}
    return {
        "wrong": count,
        "rate": round(float(wrong.mean()), 4),
        "average_precision": round(float(average_precision_score(wrong, 1 - scores["quality"])), 4),
        "precision_at_wrong": round(float(wrong[:count].mean()), 4),
        "suggested": len(offered),
        "suggested_right": round(float((offered["suggested"] == offered["true_grade"]).mean()), 4)
        if len(offered)
        else None,
    }
