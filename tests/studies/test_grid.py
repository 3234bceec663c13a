"""Runs are paired, and identified by what determines their result."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from srjt import noise
from srjt.errors import SrjtError
from srjt.studies.config import StudyConfig
from srjt.studies.grid import StudyData
from srjt.studies.open_data import open_data

Small = Callable[..., StudyConfig]


def keys(config: StudyConfig) -> dict[tuple[Any, ...], str]:
    return {
        (c.method.name, c.method.variant, c.noise.label, c.fold, c.seed): c.key
        for c in open_data(config).planned_runs()
    }


@pytest.fixture(scope="module")
def usual(small: Small) -> dict[tuple[Any, ...], str]:
    return keys(small())


def test_the_grid(small: Small) -> None:
    config = small(noises=("quasi:0.4", "truncated:0.2", "quasi:0.4"), seeds=(0, 1))
    planned_runs = list(open_data(config).planned_runs())
    assert len(planned_runs) == 3 * 2 * 3 * 2
    assert len({planned.key for planned in planned_runs}) == len(planned_runs)
    # an unfinished study has compared all methods on something
    assert len({(c.noise.label, c.fold, c.seed) for c in planned_runs[:3]}) == 1
    assert [c.method.name for c in planned_runs[:3]] == ["standard", "garg", "co-teaching+ours"]


def test_comparisons_are_paired(small: Small) -> None:
    data = open_data(small(noises=("quasi:0.4", "truncated:0.4"), seeds=(0, 1)))
    draws = {}
    for spec in data.noises:
        for fold in data.fold_numbers:
            for seed in (0, 1):
                labelled, found = data.labelled(spec, fold, seed)
                again, _ = open_data(data.config).labelled(spec, fold, seed)  # as another process sees it
                np.testing.assert_array_equal(labelled.labels, again.labels)
                np.testing.assert_array_equal(labelled.true_labels, data.manifest.labels)
                split = data.splits[fold]
                np.testing.assert_array_equal(labelled.labels[split.test], data.manifest.labels[split.test])
                assert (labelled.labels[split.validation] != data.manifest.labels[split.validation]).any()
                assert found is not None
                wrong = labelled.labels[split.train] != data.manifest.labels[split.train]
                assert found.realised_rate == pytest.approx(wrong.mean()) != 0.0
                draws[spec.label, fold, seed] = labelled.labels.tobytes()
    assert len(set(draws.values())) == len(draws)
    settings = {}
    for planned in data.planned_runs():
        shared = dataclasses.asdict(planned.config)
        for own in ("method", "noise_rate", "transition"):
            shared.pop(own)
        settings.setdefault((planned.noise.label, planned.fold, planned.seed), []).append(shared)
    for (_, _, seed), alike in settings.items():
        assert all(one == alike[0] for one in alike)
        assert alike[0]["seed"] == seed


def test_methods_get_what_they_need(small: Small) -> None:
    data = open_data(small(noises=("quasi:rho=0.2,rate=0.4",), only_folds=(1,)))
    given = {planned.method.name: planned.config for planned in data.planned_runs()}
    assert (given["standard"].noise_rate, given["standard"].transition) == (None, None)
    assert (given["co-teaching+ours"].noise_rate, given["co-teaching+ours"].transition) == (0.4, None)
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    np.testing.assert_array_equal(given["garg"].transition, matrix)


@pytest.mark.parametrize(
    "change",
    [
        {"train": {"epochs": 3}},
        {"train": {"learning_rate": 2e-3}},
        {"train": {"convention": "published-code"}},
        {"reading": {"images": 121, "patients": 24, "size": 32}},
        {"reading": {"images": 120, "patients": 24, "size": 32, "seed": 1}},
        {"reading": {"images": 120, "patients": 24, "size": 33}},  # the same labels, other pixels
        {"split_seed": 1},
        {"folds": 4},
        {"noises": ("quasi:0.3",)},
        {"seeds": (1,)},
    ],
)
def test_what_determines_the_result_changes_every_key(
    small: Small, usual: dict[tuple[Any, ...], str], change: dict[str, Any]
) -> None:
    assert not set(usual.values()) & set(keys(small(**change)).values())


def test_other_labels_change_the_keys(small: Small) -> None:
    data = open_data(small())
    labels = data.manifest.labels.copy()
    labels[data.splits[0].train[0]] = (labels[data.splits[0].train[0]] + 1) % 4
    table = data.manifest.table.assign(grade=labels)
    other = StudyData(data.config, dataclasses.replace(data.manifest, table=table), data.splits)
    assert not {c.key for c in data.planned_runs()} & {c.key for c in other.planned_runs()}


@pytest.mark.parametrize(
    "how",
    [
        {"step": "eager"},
        {"tune_cpu": True},
        {"deterministic": True},
        {"memory_share": 0.1},
        {"eval_batch_size": 7},
        {"checkpoint_seconds": 1.0},
    ],
)
def test_how_it_is_computed_changes_no_key(
    small: Small, usual: dict[tuple[Any, ...], str], how: dict[str, Any]
) -> None:
    assert keys(small(train=how)) == usual


def test_what_is_added_changes_no_other_key(small: Small) -> None:
    before = keys(small())
    more = small(
        methods=("jocor", "standard", "co-teaching:select=soft", "garg", "co-teaching+ours"),
        noises=("truncated:0.2", "quasi:0.4"),
        seeds=(5, 0),
    )
    after = keys(more)
    assert before.items() <= after.items()
    assert len(set(after.values())) == len(after) == 5 * 2 * 3 * 2


def test_rho_changes_the_keys_of_all(small: Small) -> None:
    """The labels differ, even if the methods get the same rate."""
    one, other = (
        keys(small(noises=("quasi:rho=0.1,rate=0.2",))),
        keys(small(noises=("quasi:rho=0.12,rate=0.2",))),
    )
    assert len(set(one.values()) | set(other.values())) == 18
    assert not {k.rsplit("_", 1)[1] for k in one.values()} & {k.rsplit("_", 1)[1] for k in other.values()}


def test_a_better_guess_of_the_matrix_repeats_only_those_who_use_it(small: Small) -> None:
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=0.2)
    before = keys(small(noises=("none",), noise_rate=0.3))
    after = keys(small(noises=("none",), noise_rate=0.3, transition=matrix.tolist()))
    changed = {who[0] for who in before if before[who] != after[who]}
    assert changed == {"garg"}
    given = keys(small(noises=("none",), noise_rate=0.2, transition=matrix.tolist()))
    assert {who[0] for who in after if after[who] != given[who]} == {"co-teaching+ours"}


def test_keys_are_names_of_folders(small: Small) -> None:
    config = small(
        methods=("co-teaching:select=hard,update=soft,temperature=0.125,per_class=true,ramp_epochs=3", "all"),
        noises=("quasi:rho=0.1,rate=0.2", "none"),
        noise_rate=0.3,
        seeds=(0, 2**40),
    )  # fmt: skip
    found = list(keys(config).values())
    assert len(set(map(str.lower, found))) == len(found)
    for key in found:
        assert re.fullmatch(r"[A-Za-z0-9.+_-]+", key)
        assert len(key) < 200


def test_a_planned_run_is_found_again(small: Small) -> None:
    data = open_data(
        small(methods=("co-teaching:select=soft", "garg"), noises=("quasi:0.2", "none"), noise_rate=0.3)
    )
    for planned in data.planned_runs():
        assert data.find(json.loads(json.dumps(planned.facts()))) == planned


def test_noisy_already_with_a_rate(small: Small) -> None:
    data = open_data(small(noises=("none",), noise_rate=0.3, only_folds=(0,)))
    labelled, found = data.labelled(data.noises[0], 0, 0)
    assert found is None
    np.testing.assert_array_equal(labelled.labels, data.manifest.labels)
    given = {planned.method.name: planned.config for planned in data.planned_runs()}
    assert given["co-teaching+ours"].noise_rate == 0.3
    counts = data.manifest.class_counts
    matrix = np.array(given["garg"].transition)
    assert noise.expected_rate(matrix, class_counts=counts) == pytest.approx(0.3)
    rho = noise.rho_for_rate("quasi", rate=0.3, class_counts=counts)
    np.testing.assert_array_equal(matrix, noise.transition_matrix("quasi", num_classes=4, rho=rho))


def test_noisy_already_with_a_matrix(small: Small) -> None:
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=0.2)
    config = small(
        methods=("garg", "standard"), noises=("none",), transition=matrix.tolist(), only_folds=(0,)
    )
    given = {planned.method.name: planned.config for planned in open_data(config).planned_runs()}
    np.testing.assert_array_equal(given["garg"].transition, matrix)
    assert given["standard"].transition is None
    wrong = small(methods=("garg",), noises=("none",), transition=np.eye(3).tolist())
    with pytest.raises(SrjtError, match="is for 3 grades, but there are 4"):
        list(open_data(wrong).planned_runs())


@pytest.mark.parametrize("method", ["garg", "co-teaching+ours"])
def test_noisy_already_and_no_rate_given(small: Small, method: str) -> None:
    with pytest.raises(
        SrjtError, match=f"{re.escape(method)} needs the noise of the labels: give `noise_rate`"
    ):
        list(open_data(small(methods=(method,), noises=("none",))).planned_runs())
    assert len(list(open_data(small(methods=("standard",), noises=("none",))).planned_runs())) == 3


def test_folds_that_do_not_exist(small: Small) -> None:
    with pytest.raises(SrjtError, match=r"There is no fold 3: folds are numbered 0 … 2\."):
        list(open_data(small(only_folds=(0, 3))).planned_runs())


def test_a_variant_trains_with_its_own_settings(small: Small) -> None:
    config = small(methods=("sord", "sord:balance=0.5,epochs=3"))
    plain, other = (planned.config for planned in open_data(config).planned_runs() if planned.fold == 0)
    assert (plain.balance, other.balance, other.epochs) == (0.0, 0.5, 3)
    assert plain.epochs != 3
    assert other.network == plain.network
