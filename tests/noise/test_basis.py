"""What an estimate rests on, and why it may not be determined: facts and their sentences."""

import json
from dataclasses import replace
from typing import get_args, get_type_hints

import numpy as np
import pytest

from fixtures.noisy_features import counted
from srjt.noise.basis import Basis, Undetermined
from srjt.noise.estimate import NoiseEstimate
from srjt.noise.model import FORMS


def estimate(undetermined: Undetermined | None, basis: Basis | None) -> NoiseEstimate:
    plain = counted([0, 1] * 5, np.eye(2)[[0, 1] * 5], identifiable=undetermined is None)
    return replace(plain, undetermined=undetermined, basis=basis)


@pytest.mark.parametrize(
    ("facts", "clause"),
    [
        ({"kind": "few_labels", "grade": 3, "labels": 1}, "only 1 label is of grade 3: too few"),
        ({"kind": "few_labels", "grade": 0, "labels": 2}, "only 2 labels are of grade 0"),
        ({"kind": "indistinct", "grade": 2, "labels": 1200}, "grade 2, which 1,200 labels have"),
        ({"kind": "few_verified", "labels": 1}, "only 1 label is verified"),
        ({"kind": "few_verified", "labels": 6}, "only 6 labels are verified"),
    ],
)
def test_why_a_rate_is_not_determined_has_its_numbers(
    facts: dict[str, object], clause: str
) -> None:
    assert clause in Undetermined(**facts).clause  # type: ignore[arg-type]


def test_every_fact_has_words() -> None:
    for kind in get_args(get_type_hints(Undetermined)["kind"]):
        clause = Undetermined(kind=kind, grade=1, labels=2, text="too few.").clause
        assert clause
        assert not clause.endswith(".")
    for form in FORMS:
        assert Basis(kind="labels", form=form).sentence.count("networks repeat") == 1
    lowered, raised = (Basis(kind="labels", form=form).sentence for form in ("lowered", "raised"))
    assert "too low" in lowered
    assert "too high" in raised
    assert "300 second labels" in Basis(kind="second_labels", labels=300).sentence
    drawn = Basis(kind="verified", labels=80, at_random=False).sentence
    assert "80 verified labels, weighted by the probabilities of their draw" in drawn
    assert "too few" in Basis(kind="verified", labels=6, enough=False).sentence


def test_an_estimate_says_both() -> None:
    known = estimate(
        Undetermined(kind="few_verified", labels=6), Basis(kind="labels", form="quasi")
    )
    assert known.reason == "only 6 labels are verified."
    assert known.assumption == Basis(kind="labels", form="quasi").sentence
    assert str(known).endswith(f"  not determined: {known.reason}\n  {known.assumption}")
    plain = estimate(None, None)
    assert plain.reason == plain.assumption == ""


@pytest.mark.parametrize("reason", ["", "only 1 label is verified."])
def test_a_file_of_an_earlier_version_keeps_its_sentences(reason: str) -> None:
    written = estimate(None, None).to_dict()
    del written["undetermined"], written["basis"]
    written |= {
        "reason": reason,
        "assumption": "The rate assumes much.",
        "identifiable": not reason,
    }
    read = NoiseEstimate.from_dict(json.loads(json.dumps(written)))
    assert (read.reason, read.assumption) == (reason, "The rate assumes much.")
    assert (read.undetermined is None) == read.identifiable
    again = NoiseEstimate.from_dict(json.loads(json.dumps(read.to_dict())))
    assert (again.reason, again.assumption) == (reason, "The rate assumes much.")
    for damage in ({"reason": None}, {"assumption": 7}):
        with pytest.raises((ValueError, TypeError)):
            NoiseEstimate.from_dict({**written, **damage})
