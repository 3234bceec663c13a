"""Single-network methods in closed form. Mixup, CDR and Garg, which do more than a loss, have own files."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
import torch

from srjt import methods

# Three grades, asymmetric errors: P where Pᵀ is meant gives other numbers.
P3 = [[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.3, 0.7]]
# Two samples: p = (½, ¼, ¼) with label 1 and p = (1/8, 1/8, ¾) with label 2
LOGITS = torch.tensor([[[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]], dtype=torch.float64).log()
LABELS = torch.tensor([1, 2])


def total(name: str, **options) -> float:
    loss = methods.create(name, num_classes=3, noise_rate=0.2, transition=P3, **options).loss(LOGITS, LABELS)
    assert loss.selected.tolist() == [[True, True]]
    assert float(loss.total) == float(loss.per_network[0])
    return float(loss.total)


def test_standard() -> None:
    assert total("standard") == pytest.approx((log(4) + log(4 / 3)) / 2)
    assert total("cdr") == total("mixup") == total("standard")


def test_sord() -> None:
    one, e1, e2 = 1.0, exp(-1), exp(-2)
    middle = (e1 * log(2) + one * log(4) + e1 * log(4)) / (one + 2 * e1)
    top = (e2 * log(8) + e1 * log(8) + one * log(4 / 3)) / (one + e1 + e2)
    assert total("sord") == pytest.approx((middle + top) / 2, rel=1e-6)


def test_sord_with_a_matrix_of_ones_own() -> None:
    assert total("sord", label_matrix=np.eye(3)) == pytest.approx(total("standard"))
    rows = [[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]]
    expected = (0.5 * log(2) + 0.5 * log(4) + 0.5 * log(8) + 0.5 * log(4 / 3)) / 2
    assert total("sord", label_matrix=rows) == pytest.approx(expected)


def test_label_smoothing_of_a_tenth_over_all_grades() -> None:
    each = 0.1 / 3
    first = 0.9 * log(4) + each * (log(2) + 2 * log(4))
    second = 0.9 * log(4 / 3) + each * (2 * log(8) + log(4 / 3))
    assert total("label-smooth") == pytest.approx((first + second) / 2, rel=1e-6)
    # and torch's own label smoothing means the same by 0.1
    theirs = torch.nn.functional.cross_entropy(LOGITS[0], LABELS, label_smoothing=0.1)
    assert total("label-smooth") == pytest.approx(float(theirs), rel=1e-6)
    assert total("label-smooth", smoothing=0.0) == pytest.approx(total("standard"))


def test_forward_correction() -> None:
    # Pr(label 1) = ½·0.2 + ¼·0.7 + ¼·0.3 = 0.35; Pr(label 2) = ⅛·0 + ⅛·0.2 + ¾·0.7 = 0.55
    assert total("f-correction") == pytest.approx(-(log(0.35) + log(0.55)) / 2)


def test_reweight() -> None:
    expected = (0.25 / 0.35 * log(4) + 0.75 / 0.55 * log(4 / 3)) / 2
    assert total("reweight") == pytest.approx(expected)


@pytest.mark.parametrize("name", ["standard", "sord", "label-smooth", "f-correction", "reweight", "garg"])
def test_the_convention_makes_no_difference_to_single_networks(name: str) -> None:
    logits = LOGITS[..., :2] if name == "garg" else LOGITS
    paper, code = (
        methods.create(name, num_classes=3, transition=P3, convention=c).loss(logits, LABELS)
        for c in ("paper", "published-code")
    )
    assert torch.equal(paper.total, code.total)


def test_keep_does_not_thin_out_a_single_networks_batch() -> None:
    method = methods.create("standard", num_classes=3)
    loss = method.loss(LOGITS, LABELS, keep=1)
    assert loss.selected.all()
    assert torch.equal(loss.total, method.loss(LOGITS, LABELS).total)
