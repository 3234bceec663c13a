"""What the numbers of an audit count: labels, or consensus grades and single readings where several readers graded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srjt.errors import count_of

__all__ = ["estimate_start", "estimated_from", "form_sentence", "label_noun", "readers_sentence"]

_FORMS = {
    "quasi": "an error by two grades is half as likely as one by one grade, and so on",
    "truncated": "errors by one grade only",
    "banded": "each grade has its own error rates, which change by one factor with every further grade",
    "uniform": "every wrong grade is equally likely",
    "lowered": "labels of a grade are mostly or often too low, each grade at its own rate",
    "raised": "labels of a grade are mostly or often too high, each grade at its own rate",
    "boundary": "errors only near the boundary between two grades",
}


def readers_sentence(summary: Mapping[str, Any]) -> str:
    """The shares of wrong consensus grades and readings by readers and networks together; "" of one reader."""
    if "readings" not in summary:
        return ""
    wrong = sum(float(row["expected_errors"]) for row in summary["readers"])
    return (
        f"About {summary['expected_errors'] / summary['samples']:.0%} of {summary['samples']:,} consensus grades are "
        f"expected to be wrong, and {wrong / summary['readings']:.0%} of the {summary['readings']:,} readings behind "
        "them, given all readings and the networks."
    )


def label_noun(summary: Mapping[str, Any]) -> str:
    return "consensus grade" if "readings" in summary else "label"


def estimate_start(summary: Mapping[str, Any], sentence: str) -> str:
    """The sentence about the noise estimate, which does not know the single readings."""
    if "readings" not in summary:
        return sentence
    return f"Without the single readings, {sentence[0].lower()}{sentence[1:]}"


def estimated_from(*, samples: int, folds: int, epochs: int, readers: bool = False) -> str:
    """What the rate of an audit is computed from, in one sentence: a training estimates it from less."""
    trainings = f"{folds} trainings of {count_of(epochs, 'epoch')}"
    if readers:
        return (
            f"This estimate is from all {samples:,} consensus grades and {trainings}; srjt train takes the rate of its "
            "training side from the readings instead, so it may differ."
        )
    return (
        f"Estimated from all {samples:,} labels and {trainings}; srjt train --noise-rate auto uses its training side "
        "and shorter trainings, so its rate may differ."
    )


def form_sentence(summary: Mapping[str, Any]) -> str:
    """The likeliest form of noise, and how the matrix that is shown differs from it."""
    form, weight = str(summary["form"]), summary.get("form_weight")
    meaning = _FORMS.get(form, "a form of an earlier version")
    if form == "quasi" and len(summary["matrix"]) == 2:
        meaning = "both grades are mistaken equally often"
    how_likely = "" if weight is None else f" ({weight:.0%})"
    also = " and the verified labels" if "verified" in summary else ""
    return (
        f"{form}{how_likely}: {meaning}. The matrix is a mean over all forms, weighted by how well each explains the "
        f"labels{also}, so it need not look like this."
    )
