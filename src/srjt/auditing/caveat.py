"""Whether the networks of an audit have learnt enough to judge single labels, and what is said if they have not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.ordinal.baselines import naive_baseline
from srjt.training.record.baselines import not_beaten

__all__ = ["MAY_HELP", "judges_labels", "networks_caveat", "review_notice", "undetermined"]

LEARNT_NOTHING = (
    "The networks have not learnt to tell the grades apart: no label is taken to be wrong by them, and the order of "
    "the labels may be chance."
)
READINGS_REMAIN = (
    "The networks have not learnt to tell the grades apart: what is said here rests on the readings."
)
MAY_HELP = "Longer trainings or more samples may help the networks to learn the grades."

Ints = npt.NDArray[np.int64]


def networks_caveat(
    labels: Ints, network_grades: Sequence[Ints], *, num_classes: int, learnt: bool, readings: bool
) -> str:
    """What the reader of an audit must know first about its networks; "" if they have learnt the grades.

    labels: (N,); network_grades: (N,) held-out grades of each network. learnt: whether their probabilities say more
    about the labels than how common each grade is, the test that decides whether ``srjt train`` uses an estimate.
    readings: whether several readers graded the samples. The networks are judged by their absolute error, the
    metric that grades are for unless another is chosen.
    """
    counts = np.bincount(labels, minlength=num_classes)
    distance = np.abs(np.stack(network_grades) - labels)
    error, naive = float(distance.mean()), naive_baseline(counts, counts).mae
    sentences = []
    if not_beaten(error, naive, purpose="mae"):
        sentences.append(
            f"The networks do not beat a naive prediction: on average their held-out grades are {error:.2f} grades "
            f"from the labels, and always the median label would be {naive:.2f}."
        )
    if not learnt:
        sentences.append(READINGS_REMAIN if readings else LEARNT_NOTHING)
    return " ".join(sentences)


def judges_labels(summary: Mapping[str, Any]) -> bool:
    """Whether what the audit says of single labels rests on more than networks that have learnt nothing."""
    return bool(summary.get("learnt", True)) or "readings" in summary


def undetermined(summary: Mapping[str, Any], labels: str) -> str:
    """That the data do not determine the rate, and why, in one sentence; labels: for example "150 labels".

    Of networks that have learnt nothing, the caveat has said why.
    """
    low, high = summary["rate_interval"]
    judged = judges_labels(summary)
    because = f", because {str(summary['reason']).rstrip('.')}" if judged or "verified" in summary else ""
    guess = f" (a guess: {summary['rate']:.0%})" if judged else ""
    return (
        f"The data do not determine how many of {labels} are wrong: {low:.0%} to {high:.0%}{because}{guess}."
    )


def review_notice(summary: Mapping[str, Any]) -> str:
    """What a reviewer must know first about an audit, in short; "" if there is nothing."""
    if not judges_labels(summary):
        return (
            "The networks of this audit have not learnt to tell the grades apart: they suggest nothing, and the order "
            "of the images may be chance."
        )
    sentences = []
    if not summary["learnt"]:
        sentences.append(READINGS_REMAIN)
    elif summary["caveat"]:
        sentences.append("The networks of this audit do not beat a naive prediction: trust your own reading.")
    if not summary["identifiable"] and "readings" not in summary:
        low, high = summary["rate_interval"]
        sentences.append(
            f"The data do not determine how many labels are wrong ({low:.0%} to {high:.0%}): all probabilities rest on "
            f"a guess, {summary['rate']:.0%}."
        )
    return " ".join(sentences)
