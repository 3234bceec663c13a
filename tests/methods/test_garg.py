"""Garg: ordinal logits, a shared weight vector, and a matrix that may be nearly singular."""

from __future__ import annotations

import warnings
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from srjt import methods, noise
from srjt.errors import SrjtError


def create(num_classes: int = 4, rho: float = 0.1, kind: str = "quasi") -> methods.Garg:
    matrix = noise.transition_matrix(kind, num_classes=num_classes, rho=rho)
    return methods.create("garg", num_classes=num_classes, transition=matrix)


def test_the_loss_by_hand() -> None:
    method = methods.create("garg", num_classes=2, transition=[[0.9, 0.1], [0.2, 0.8]])
    logits = torch.full((1, 2, 1), log(3), dtype=torch.float64)
    below, above = log(4), log(4 / 3)
    expected = ((0.8 * below - 0.1 * above) + (-0.2 * below + 0.9 * above)) / 0.7 / 2
    assert float(method.loss(logits, torch.tensor([0, 1])).total) == pytest.approx(expected)


def test_the_head_has_one_weight_vector_and_a_bias_per_threshold() -> None:
    head = create().head(7, 4)
    assert sorted(tuple(p.shape) for p in head.parameters()) == [(1, 7), (3,)]
    features = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    logits = head(features)
    assert logits.shape == (5, 3)
    # thresholds differ by their biases alone
    torch.testing.assert_close(logits - logits[:, :1], (logits - logits[:, :1])[:1].expand(5, -1))
    assert methods.create("garg", num_classes=2, transition=torch.eye(2)).head(7, 2)(features).shape == (5, 1)


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 10])
def test_every_grade_is_reachable_from_the_start(classes: int) -> None:
    method = methods.create("garg", num_classes=classes, transition=np.eye(classes))
    head = method.head(1, classes)
    position = torch.linspace(-60.0, 60.0, 2401, dtype=torch.float64)  # of a sample along the weight vector
    with torch.no_grad():
        highest = method.probabilities((position[:, None] + head.bias)[None])[0].max(dim=0).values
    assert (highest[1:-1] > 0.75).all()
    assert (highest[[0, -1]] > 0.99).all()
    torch.testing.assert_close(head.bias, -head.bias.flip(0))  # no grade is preferred to its mirror image


def test_the_published_start_is_kept_and_cannot_reach_a_middle_grade() -> None:
    for classes in (2, 3, 5, 8):
        matrix = np.eye(classes)
        code = methods.create("garg", num_classes=classes, transition=matrix, convention="published-code")
        start = torch.linspace(1.0, -1.0, classes - 1) if classes > 2 else torch.zeros(1)
        torch.testing.assert_close(code.head(7, classes).bias.detach(), start)
    start = torch.linspace(1.0, -1.0, 4, dtype=torch.float64)
    position = torch.linspace(-9.0, 9.0, 901, dtype=torch.float64)
    reached = create(5).probabilities((position[:, None] + start)[None])[0, :, 1:-1].max()
    assert float(reached) == pytest.approx(np.tanh(1 / 6), abs=1e-6)  # 0.165


def test_probabilities_and_grades_by_hand() -> None:
    # above 0: 0.9, above 1: 0.6, above 2: 0.2
    logits = torch.logit(torch.tensor([[[0.9, 0.6, 0.2]]], dtype=torch.float64))
    assert create().probabilities(logits)[0, 0].tolist() == pytest.approx([0.1, 0.3, 0.4, 0.2])
    assert create().grades(logits).tolist() == [[2]]


def test_crossing_thresholds_are_clamped_and_renormalised() -> None:
    # above 0: 0.5, above 1: 0.7: the difference −0.2 counts as 0; (0.5, 0, 0.5, 0.2) / 1.2
    logits = torch.logit(torch.tensor([[[0.5, 0.7, 0.2]]], dtype=torch.float64))
    expected = [0.5 / 1.2, 0.0, 0.5 / 1.2, 0.2 / 1.2]
    assert create().probabilities(logits)[0, 0].tolist() == pytest.approx(expected)


@given(arrays("float64", (3,), elements=st.floats(-8, 8)))
def test_ordered_thresholds_decide_the_same_through_probabilities(raw: np.ndarray) -> None:
    logits = torch.from_numpy(np.sort(raw)[::-1].copy())[None, None]
    if logits.abs().min() > 1e-6:  # else Pr(grade > k) is ½ up to rounding
        method = create()
        assert torch.equal(method.grades_of(method.probabilities(logits)), method.grades(logits))


def test_a_sigmoid_of_exactly_one_half_is_not_above_one_half() -> None:
    assert create().grades(
        torch.tensor([[[0.0, 0.0, 0.0], [1e-3, 0.0, -1.0], [9.0, 9.0, 9.0]]])
    ).tolist() == [[0, 1, 3]]


@given(arrays("float32", (2, 5, 3), elements=st.floats(-1e4, 1e4, width=32)).map(torch.from_numpy))
def test_probabilities_are_distributions_whatever_the_logits(logits: torch.Tensor) -> None:
    for z in (logits, logits.half(), logits.bfloat16()):
        p = create().probabilities(z)
        assert p.shape == (2, 5, 4)
        assert p.dtype == torch.float32
        assert (p >= 0).all()
        torch.testing.assert_close(p.sum(dim=-1), torch.ones(2, 5))


def test_a_nearly_singular_matrix_is_a_warning_with_numbers() -> None:
    with pytest.warns(UserWarning, match=r"condition number 41, inverse entries up to 18"):
        create(rho=0.3, kind="truncated")


def test_a_well_conditioned_matrix_is_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create()


def test_a_singular_matrix_is_an_error() -> None:
    with pytest.raises(SrjtError, match="this one is singular"):
        methods.create("garg", num_classes=2, transition=[[0.5, 0.5], [0.5, 0.5]])


def test_moving_does_not_warn_again() -> None:
    with pytest.warns(UserWarning, match="nearly singular"):
        method = create(rho=0.3, kind="truncated")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert method.to("meta").inverse.device.type == "meta"
