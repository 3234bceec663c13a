"""What a study of readers needs, from its first readings."""

from __future__ import annotations

import numpy as np
import pytest

from refusals import refuses
from srjt.errors import SrjtError
from srjt.ordinal.decisions import proportion_interval
from srjt.readers import Readings, agreement, consensus
from srjt.readers.reader_plan import pilots_for, plan_items, plan_readings, wrong_by_readings


def read(items: int, *, readers: int = 3, wrong: float = 0.3, seed: int = 0) -> Readings:
    """All read all, and err by one grade."""
    rng = np.random.default_rng(seed)
    true = rng.integers(4, size=items)
    step = rng.choice([-1, 0, 1], p=[wrong / 2, 1 - wrong, wrong / 2], size=(items, readers))
    item, reader = np.indices(step.shape)
    return Readings(
        items=list(map(str, range(items))),
        readers=list(map(str, range(readers))),
        grades=tuple("0123"),
        item=item.ravel(),
        reader=reader.ravel(),
        grade=(true[:, None] + step).clip(0, 3).ravel(),
    )


@pytest.mark.parametrize("patients", [30, 100, 400])
def test_the_planned_number_has_the_wanted_width(patients: int) -> None:
    """Against the interval itself, of a study that is so many times as large."""
    pilot = np.arange(patients) % 5 > 1
    times = pilots_for(proportion_interval(pilot), 0.03, patients=patients)
    size = round(times * patients)
    study = proportion_interval(np.arange(size) % 5 > 1)
    assert (study.high - study.low) / 2 == pytest.approx(0.03, abs=0.0002)


def test_a_plan_of_a_pilot_comes_true() -> None:
    pilot = read(80)
    plan = plan_items(pilot, agreement(pilot), half_width=0.04)
    assert plan.plausible[0] < plan.items < plan.plausible[1]
    assert plan.table["items"].is_monotonic_increasing
    exact = agreement(read(plan.items, seed=1)).exact
    assert (exact.high - exact.low) / 2 == pytest.approx(0.04, rel=0.15)
    # so many answers of which the share of equal grades so far is right, by Wald's interval
    share = agreement(pilot).exact.value
    assert plan.second == np.ceil(share * (1 - share) * (1.96 / 0.04) ** 2)
    assert plan.repeats is None


def test_more_readings_have_fewer_wrong_grades() -> None:
    readings = read(150)
    agreed = consensus(readings)
    found = wrong_by_readings(agreed).set_index("readings")
    assert found.loc[3, "wrong"] == pytest.approx(agreed.error, abs=0.02)
    assert found["wrong"].is_monotonic_decreasing
    assert (found["low"] < found["wrong"]).all()
    assert (found["wrong"] < found["high"]).all()
    assert found.loc[1, "low"] == pytest.approx(0.27, abs=0.08)  # 0.3, but 0.15 of the outer grades


def test_readers_who_read_nothing_in_common_have_no_plan() -> None:
    apart = read(40, readers=1)
    with pytest.raises(SrjtError, match="needs 20 or more"):
        plan_readings(apart, agreement(apart), consensus(apart))


@pytest.mark.parametrize("half_width", [0.25, 0.3, 0.5])
def test_a_wide_interval_needs_few_items(half_width: float) -> None:
    pilot = read(40)
    plan = plan_items(pilot, agreement(pilot), half_width=half_width)
    assert 1 <= plan.plausible[0] <= plan.items <= plan.plausible[1]
    assert plan.items < 40
    assert plan.table["half_width"].max() <= 0.5
    assert plan.table["items"].is_monotonic_increasing
    assert half_width in plan.table["half_width"].to_list()


@pytest.mark.parametrize("half_width", [5.0, 0.51, 0.0, -1.0, np.nan, 1e-6])
def test_an_impossible_half_width_is_refused(half_width: float) -> None:
    pilot = read(40)
    with refuses("out_of_bounds", "half_width", f"{half_width:g}"):
        plan_items(pilot, agreement(pilot), half_width=half_width)
