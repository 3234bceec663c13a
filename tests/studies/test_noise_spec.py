"""Noise as a person writes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srjt import noise
from srjt.errors import SrjtError
from srjt.studies.noise_spec import parse_noise

COUNTS = [6105, 3052, 1254, 865]  # LIMUC's


@pytest.mark.parametrize("kind", ["quasi", "truncated"])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_a_rate_is_solved_on_the_class_mix(kind: str, rate: float) -> None:
    spec = parse_noise(f"{kind}:{rate}")
    matrix = spec.matrix(COUNTS)
    assert matrix is not None
    assert noise.expected_rate(matrix, class_counts=COUNTS) == pytest.approx(rate, abs=1e-12)
    assert spec.given_rate(COUNTS) == rate
    rho = spec.rho_on(COUNTS)
    assert rho is not None
    np.testing.assert_array_equal(matrix, noise.transition_matrix(kind, num_classes=4, rho=rho))


def test_rho_alone_tells_the_rate_it_gives() -> None:
    spec = parse_noise("truncated:rho=0.15")
    matrix = spec.matrix(COUNTS)
    np.testing.assert_array_equal(matrix, noise.transition_matrix("truncated", num_classes=4, rho=0.15))
    assert spec.given_rate(COUNTS) == noise.expected_rate(matrix, class_counts=COUNTS)


def test_rho_and_rate_fix_one_and_tell_the_other() -> None:
    spec = parse_noise("quasi:rho=0.2,rate=0.4")
    np.testing.assert_array_equal(
        spec.matrix(COUNTS), noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    )
    assert spec.given_rate(COUNTS) == 0.4
    assert noise.expected_rate(spec.matrix(COUNTS), class_counts=COUNTS) != pytest.approx(0.4, abs=0.01)
    assert parse_noise("quasi:rate=0.4,rho=0.2").rho == 0.2


def test_none() -> None:
    spec = parse_noise(" none ")
    assert (spec.label, spec.kind) == ("none", "none")
    assert spec.matrix(COUNTS) is spec.given_rate(COUNTS) is spec.rho_on(COUNTS) is None


@given(kind=st.sampled_from(["quasi", "truncated"]), rate=st.floats(0, 0.5))
def test_what_is_written_is_read_and_blanks_do_not_matter(kind: str, rate: float) -> None:
    spec = parse_noise(f"{kind}:rate={rate!r}")
    assert (spec.kind, spec.rate, spec.rho) == (kind, rate, None)
    assert parse_noise(f" {kind} : rate = {rate!r}\n") == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qasi:0.2", "Unknown noise 'qasi': did you mean 'quasi'?"),
        ("", "Unknown noise ''"),
        ("quasi", "Write noise as quasi:0.2, quasi:rho=0.1 or none; got 'quasi'."),
        ("quasi:", "got 'quasi:'."),
        ("quasi:high", "got 'quasi:high'."),
        ("quasi:rho", "got 'quasi:rho'."),
        ("quasi:roh=0.1", "got 'quasi:roh=0.1'."),
        ("quasi:rho=0.1=2", "got 'quasi:rho=0.1=2'."),
        ("quasi:0.2,0.3", "got 'quasi:0.2,0.3'."),
        ("none:0.3", "got 'none:0.3'."),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(SrjtError) as raised:
        parse_noise(text)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "text", ["quasi:0.9", "quasi:-0.1", "quasi:nan", "quasi:rho=0.9", "truncated:rho=nan"]
)
def test_impossible_noise_says_what_is_possible(text: str) -> None:
    with pytest.raises(SrjtError, match=r"largest|between 0 and"):
        parse_noise(text).matrix(COUNTS)
