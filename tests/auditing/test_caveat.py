"""What an audit says first about its networks, and which form of noise it names: true in every
combination."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from srjt.auditing.scores import (
    NOTHING_LEARNT,
    RATE_UNKNOWN,
    UNRECOGNISED,
    caveats,
    judges_labels,
    network_scores,
    networks_caveat,
    review_notice,
)
from srjt.noise.model import FORMS, family

LABELS = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3])  # the most frequent in 40 %, the median is 1
ANSWERS = {  # → whether they beat always 1 in MAE
    "the labels themselves": (LABELS, True),
    "always the most frequent": (np.zeros(10, np.int64), False),
    "near, but seldom right": (np.array([0, 0, 0, 1, 0, 0, 1, 1, 2, 2]), True),
    "often right, but far off": (np.array([0, 0, 0, 0, 3, 3, 0, 2, 0, 0]), False),
}


@pytest.mark.parametrize(
    ("kind", "learnt", "readings"), list(product(ANSWERS, [True, False], [True, False]))
)
def test_what_is_said_of_the_networks_is_true(kind: str, learnt: bool, readings: bool) -> None:
    answers, close = ANSWERS[kind]
    said = networks_caveat(
        network_scores(LABELS, [answers], grades="0123"), learnt=learnt, readings=readings
    )
    assert ("do not beat a naive prediction" in said) == (not close)
    far = f"{np.abs(answers - LABELS).mean():.2f} grades from the labels, and always the median label would be 1.00."
    assert (far in said) == (not close)
    assert ("have not learnt" in said) == (not learnt)
    assert ("no label is taken to be wrong" in said) == (not learnt and not readings)
    summary: dict[str, Any] = {
        "caveat": said, "learnt": learnt, "identifiable": False, "reason": "so.", "rate": 0.3,
        "rate_interval": [0.1, 0.6], "networks": {"accuracy": 0.5, "naive_accuracy": 0.4},
        **({"readings": 20} if readings else {}),
    }  # fmt: skip
    judged = learnt or readings
    assert judges_labels(summary) == judged
    notice = review_notice(summary)
    assert ("suggest nothing" in notice) == (not judged)
    assert ("do not beat" in notice) == (learnt and not close)
    assert ("without probabilities" in notice) == (learnt and close)
    assert "50% of the labels" in review_notice(
        {**summary, "identifiable": True, "learnt": True, "caveat": ""}
    )


MEANINGS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "quasi": ("two grades is half as likely", lambda P: np.isclose(2 * P[0, 2], P[0, 1])),
    "truncated": ("by one grade only", lambda P: P[0, 2] == 0 < P[0, 1]),
    "uniform": ("every wrong grade is equally likely", lambda P: np.ptp(P[~np.eye(4, dtype=bool)]) < 1e-12),
    "banded": ("by one factor with every further grade", lambda P: np.isclose(P[0, 2] / P[0, 1], P[3, 1] / P[3, 2])),
    "lowered": ("often too low", lambda P: P[2, 1] >= 0.5 * P[2, 2] > P[2, 3]),
    "raised": ("often too high", lambda P: P[1, 2] >= 0.5 * P[1, 1] > P[1, 0]),
    "boundary": ("only near the boundary", lambda P: np.array_equal(P, np.eye(4))),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_described(form: str) -> None:
    kin = family(form, num_classes=4)
    words, holds = MEANINGS[form]
    assert holds(kin.matrix(kin.mean))
    assert words in FORMS[form]


@pytest.mark.parametrize(
    ("learnt", "identifiable", "said"),
    [
        (True, True, ["", UNRECOGNISED, ""]),
        (True, False, [RATE_UNKNOWN, RATE_UNKNOWN, ""]),
        (False, False, [NOTHING_LEARNT] * 3),
    ],
)
def test_a_row_without_a_probability_says_so(
    learnt: bool, identifiable: bool, said: list[str]
) -> None:
    """As the page and the review: what is verified is known."""
    scores = pd.DataFrame({"grade": ["0", "1", "1"], "verified_grade": ["", "", "2"]})
    summary = {"learnt": learnt, "identifiable": identifiable, "unrecognised": ["1"]}
    assert caveats(scores, summary).tolist() == said
    assert caveats(scores.drop(columns="verified_grade"), summary).tolist()[:2] == said[:2]
