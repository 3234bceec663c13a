"""Whether the networks of an audit have learnt enough to judge single labels, and what is said if they have not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.errors import count_of
from srjt.ordinal.baselines import naive_baseline
from srjt.training.record.baselines import not_beaten

__all__ = [
    "MAY_HELP",
    "judges_labels",
    "network_scores",
    "networks_caveat",
    "networks_sentence",
    "review_notice",
    "suggestions_sentence",
    "undetermined",
]

LEARNT_NOTHING = (
    "The networks have not learnt to tell the grades apart: no label is taken to be wrong by them, and the order of "
    "the labels may be chance."
)
READINGS_REMAIN = (
    "The networks have not learnt to tell the grades apart: what is said here rests on the readings."
)
MAY_HELP = "Longer trainings or more samples may help the networks to learn the grades."

Ints = npt.NDArray[np.int64]


def network_scores(labels: Ints, network_grades: Sequence[Ints], *, grades: Sequence[str]) -> dict[str, Any]:
    """How far the held-out grades of the networks equal the labels, beside a naive prediction, as JSON holds it.

    labels: (N,); network_grades: (N,) of each network; grades: (C,) names. A grade is recognised if the networks say it
    more often of samples with this label than of others, beyond two standard errors.
    """
    answers, counts = np.stack(network_grades), np.bincount(labels, minlength=len(grades))
    naive, rows = naive_baseline(counts, counts), []
    for code, name in enumerate(grades):
        own, said = labels == code, answers == code
        recall = float(said[:, own].mean()) if own.any() else 0.0
        elsewhere = float(said[:, ~own].mean()) if not own.all() else 0.0
        often = float(said.mean())
        error = (often * (1 - often) * (1 / max(own.sum(), 1) + 1 / max((~own).sum(), 1))) ** 0.5
        rows.append(
            {
                "grade": name,
                "labels": int(own.sum()),
                "recall": round(recall, 4),
                "recognised": bool(recall > elsewhere + 2 * error),
            }
        )
    return {
        "accuracy": round(float((answers == labels).mean()), 4),
        "mae": round(float(np.abs(answers - labels).mean()), 4),
        "naive_accuracy": round(naive.accuracy, 4),
        "naive_mae": round(naive.mae, 4),
        "grades": rows,
    }


def networks_sentence(summary: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """The scores of the networks, in short; "" for an audit of an earlier version. names: grade → its name."""
    if (found := summary.get("networks")) is None:
        return ""
    shown = "; ".join(
        f"{(names or {}).get(row['grade'], row['grade'])}: {row['recall']:.0%}"
        + ("" if row["recognised"] else " (not recognised)")
        for row in found["grades"]
        if row["labels"]
    )
    return (
        f"The networks, held out, give {found['accuracy']:.0%} of the labels (always the most frequent: "
        f"{found['naive_accuracy']:.0%}) and are {found['mae']:.2f} grades away on average (always the median: "
        f"{found['naive_mae']:.2f}). Of the labels of each grade they give {shown}."
    )


def suggestions_sentence(summary: Mapping[str, Any], noun: str = "label") -> str:
    """How many grades are suggested and how many of them are expected to be right; "" where that is not known."""
    if (found := summary.get("suggestions")) is None:
        return ""
    if found["count"]:
        return (
            f"For {count_of(found['count'], noun)} another grade is suggested; about {found['expected_right']:.0%} of "
            "such suggestions are expected to be right."
        )
    if summary["another_likelier"]:
        return (
            "No grade is suggested: the data do not show that where networks and labels differ it is the label that is "
            "wrong more often than not."
        )
    return ""


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
    sentences = [networks_sentence(summary)]
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
    sentences.append(suggestions_sentence(summary))
    return " ".join(sentence for sentence in sentences if sentence)
