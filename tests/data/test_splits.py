import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from refusals import refuses
from srjt.data import (
    LeakageWarning,
    Manifest,
    folds,
    from_arrays,
    official_split,
    read_splits,
    write_splits,
)
from srjt.data.splits import corrupt_sides


def manifest(patients: list[str] | None, grades: list[int], **columns: list[object]) -> Manifest:
    names = [f"s{row}" for row in range(len(grades))]
    table = pd.DataFrame({"id": names, "image": names, "grade": grades, **columns})
    if patients is not None:
        table["patient"] = patients
    return Manifest(table=table, grades=("0", "1", "2", "3"))


samples = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=30, max_size=120
).filter(lambda rows: len({patient for patient, _ in rows}) >= 6)


@settings(deadline=None, max_examples=25)
@given(
    samples,
    st.integers(3, 6),
    st.integers(0, 5),
    st.sampled_from(["stratified", "random"]),
    st.data(),
)
def test_no_patient_on_two_sides_every_sample_tested_once_row_order_irrelevant(
    rows: list[tuple[int, int]], count: int, seed: int, by: str, data: st.DataObject
) -> None:
    whole = manifest([f"p{patient}" for patient, _ in rows], [grade for _, grade in rows])
    splits = folds(whole, folds=count, seed=seed, by=by)
    assert len(splits) == count
    patients = np.array(whole.patients)
    for split in splits:
        sides = [set(patients[rows_]) for rows_ in split.sides().values()]
        assert sum(map(len, sides)) == len(set(patients))
        assert sorted(np.concatenate(list(split.sides().values()))) == list(range(len(whole)))
        assert all(len(rows_) for rows_ in split.sides().values())
    assert sorted(np.concatenate([split.test for split in splits])) == list(range(len(whole)))
    for k, split in enumerate(splits):
        np.testing.assert_array_equal(split.validation, splits[(k + 1) % count].test)

    order = data.draw(st.permutations(range(len(whole))))
    shuffled = whole.select(order)
    for split, again in zip(splits, folds(shuffled, folds=count, seed=seed, by=by), strict=True):
        assert set(np.array(whole.ids)[split.test]) == set(np.array(shuffled.ids)[again.test])


@pytest.mark.slow
def test_every_part_gets_its_share_of_each_highest_grade_and_of_images() -> None:
    generator = np.random.default_rng(0)
    patients, grades = [], []
    for patient in range(200):
        highest = int(generator.choice(4, p=[0.6, 0.2, 0.12, 0.08]))
        images = int(generator.integers(1, 40))
        patients += [f"{patient:03}"] * images
        grades += [highest, *generator.integers(0, highest + 1, images - 1).tolist()]
    whole = manifest(patients, grades)
    highest_of = {
        p: max(g for q, g in zip(patients, grades, strict=True) if q == p) for p in set(patients)
    }
    splits = folds(whole, by="stratified")
    strata = [
        Counter(highest_of[p] for p in {patients[row] for row in split.test}) for split in splits
    ]
    for grade in range(4):
        counts = [stratum[grade] for stratum in strata]
        assert max(counts) - min(counts) <= 1
    sizes = [len(split.test) for split in splits]
    assert max(sizes) - min(sizes) <= 40  # one patient's images at most
    assert abs(len(splits[0].train) / len(whole) - 0.6) < 0.01


@pytest.fixture
def twenty() -> Manifest:
    return manifest([f"p{n // 2}" for n in range(20)], [n % 4 for n in range(20)])


def test_the_folds_of_a_seed_are_fixed_for_good(twenty: Manifest) -> None:
    tested = [split.test[::2].tolist() for split in folds(twenty, seed=0, by="stratified")]
    assert tested == [[0, 14], [4, 10], [8, 18], [2, 12], [6, 16]]
    tested = [split.test[::2].tolist() for split in folds(twenty, seed=0)]
    assert tested == [[14, 18], [0, 2], [4, 6], [8, 12], [10, 16]]
    assert [split.test[::2].tolist() for split in folds(twenty, seed=1)] != tested


@pytest.mark.parametrize("by", ["random", "stratified"])
def test_injected_noise_leaves_the_folds_as_they_are(by: str) -> None:
    whole = manifest([f"p{n // 2}" for n in range(60)], [n % 4 for n in range(60)])
    noisy = whole.with_noisy_labels((whole.labels + 1) % 4)
    corrected = whole.with_labels((whole.labels + 1) % 4)
    pairs = [(whole, noisy)] if by == "stratified" else [(whole, noisy), (whole, corrected)]
    for one, other in pairs:
        for clean, again in zip(folds(one, by=by), folds(other, by=by), strict=True):
            np.testing.assert_array_equal(clean.test, again.test)


def test_without_patients_one_warning_and_grades_are_balanced() -> None:
    whole = manifest(None, [0] * 50 + [1] * 25 + [2] * 10 + [3] * 5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        splits = folds(whole, by="stratified")
    assert [w.category for w in caught] == [LeakageWarning]
    assert "leakage" in str(caught[0].message)
    assert [whole.select(split.test).class_counts.tolist() for split in splits] == [
        [10, 5, 2, 1]
    ] * 5


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"folds": 2}, ("out_of_bounds", "folds")),
        ({"folds": 11}, ("too_few", "folds", ("11", "10"))),
        ({"by": "stratifed"}, ("unknown_name", "", "'stratified'")),
    ],
)
def test_impossible_folds_are_one_sentence(
    twenty: Manifest, options: Any, refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        folds(twenty, **options)


def test_written_folds_are_read_back_for_any_row_order(twenty: Manifest, tmp_path: Path) -> None:
    splits = folds(twenty)
    write_splits(tmp_path / "splits.csv", twenty, splits)
    for split, again in zip(splits, read_splits(tmp_path / "splits.csv", twenty), strict=True):
        for side, rows in split.sides().items():
            np.testing.assert_array_equal(rows, again.sides()[side])
    turned = twenty.select(np.arange(20)[::-1])
    again = read_splits(tmp_path / "splits.csv", turned)[0]
    assert {turned.ids[row] for row in again.test} == {twenty.ids[row] for row in splits[0].test}


def test_folds_of_other_data_are_refused(twenty: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "splits.csv"
    write_splits(path, twenty, folds(twenty))
    fewer = twenty.select(np.arange(1, 20))
    with refuses("no_match", "splits", says="'s0' is unknown"):
        read_splits(path, fewer)
    assert (
        sum(len(rows) for rows in read_splits(path, fewer, allow_missing=True)[0].sides().values())
        == 19
    )
    write_splits(path, fewer, folds(fewer))
    with refuses("no_match", "splits", says="fold 0 lacks 's0'"):
        read_splits(path, twenty)


def test_a_leaking_file_is_refused(twenty: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "splits.csv"
    strangers = manifest([f"q{n}" for n in range(20)], twenty.labels.tolist())
    write_splits(path, strangers, folds(strangers))
    with refuses("conflict", "splits", says="fold 0"):
        read_splits(path, twenty)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("id,fold\ns0,0\n", ("missing_column", "splits")),
        (
            "id,fold,split\ns0,0,tset\n",
            ("wrong_values", "splits", ("'tset'", "line 2")),
        ),
        ("id,fold,split\ns0,x,test\n", ("wrong_values", "splits", "line 2")),
        (
            "id,fold,split\ns0,0,test\ns0,0,train\n",
            ("wrong_values", "splits", ("'s0'", "line 3", "fold 0")),
        ),
        ("id,fold,split\ns0,1,test\n", ("wrong_values", "splits", "numbered 0, 1,")),
        ("id,fold,split\n", ("wrong_values", "splits", "found none")),
        ("id,fold,split\n\xe9,0,train\n", ("unreadable_file", "splits", "cannot be read")),
        ('id,fold,split\n"a,0,train\n', ("unreadable_file", "splits", "cannot be read")),
        (f"id,fold,split\na,{'1' * 5000},train\n", ("wrong_values", "splits", "must be a")),
    ],
)
def test_a_broken_file_is_one_sentence(
    twenty: Manifest, tmp_path: Path, text: str, refused: tuple[str, ...]
) -> None:
    path = tmp_path / "splits.csv"
    path.write_text(text, encoding="latin-1")
    with refuses(*refused):
        read_splits(path, twenty)


def test_the_published_split_is_used_and_its_leakage_told() -> None:
    sides: list[object] = ["train", "train", "validation", "test", ""]
    split = official_split(manifest(["a", "a", "b", "c", "a"], [0, 1, 2, 3, 0], split=sides))
    found = {side: rows.tolist() for side, rows in split.sides().items()}
    assert found == {"train": [0, 1], "validation": [2], "test": [3]}
    with pytest.warns(LeakageWarning, match="a is one"):
        official_split(manifest(["a", "b", "a", "c", "d"], [0, 1, 2, 3, 0], split=sides))
    with refuses("no_split", "split_column"):
        official_split(manifest(None, [0, 1]))


@pytest.fixture
def sites() -> Manifest:
    owners = [f"p{k % 30}" for k in range(120)]
    site = [("north", "south", "west")[k % 30 % 3] for k in range(120)]
    return manifest(owners, [k % 4 for k in range(120)], site=site)  # type: ignore[arg-type]


def test_every_site_is_the_test_side_once(sites: Manifest, tmp_path: Path) -> None:
    splits = folds(sites, hold_out="site")
    assert [split.held_out for split in splits] == ["north", "south", "west"]
    site, patient = sites.table["site"].to_numpy(), np.array(sites.patients)
    for split in splits:
        assert set(site[split.test]) == {split.held_out}
        rows = np.concatenate(list(split.sides().values()))
        assert sorted(rows.tolist()) == list(range(120))  # each on one side
        assert split.held_out not in {*site[split.train], *site[split.validation]}
        assert not {*patient[split.train]} & {*patient[split.validation]}
        assert 0 < len(split.validation) < len(split.train)
    write_splits(tmp_path / "sites.csv", sites, splits)
    for written, split in zip(read_splits(tmp_path / "sites.csv", sites), splits, strict=True):
        assert written.held_out == split.held_out
        assert all((rows == split.sides()[side]).all() for side, rows in written.sides().items())


def test_sites_that_cannot_be_held_out(sites: Manifest) -> None:
    def changed(row: int, site: object) -> Manifest:
        values = sites.table["site"].to_list()
        values[row] = site
        return replace(sites, table=sites.table.assign(site=values))

    with refuses("conflict", "hold_out"):
        folds(changed(0, "west"), hold_out="site")
    with refuses("wrong_values", "hold_out", says="1 sample"):
        folds(changed(0, None), hold_out="site")
    with refuses("too_few", "hold_out"):
        folds(replace(sites, table=sites.table.assign(site="all")), hold_out="site")
    with refuses("unknown_name", "hold_out", says=("'sight'", "'site'")):
        folds(sites, hold_out="sight")


def test_names_are_read_once_and_not_for_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.zeros((200, 2), dtype=np.float32)
    data = from_arrays(features, np.arange(200) % 4, patients=np.arange(200))
    split = folds(data, folds=5)[0]
    read = []
    ids = Manifest.ids
    monkeypatch.setattr(Manifest, "ids", property(lambda self: read.append(1) or ids.fget(self)))
    corrupt_sides(data, split, np.eye(4), seed=0)
    assert len(read) < 5
