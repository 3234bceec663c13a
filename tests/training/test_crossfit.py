"""Every sample is predicted once, by networks that were not trained on its patient; nothing is done twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from srjt.data import Manifest, Split, read
from srjt.data.synthetic import generate, write
from srjt.errors import SrjtError
from srjt.training.config import TrainConfig
from srjt.training.crossfit import CrossFit, cross_fit
from srjt.training.neighbours import nearest
from srjt.training.record.reporters import PlainReporter, SilentReporter


class Counting(SilentReporter):
    def __init__(self) -> None:
        super().__init__()
        self.finished: list[int] = []
        self.steps: list[float] = []

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.steps.append(epoch - 1 + step / steps)

    def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
        self.finished.append(epoch)


@pytest.fixture(scope="module")
def fitted(noisy: Manifest, tmp_path_factory: pytest.TempPathFactory) -> tuple[CrossFit, Path]:
    out = tmp_path_factory.mktemp("crossfit") / "fits"
    config = TrainConfig(method="sord", network="linear", batch_size=32, learning_rate=0.02, epochs=3)
    return cross_fit(noisy, config=config, folds=3, out=out, device="cpu", neighbours=2), out


def test_each_sample_is_held_out_once_from_a_run_that_saw_nothing_of_its_patient(
    noisy: Manifest, fitted: tuple[CrossFit, Path]
) -> None:
    found, out = fitted
    ids, patients = np.array(noisy.ids), np.array(noisy.patients)
    assert sorted(set(found.fold.tolist())) == [0, 1, 2]
    for k in range(3):
        learnt = set(pd.read_csv(out / f"fold{k}" / "history.csv", dtype={"id": str})["id"])
        assert learnt == set(ids[found.fold != k])
        assert not set(patients[found.fold == k]) & {patients[noisy.ids.index(name)] for name in learnt}
    sizes = np.bincount(found.fold)
    assert sizes.max() - sizes.min() < 30
    for grade in range(4):  # stratified: no fold is without a grade
        assert (np.bincount(found.fold[noisy.labels == grade], minlength=3) > 0).all()


def test_what_is_gathered_has_the_shapes_that_are_promised(
    noisy: Manifest, fitted: tuple[CrossFit, Path]
) -> None:
    found, _ = fitted
    assert found.manifest.ids == noisy.ids
    assert found.manifest.true_labels is not None
    assert found.by_network.shape == (1, 240, 4)
    assert found.grades.shape == (1, 240)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(found.grades[0], found.by_network[0].argmax(axis=1))
    assert np.isnan(found.selected).all()  # sord selects nothing
    assert found.neighbours is not None
    for grade in range(4):
        close = found.neighbours[:, grade]
        assert (noisy.labels[close] == grade).all()
        assert (close != np.arange(240)[:, None]).all()


def test_a_second_call_only_reads_and_returns_the_same(
    noisy: Manifest, fitted: tuple[CrossFit, Path]
) -> None:
    found, out = fitted
    written = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    config = TrainConfig(method="sord", network="linear", batch_size=32, learning_rate=0.02, epochs=3)
    watching = Counting()
    again = cross_fit(noisy, config=config, folds=3, out=out, device="cpu", neighbours=2, reporter=watching)
    np.testing.assert_array_equal(again.by_network, found.by_network)
    np.testing.assert_array_equal(again.neighbours, found.neighbours)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == written
    assert watching.finished == []
    assert watching.steps == [3.0, 6.0, 9.0]  # the bar still comes to its end
    (out / "fold1" / "held_out.npz").write_bytes(b"half a file")  # what is damaged is made again
    mended = cross_fit(noisy, config=config, folds=3, out=out, device="cpu", neighbours=2)
    np.testing.assert_array_equal(mended.by_network, found.by_network)


def test_memory_alone_gives_the_same_and_folds_are_one_row_of_epochs(
    noisy: Manifest, fits: TrainConfig, fitted: tuple[CrossFit, Path]
) -> None:
    watching = Counting()
    found = cross_fit(noisy, config=fits, folds=3, device="cpu", reporter=watching)
    np.testing.assert_array_equal(found.by_network, fitted[0].by_network)
    assert watching.finished == list(range(1, 10))
    assert watching.steps == sorted(watching.steps)
    assert found.neighbours is None


def test_progress_is_counted_by_folds(
    noisy: Manifest, fits: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    cross_fit(
        noisy, config=fits.replace(epochs=2), folds=2, device="cpu", reporter=PlainReporter(), title="fit"
    )
    lines = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if "  loss " in line]
    assert lines == [f"fit: fold {fold} of 2, epoch {epoch} of 2" for fold in (1, 2) for epoch in (1, 2)]


def test_true_grades_are_not_used(noisy: Manifest, fits: TrainConfig, fitted: tuple[CrossFit, Path]) -> None:
    table = noisy.table.assign(true_grade=3 - noisy.table["true_grade"])
    found = cross_fit(replace(noisy, table=table), config=fits, folds=3, device="cpu")
    np.testing.assert_array_equal(found.fold, fitted[0].fold)
    np.testing.assert_array_equal(found.by_network, fitted[0].by_network)


def test_an_interrupted_fold_is_resumed(
    noisy: Manifest, fits: TrainConfig, fitted: tuple[CrossFit, Path], tmp_path: Path
) -> None:
    class Stop(Counting):
        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            super().finished_epoch(epoch, rows)
            if epoch == 5:
                raise KeyboardInterrupt

    config = fits.replace(checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        cross_fit(noisy, config=config, folds=3, out=tmp_path / "fits", device="cpu", reporter=Stop())
    rest = Counting()
    found = cross_fit(noisy, config=config, folds=3, out=tmp_path / "fits", device="cpu", reporter=rest)
    assert 1 not in rest.finished  # fold 1 was done
    assert rest.finished[-1] == 9
    np.testing.assert_array_equal(found.by_network, fitted[0].by_network)


def test_only_the_training_side_of_a_split_takes_part(noisy: Manifest, fits: TrainConfig) -> None:
    rows = np.flatnonzero(np.arange(len(noisy)) % 3 != 1)
    rest = np.setdiff1d(np.arange(len(noisy)), rows)
    split = Split(train=rows, validation=rest[:10], test=rest[10:])
    found = cross_fit(noisy, config=fits.replace(epochs=1), folds=2, device="cpu", split=split)
    assert found.manifest.ids == [noisy.ids[row] for row in rows]
    assert len(found.probabilities) == len(rows)


def test_two_networks_and_how_often_they_selected(noisy: Manifest, fits: TrainConfig) -> None:
    config = fits.replace(method="co-teaching", noise_rate=0.3)
    found = cross_fit(noisy, config=config, folds=2, device="cpu")
    assert found.by_network.shape == (2, 240, 4)
    np.testing.assert_allclose(found.probabilities, found.by_network.mean(axis=0))
    seen = ~np.isnan(found.selected)  # none: it was in no full batch
    assert seen.mean() > 0.9
    assert ((found.selected[seen] >= 0) & (found.selected[seen] <= 1)).all()
    assert 0.5 < found.selected[seen].mean() < 1
    truth = noisy.true_labels
    assert truth is not None
    wrong = noisy.labels != truth
    assert found.selected[seen & wrong].mean() < found.selected[seen & ~wrong].mean()


def test_unreadable_images_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    labels = write(generate(images=40, patients=10, size=32), tmp_path / "set")
    broken = labels.parent / pd.read_csv(labels)["image"][7]
    broken.write_bytes(b"")
    config = TrainConfig(
        method="sord", network="tiny", image_size=32, crop=28, epochs=1, batch_size=16, tune_cpu=False
    )
    manifest = read(labels).manifest
    found = cross_fit(manifest, config=config, folds=2, device="cpu", on_bad_image="skip", neighbours=1)
    assert len(found.manifest) == len(found.fold) == 39
    assert manifest.ids[7] not in found.manifest.ids
    assert [name for name, _ in found.skipped] == [manifest.ids[7]]


def test_a_start_that_trained_nothing_allows_other_settings(
    noisy: Manifest, fits: TrainConfig, tmp_path: Path
) -> None:
    with pytest.raises(SrjtError, match="Unknown device"):
        cross_fit(noisy, config=fits.replace(seed=5, epochs=9), folds=3, out=tmp_path, device="abacus")
    found = cross_fit(noisy, config=fits.replace(epochs=1), folds=2, out=tmp_path, device="cpu")
    assert set(found.fold) == {0, 1}


def test_other_settings_do_not_go_into_the_same_folder(
    noisy: Manifest, fits: TrainConfig, fitted: tuple[CrossFit, Path], tmp_path: Path
) -> None:
    _, out = fitted
    with pytest.raises(SrjtError, match=r"made with other settings \(folds was 3 and is now 4\)"):
        cross_fit(noisy, config=fits, folds=4, out=out, device="cpu")
    with pytest.raises(SrjtError, match="epochs was 3 and is now 5"):
        cross_fit(noisy, config=fits.replace(epochs=5), folds=3, out=out, device="cpu")
    other = noisy.with_noisy_labels((noisy.labels + 1) % 4)
    with pytest.raises(SrjtError, match="the samples or their labels are not the same"):
        cross_fit(other, config=fits, folds=3, out=out, device="cpu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(SrjtError, match="already contains other files"):
        cross_fit(noisy, config=fits, folds=3, out=tmp_path / "mine", device="cpu")


@pytest.mark.parametrize(
    ("folds", "said"), [(1, "at least 2 folds, not 1"), (41, "41 folds need at least as many patients")]
)
def test_impossible_folds_are_one_sentence(noisy: Manifest, fits: TrainConfig, folds: int, said: str) -> None:
    with pytest.raises(SrjtError, match=said):
        cross_fit(noisy, config=fits, folds=folds, device="cpu")


def test_a_grade_of_a_single_patient_is_noted(noisy: Manifest, fits: TrainConfig) -> None:
    patients = np.array(noisy.patients)
    lonely = (noisy.labels != 3) | (patients == patients[np.flatnonzero(noisy.labels == 3)[0]])
    watching = SilentReporter()
    cross_fit(noisy.select(lonely), config=fits.replace(epochs=1), folds=2, device="cpu", reporter=watching)
    assert any("Only one patient has the grade 3" in note for note in watching.notes)


def test_neighbours_are_the_closest_by_angle() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(30, 5)).astype(np.float32), rng.integers(0, 3, size=30)
    labels[labels == 2] = 0
    labels[4] = 2  # a grade with one sample
    asked = np.array([4, 0, 17])
    found = nearest(vectors, asked, labels, num_classes=3, count=2)
    for line, who in enumerate(asked):
        cosine = [
            float(v @ vectors[who] / (np.linalg.norm(v) * np.linalg.norm(vectors[who]))) for v in vectors
        ]
        for grade in range(3):
            others = [i for i in range(30) if labels[i] == grade and i != who]
            expected = sorted(others, key=lambda i: -cosine[i])[:2]
            assert found[line, grade].tolist() == expected + [-1] * (2 - len(expected))
    assert found[0, 2].tolist() == [-1, -1]
    scaled = nearest(vectors * rng.uniform(1, 9, size=(30, 1)), asked, labels, num_classes=3, count=2)
    np.testing.assert_array_equal(scaled, found)
