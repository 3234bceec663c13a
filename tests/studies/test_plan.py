"""The planned runs of a study, its data, its use of the CPU and its time."""

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from refusals import refuses
from srjt import noise
from srjt.data import folds, read, write_splits
from srjt.data.images import feed
from srjt.data.images.feed import FeedCache, ResidentFeed
from srjt.data.synthetic import generate, write
from srjt.errors import SrjtError
from srjt.files import cache_folder
from srjt.studies import plan
from srjt.studies.config import StudyConfig
from srjt.studies.folder import write_plan
from srjt.studies.plan import StudyPlan, longest_first, open_data, open_kept_data, run_seconds
from srjt.studies.results import collect_results
from srjt.training import single_run
from srjt.training.noise_rate import WARM_UP_METHOD

from .conftest import small

Keys = dict[tuple[Any, ...], str]


def keys(config: StudyConfig) -> Keys:
    runs = open_data(config).planned_runs()
    return {(c.method.name, c.method.variant, c.noise.label, c.fold, c.seed): c.key for c in runs}


@pytest.fixture(scope="module")
def usual() -> Keys:
    return keys(small())


def test_the_grid() -> None:
    config = small(noises=("quasi:0.4", "truncated:0.2", "quasi:0.4"), seeds=(0, 1))
    planned_runs = list(open_data(config).planned_runs())
    assert len(planned_runs) == 3 * 2 * 3 * 2
    assert len({planned.key for planned in planned_runs}) == len(planned_runs)
    # an unfinished study has compared all methods on something
    assert len({(c.noise.label, c.fold, c.seed) for c in planned_runs[:3]}) == 1
    assert [c.method.name for c in planned_runs[:3]] == ["standard", "garg", "co-teaching+ours"]


@pytest.mark.slow
def test_comparisons_are_paired() -> None:
    data = open_data(small(noises=("quasi:0.4", "truncated:0.4"), seeds=(0, 1)))
    draws = {}
    for spec in data.noises:
        for fold in data.fold_numbers:
            for seed in (0, 1):
                labelled, found = data.labelled(spec, fold, seed)
                again, _ = open_data(data.config).labelled(
                    spec, fold, seed
                )  # as another process sees it
                np.testing.assert_array_equal(labelled.labels, again.labels)
                np.testing.assert_array_equal(labelled.true_labels, data.manifest.labels)
                split = data.splits[fold]
                np.testing.assert_array_equal(
                    labelled.labels[split.test], data.manifest.labels[split.test]
                )
                assert (
                    labelled.labels[split.validation] != data.manifest.labels[split.validation]
                ).any()
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


def test_methods_get_what_they_need() -> None:
    data = open_data(small(noises=("quasi:rho=0.2,rate=0.4",), only_folds=(1,)))
    given = {planned.method.name: planned.config for planned in data.planned_runs()}
    assert (given["standard"].noise_rate, given["standard"].transition) == (None, None)
    assert (given["co-teaching+ours"].noise_rate, given["co-teaching+ours"].transition) == (
        0.4,
        None,
    )
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    np.testing.assert_array_equal(given["garg"].transition, matrix)


@pytest.mark.parametrize(
    "change",
    [
        {"train": {"epochs": 3}},
        {"reading": {"images": 120, "patients": 24, "size": 32, "seed": 1}},
        {"reading": {"images": 120, "patients": 24, "size": 33}},  # the same labels, other pixels
        {"split_seed": 1},
        {"noises": ("quasi:0.3",)},
        {"seeds": (1,)},
    ],
)
def test_what_determines_the_result_changes_every_key(usual: Keys, change: dict[str, Any]) -> None:
    assert not set(usual.values()) & set(keys(small(**change)).values())


def test_other_labels_change_the_keys() -> None:
    data = open_data(small())
    labels = data.manifest.labels.copy()
    labels[data.splits[0].train[0]] = (labels[data.splits[0].train[0]] + 1) % 4
    table = data.manifest.table.assign(grade=labels)
    other = StudyPlan(data.config, dataclasses.replace(data.manifest, table=table), data.splits)
    assert not {c.key for c in data.planned_runs()} & {c.key for c in other.planned_runs()}


def test_how_it_is_computed_changes_no_key(usual: Keys) -> None:
    how = {"step": "eager", "deterministic": True, "memory_share": 0.1, "eval_batch_size": 7}
    assert keys(small(train={**how, "checkpoint_seconds": 1.0})) == usual


@pytest.mark.slow
def test_what_is_added_changes_no_other_key() -> None:
    before = keys(small())
    more = small(
        methods=("jocor", "standard", "co-teaching:select=soft", "garg", "co-teaching+ours"),
        noises=("truncated:0.2", "quasi:0.4"),
        seeds=(5, 0),
    )
    after = keys(more)
    assert before.items() <= after.items()
    assert len(set(after.values())) == len(after) == 5 * 2 * 3 * 2


def test_a_better_guess_of_the_matrix_repeats_only_those_who_use_it() -> None:
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=0.2)
    before = keys(small(noises=("none",), noise_rate=0.3))
    after = keys(small(noises=("none",), noise_rate=0.3, transition=matrix.tolist()))
    changed = {who[0] for who in before if before[who] != after[who]}
    assert changed == {"garg"}
    given = keys(small(noises=("none",), noise_rate=0.2, transition=matrix.tolist()))
    assert {who[0] for who in after if after[who] != given[who]} == {"co-teaching+ours"}


@pytest.mark.slow
def test_keys_are_names_of_folders() -> None:
    methods = (
        "co-teaching:select=hard,update=soft,temperature=0.125,per_class=true,ramp_epochs=3",
        "all",
    )
    noises = ("quasi:rho=0.1,rate=0.2", "none")
    config = small(methods=methods, noises=noises, noise_rate=0.3, seeds=(0, 2**40))
    found = list(keys(config).values())
    assert len(set(map(str.lower, found))) == len(found)
    for key in found:
        assert re.fullmatch(r"[A-Za-z0-9.+_-]+", key)
        assert len(key) < 200


def test_a_planned_run_is_found_again() -> None:
    noises = {"noises": ("quasi:0.2", "none"), "noise_rate": 0.3}
    data = open_data(small(methods=("co-teaching:select=soft", "garg"), **noises))
    for planned in data.planned_runs():
        assert data.find(json.loads(json.dumps(planned.facts()))) == planned


def test_labels_that_are_noisy_already() -> None:
    data = open_data(small(noises=("none",), noise_rate=0.3, only_folds=(0,)))
    labelled, injected = data.labelled(data.noises[0], 0, 0)
    assert injected is None
    np.testing.assert_array_equal(labelled.labels, data.manifest.labels)
    given = {planned.method.name: planned.config for planned in data.planned_runs()}
    assert given["co-teaching+ours"].noise_rate == 0.3
    rho = noise.rho_for_rate("quasi", rate=0.3, class_counts=data.manifest.class_counts)
    expected = noise.transition_matrix("quasi", num_classes=4, rho=rho)
    np.testing.assert_array_equal(given["garg"].transition, expected)
    matrix = noise.transition_matrix("truncated", num_classes=4, rho=0.2)
    known = small(
        methods=("garg", "standard"), noises=("none",), transition=matrix.tolist(), only_folds=(0,)
    )
    given = {planned.method.name: planned.config for planned in open_data(known).planned_runs()}
    np.testing.assert_array_equal(given["garg"].transition, matrix)
    assert given["standard"].transition is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"methods": ("garg",)}, "garg needs the noise of the labels: give `noise_rate`"),
        ({"transition": np.eye(3).tolist()}, "is for 3 grades, but there are 4"),
        ({"only_folds": (0, 3)}, r"There is no fold 3: folds are numbered 0 … 2\."),
    ],
)
def test_plans_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SrjtError, match=said):
        list(open_data(small(noises=("none",), **settings)).planned_runs())


def test_a_variant_trains_with_its_own_settings() -> None:
    config = small(methods=("sord", "sord:balance=0.5,epochs=3"))
    plain, other = (
        planned.config for planned in open_data(config).planned_runs() if planned.fold == 0
    )
    assert (plain.balance, other.balance, other.epochs) == (0.0, 0.5, 3)
    assert plain.epochs != 3
    assert other.network == plain.network


# Opening a study's data: the same in every process.
def test_methods_that_may_have_the_same_heads_choose_among_them(tmp_path: Path) -> None:
    """Else plain training on features would differ from srjt by its head, too."""
    grades = np.arange(60) % 4
    x = np.random.default_rng(0).normal(size=(60, 20)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=x, grades=grades)

    def heads(*methods: str, **more: Any) -> dict[str, str]:
        source = str(tmp_path / "x.npz")
        config = StudyConfig(source=source, methods=methods, noises=("none",), **more)
        runs = open_data(config).planned_runs()
        return {run.method.name: str(run.config.network) for run in runs}

    rate: dict[str, Any] = {"noise_rate": 0.2}
    chosen = {"srjt": "auto", "standard": "auto", "f-correction": "auto", "sord": "mlp"}
    matrix = np.full((4, 4), 0.2 / 3) + np.eye(4) * (0.8 - 0.2 / 3)
    assert heads(*chosen, transition=matrix.tolist(), **rate) == chosen
    assert heads("standard", "sord", **rate) == {"standard": "mlp", "sord": "mlp"}
    mlp: dict[str, Any] = {"train": {"network": "mlp"}}
    assert heads("srjt", "standard", **rate, **mlp) == {"srjt": "mlp", "standard": "mlp"}


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(generate(images=40, patients=10, size=32), tmp_path_factory.mktemp("data") / "set")


@pytest.mark.parametrize("damage", ["truncated", "unwritable"])
def test_drawn_images_are_remembered_if_possible(
    tmp_path: Path, monkeypatch: Any, damage: str
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    config = small(reading={"images": 20, "patients": 6, "size": 32})
    if damage == "unwritable":
        (tmp_path / "cache").write_text("a file in the way")
    fresh = generate(images=20, patients=6, size=32)
    first = open_data(config)
    if damage != "unwritable":
        (file,) = (cache_folder() / "synthetic").iterdir()
        file.write_bytes(file.read_bytes()[:-500])
    for data in (first, open_data(config)):
        assert data.manifest.grades == fresh.grades
        np.testing.assert_array_equal(data.manifest.arrays, fresh.arrays)
        pd.testing.assert_frame_equal(data.manifest.table, fresh.table, check_dtype=False)
        assert data.manifest.patients == fresh.patients
    assert [c.key for c in first.planned_runs()] == [
        c.key for c in open_data(config).planned_runs()
    ]


@pytest.mark.slow
def test_a_table_and_folds_from_a_file(labels: Path, tmp_path: Path) -> None:
    plain = open_data(small(source=str(labels), reading={}))
    assert len(plain.manifest) == 40
    write_splits(tmp_path / "splits.csv", plain.manifest, folds(plain.manifest, folds=5, seed=3))
    given = open_data(small(source=str(labels), reading={}, splits=str(tmp_path / "splits.csv")))
    assert given.fold_numbers == (0, 1, 2, 3, 4)
    expected = open_data(small(source=str(labels), reading={}, folds=5, split_seed=3))
    assert [c.key for c in given.planned_runs()] == [c.key for c in expected.planned_runs()]


def test_mistakes(labels: Path, tmp_path: Path) -> None:
    with refuses("missing_option", "data"):
        open_data(small(source=""))
    with refuses("missing_file"):
        open_data(small(source=str(tmp_path / "none.csv"), reading={}))
    with refuses("unknown_name", "data", says="'image'"):
        open_data(small(reading={"image": 20}))
    with refuses("unknown_name", says="'patients'"):
        open_data(small(source=str(labels), reading={"patients": 10}))
    with refuses("out_of_bounds", "folds", says="3 folds"):
        open_data(small(folds=2))
    with refuses("missing_file"):
        open_data(small(splits=str(tmp_path / "none.csv")))


def invert(path: Path) -> None:
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    return write(generate(images=40, patients=10, size=32), tmp_path / "set")


@pytest.mark.slow
def test_a_changed_image_is_other_runs_and_is_refused_with_its_name(
    images: Path, tmp_path: Path
) -> None:
    config = small(source=str(images), reading={})
    before = open_data(config)
    write_plan(tmp_path / "study", before, command="srjt study")
    write_plan(tmp_path / "study", open_data(config), command="srjt study")
    path = before.manifest.paths[5]
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\0")  # other bytes, the same pixels
    copy = small(
        source=str(write(generate(images=40, patients=10, size=32), tmp_path / "copy")), reading={}
    )
    for same in (config, copy):
        assert [p.key for p in open_data(same).planned_runs()] == [
            p.key for p in before.planned_runs()
        ]
    invert(path)
    path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    after = open_data(config)
    assert not {p.key for p in after.planned_runs()} & {p.key for p in before.planned_runs()}
    with refuses("data_changed", "out"):
        write_plan(tmp_path / "study", after, command="srjt study")


@pytest.mark.slow
def test_near_duplicates_are_grouped_on_request(images: Path) -> None:
    paths = read(images).paths
    Image.open(paths[0]).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(paths[39])
    for near in (True, False):
        config = small(source=str(images), reading={}, group_near_duplicates=near)
        groups = open_data(config).manifest.groups or []
        assert (groups[0] == groups[39]) == near


# A worker opens the data once, and again where a file has changed; it copies images to a GPU once.
def touch(path: Path) -> None:
    """Another time of modification, whatever the clock's resolution."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


@pytest.mark.slow
def test_data_are_opened_again_only_where_a_file_has_changed(images: Path) -> None:
    config = small(source=str(images), reading={})
    first = open_kept_data(config)
    assert open_kept_data(config) is first
    touch(first.manifest.paths[3])
    second = open_kept_data(config)
    assert second is not first
    assert open_kept_data(config) is second
    images.write_text(images.read_text().replace(",3,", ",2,", 1))
    touch(images)
    third = open_kept_data(config)
    assert third is not second
    assert third.manifest.class_counts.tolist() != second.manifest.class_counts.tolist()
    assert open_kept_data(small(source=str(images), reading={}, folds=4)) is not third


def test_images_are_copied_to_a_gpu_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copied: list[Any] = []

    def copy(pixels: Any, *, device: torch.device, share: float) -> ResidentFeed:
        copied.append(device)
        return ResidentFeed(torch.from_numpy(np.array(pixels)))

    monkeypatch.setattr(feed, "open_feed", copy)
    np.save(tmp_path / "store.npy", np.zeros((6, 8, 8, 3), dtype=np.uint8))
    np.save(tmp_path / "other.npy", np.zeros((6, 8, 8, 3), dtype=np.uint8))

    def pixels(name: str = "store.npy") -> Any:
        return np.load(tmp_path / name, mmap_mode="r")

    freed: list[int] = []
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: freed.append(len(copied)))
    cache = FeedCache()
    first = cache.open(pixels(), device="cuda:0")
    assert cache.open(pixels(), device="cuda:0") is first  # another memory map of the same file
    assert len(copied) == 1
    assert cache.open(pixels("other.npy"), device="cuda:0") is not first
    cache.open(pixels("other.npy"), device="cuda:1")
    assert len(copied) == 3
    assert freed == [1, 2]  # before the next images are copied
    whole = pixels()
    parts = [cache.open(whole[rows], device="cuda:0") for rows in (slice(0, 3), slice(3, 6))]
    assert parts[0] is not parts[1]
    in_memory = np.ones((6, 8, 8, 3), dtype=np.uint8)
    kept = cache.open(in_memory, device="cuda:0")
    assert cache.open(in_memory, device="cuda:0") is kept
    assert cache.open(in_memory.copy(), device="cuda:0") is not kept


# The time of a study before it begins.
def test_runs_with_as_many_networks_share_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data(
        small(methods=("standard", "garg", "co-teaching+ours", "jocor"), noises=("quasi:0.4",))
    )
    planned_runs = list(data.planned_runs())
    timed: list[str] = []

    def seconds(manifest: Any, split: Any, *, config: Any, device: torch.device) -> float:
        timed.append(config.method)
        assert sum(map(len, split.sides().values())) == 120
        return 2.0 * len(timed) + 1.0

    monkeypatch.setattr(plan, "training_seconds", seconds)
    assert run_seconds(data, planned_runs, device=torch.device("cpu")) == [3.0, 3.0, 5.0, 5.0] * 3
    assert timed == ["standard", "co-teaching+ours"]  # one with one network, one with two
    started = [(run.method.name, run.fold) for run in longest_first(planned_runs)]
    assert started[:4] == [
        ("co-teaching+ours", 0),
        ("jocor", 0),
        ("co-teaching+ours", 1),
        ("jocor", 1),
    ]
    assert started[6:8] == [("standard", 0), ("garg", 0)]


def test_a_noise_estimate_counts_for_the_first_run_that_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = open_data(small(methods=("standard", "srjt", "f-correction:noise_rate=auto")))
    short: list[tuple[int, int, int]] = []

    def seconds(manifest: Any, split: Any, *, config: Any, device: torch.device) -> float:
        if config.method != WARM_UP_METHOD:
            return 1.0
        short.append((config.epochs, len(split.train), len(split.test)))
        return 7.0

    monkeypatch.setattr(plan, "training_seconds", seconds)
    monkeypatch.setattr(single_run, "training_seconds", seconds)
    planned_runs = list(data.planned_runs())
    found = run_seconds(data, planned_runs, device=torch.device("cpu"))
    expected = []
    for run in planned_runs:  # srjt and f-correction share an estimate
        expected.append(1.0 + 3 * 7.0 if run.method.name == "srjt" else 1.0)
    assert found == expected
    # two thirds of the training side learn, the others are predicted
    training = len(data.split(planned_runs[0].noise, planned_runs[0].fold).train)
    assert {(learnt + rest, learnt) for _, learnt, rest in short} == {(training, training * 2 // 3)}


@pytest.mark.slow
def test_finished_runs_that_a_new_plan_leaves_out_are_counted(copied: Path) -> None:
    same: dict[str, Any] = {"only_folds": (0,), "train": {"epochs": 12}}
    write_plan(copied, open_data(small(**same)), command="srjt study")
    with pytest.warns(
        UserWarning,
        match=r"^2 finished runs of .* are not part of the study as it is asked for now",
    ):
        write_plan(copied, open_data(small(**same, methods=("standard",))), command="srjt study")
    assert collect_results(copied).runs["method"].unique().tolist() == ["standard"]
