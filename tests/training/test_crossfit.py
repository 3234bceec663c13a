"""Cross-fitting, one fold after another and several at once."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fixtures.noisy_features import FITS
from processes import Limit
from refusals import refuses
from srjt import methods
from srjt.data import Manifest, Split, read
from srjt.data.images import store
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.synthetic import generate, write
from srjt.errors import Interrupted
from srjt.methods import Sord, register_method
from srjt.training.config import TrainConfig
from srjt.training.crossfit import CrossFit, Workers, choose_workers, cross_fit, nearest
from srjt.training.reporters import BarReporter
from srjt.training.trained import Setup


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Counting(BarReporter):
    def __init__(self) -> None:
        super().__init__()
        self.finished: list[int] = []
        self.steps: list[float] = []

    def stepped(self, epoch: int, step: int, steps: int) -> None:
        self.steps.append(epoch - 1 + step / steps)

    def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
        self.finished.append(epoch)


Fitted = tuple[CrossFit, Path]


def fit(manifest: Manifest, config: TrainConfig, *, folds: int = 3, **how: Any) -> CrossFit:
    """On the CPU; how: other fields of Setup, and options of ``cross_fit``."""
    own = {name: how.pop(name) for name in ("reporter", "split", "on_bad_image") if name in how}
    return cross_fit(manifest, config=config, folds=folds, setup=Setup(device="cpu", **own), **how)


@pytest.fixture(scope="module")
def fitted(noisy: Manifest, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    out = tmp_path_factory.mktemp("crossfit") / "fits"
    return fit(noisy, TrainConfig(method="sord", **FITS), out=out, neighbours=2), out


def test_each_sample_is_held_out_once_with_its_patient(noisy: Manifest, fitted: Fitted) -> None:
    found, out = fitted
    ids, patients = np.array(noisy.ids), np.array(noisy.patients)
    assert sorted(set(found.fold.tolist())) == [0, 1, 2]
    for k in range(3):
        learnt = set(pd.read_csv(out / f"fold{k}" / "history.csv", dtype={"id": str})["id"])
        assert learnt == set(ids[found.fold != k])
        assert not set(patients[found.fold == k]) & {
            patients[noisy.ids.index(name)] for name in learnt
        }
    sizes = np.bincount(found.fold)
    assert sizes.max() - sizes.min() < 30
    for grade in range(4):  # stratified: no fold is without a grade
        assert (np.bincount(found.fold[noisy.labels == grade], minlength=3) > 0).all()


def test_what_is_gathered_has_the_shapes_that_are_promised(noisy: Manifest, fitted: Fitted) -> None:
    found, _ = fitted
    assert found.manifest.ids == noisy.ids
    assert found.manifest.true_labels is not None
    assert found.by_network.shape == (1, 240, 4)
    assert found.grades.shape == (1, 240)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(found.grades[0], found.by_network[0].argmax(axis=1))
    assert np.isnan(found.selected).all()  # sord selects nothing
    for grade in range(4):
        close = found.neighbours[:, grade]
        assert (noisy.labels[close] == grade).all()
        assert (close != np.arange(240)[:, None]).all()


def test_a_second_call_reads_and_returns_the_same(
    noisy: Manifest, fits: TrainConfig, fitted: Fitted
) -> None:
    found, out = fitted
    written = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    watching = Counting()
    again = fit(noisy, fits, out=out, neighbours=2, reporter=watching)
    np.testing.assert_array_equal(again.by_network, found.by_network)
    np.testing.assert_array_equal(again.neighbours, found.neighbours)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == written
    assert watching.finished == []
    assert watching.steps == [3.0, 6.0, 9.0]  # the bar still comes to its end
    (out / "fold1" / "held_out.npz").write_bytes(b"half a file")  # what is damaged is made again
    mended = fit(noisy, fits, out=out, neighbours=2)
    np.testing.assert_array_equal(mended.by_network, found.by_network)


def test_memory_gives_the_same_in_a_row_of_epochs(
    noisy: Manifest, fits: TrainConfig, fitted: Fitted
) -> None:
    watching = Counting()
    found = fit(noisy, fits, reporter=watching)
    np.testing.assert_array_equal(found.by_network, fitted[0].by_network)
    assert watching.finished == list(range(1, 10))
    assert watching.steps == sorted(watching.steps)
    assert found.neighbours is None


def test_true_grades_are_not_used(noisy: Manifest, fits: TrainConfig, fitted: Fitted) -> None:
    table = noisy.table.assign(true_grade=3 - noisy.table["true_grade"])
    found = fit(replace(noisy, table=table), fits)
    np.testing.assert_array_equal(found.fold, fitted[0].fold)
    np.testing.assert_array_equal(found.by_network, fitted[0].by_network)


@pytest.mark.slow
def test_interrupted_folds_resume(
    noisy: Manifest, fits: TrainConfig, fitted: Fitted, tmp_path: Path
) -> None:
    class Stop(Counting):
        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            super().finished_epoch(epoch, rows)
            if epoch == 5:
                raise KeyboardInterrupt

    config = fits.replace(checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        fit(noisy, config, out=tmp_path / "fits", reporter=Stop())
    rest = Counting()
    found = fit(noisy, config, out=tmp_path / "fits", reporter=rest)
    assert 1 not in rest.finished  # fold 1 was done
    assert rest.finished[-1] == 9
    np.testing.assert_array_equal(found.by_network, fitted[0].by_network)


def test_only_the_training_side_of_a_split_takes_part(noisy: Manifest, fits: TrainConfig) -> None:
    rows = np.flatnonzero(np.arange(len(noisy)) % 3 != 1)
    rest = np.setdiff1d(np.arange(len(noisy)), rows)
    split = Split(train=rows, validation=rest[:10], test=rest[10:])
    found = fit(noisy, fits.replace(epochs=1), folds=2, split=split)
    assert found.manifest.ids == [noisy.ids[row] for row in rows]
    assert len(found.probabilities) == len(rows)


def test_two_networks_and_how_often_they_selected(noisy: Manifest, fits: TrainConfig) -> None:
    found = fit(noisy, fits.replace(method="co-teaching", noise_rate=0.3), folds=2)
    assert found.by_network.shape == (2, 240, 4)
    np.testing.assert_allclose(found.probabilities, found.by_network.mean(axis=0))
    seen = ~np.isnan(found.selected)  # none: it was in no full batch
    assert seen.mean() > 0.9
    assert ((found.selected[seen] >= 0) & (found.selected[seen] <= 1)).all()
    assert 0.5 < found.selected[seen].mean() < 1
    wrong = noisy.labels != noisy.true_labels
    assert found.selected[seen & wrong].mean() < found.selected[seen & ~wrong].mean()


def test_unreadable_images_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    labels = write(generate(images=40, patients=10, size=32), tmp_path / "set")
    broken = labels.parent / pd.read_csv(labels)["image"][7]
    broken.write_bytes(b"")
    config = TrainConfig(
        method="sord", network="tiny", image_size=32, crop=28, epochs=1, batch_size=16
    )
    manifest = read(labels)
    reporter = BarReporter()
    found = cross_fit(
        manifest,
        config=config,
        folds=2,
        neighbours=1,
        setup=Setup(device="cpu", on_bad_image="skip", reporter=reporter),
    )
    assert [note for note in reporter.notes if "skipped" in note] == [
        f"1 unreadable image is skipped: {manifest.ids[7]}."  # once, not for each fold
    ]
    assert len(found.manifest) == len(found.fold) == 39
    assert manifest.ids[7] not in found.manifest.ids
    assert [name for name, _ in found.skipped] == [manifest.ids[7]]


@pytest.mark.slow
def test_an_image_that_becomes_readable_midway_moves_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    manifest = read(write(generate(images=30, patients=10, size=32), tmp_path / "set"))
    tries: list[Path] = []

    def late(path: Path, **how: Any) -> np.ndarray:
        if path == manifest.paths[7] and len(tries) < 1:
            tries.append(path)
            raise BadImageError(path, "the disk is away")
        return read_image(path, **how)

    monkeypatch.setattr(store, "read_image", late)
    config = TrainConfig(
        method="sord", network="tiny", image_size=32, crop=28, epochs=1, pretrained=False
    )
    with refuses("data_changed"):
        fit(manifest, config, folds=2, on_bad_image="skip")


def test_other_settings_need_another_folder(
    noisy: Manifest, fits: TrainConfig, fitted: Fitted
) -> None:
    _, out = fitted
    with refuses("settings_changed", "out", says="split are not the same"):
        fit(noisy, fits, folds=4, out=out)
    with refuses("settings_changed", "out", says="epochs was 3"):
        fit(noisy, fits.replace(epochs=5), out=out)
    with refuses("settings_changed", "out", says="labels"):
        fit(noisy.with_noisy_labels((noisy.labels + 1) % 4), fits, out=out)


@pytest.mark.parametrize(
    ("folds", "refused"),
    [(1, ("out_of_bounds", "folds", "not 1")), (41, ("too_few", "folds", "41"))],
)
def test_impossible_folds_are_one_sentence(
    noisy: Manifest, fits: TrainConfig, folds: int, refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        fit(noisy, fits, folds=folds)


def test_a_grade_of_a_single_patient_is_noted(noisy: Manifest, fits: TrainConfig) -> None:
    patients = np.array(noisy.patients)
    lonely = (noisy.labels != 3) | (patients == patients[np.flatnonzero(noisy.labels == 3)[0]])
    watching = BarReporter()
    fit(noisy.select(lonely), fits.replace(epochs=1), folds=2, reporter=watching)
    assert any("Only one patient has the grade 3" in note for note in watching.notes)


def test_neighbours_are_the_closest_by_angle() -> None:
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(30, 5)).astype(np.float32), rng.integers(0, 3, size=30)
    labels[labels == 2] = 0
    labels[4] = 2  # a grade with one sample
    asked = np.array([4, 0, 17])
    found = nearest(vectors, asked, labels, num_classes=3, count=2)
    for line, who in enumerate(asked):
        cosine = (
            vectors
            @ vectors[who]
            / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(vectors[who]))
        )
        for grade in range(3):
            others = [i for i in range(30) if labels[i] == grade and i != who]
            expected = sorted(others, key=lambda i: -cosine[i])[:2]
            assert found[line, grade].tolist() == expected + [-1] * (2 - len(expected))
    assert found[0, 2].tolist() == [-1, -1]
    scaled = nearest(
        vectors * rng.uniform(1, 9, size=(30, 1)), asked, labels, num_classes=3, count=2
    )
    np.testing.assert_array_equal(scaled, found)


# Folds in worker processes: the same bits as one after the other, and the same answers to errors
# and signals.
CONFIG = TrainConfig(
    method="co-teaching+ours", noise_rate=0.2, network="tiny", image_size=40, crop=32, epochs=3, batch_size=16,
    checkpoint_seconds=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def images() -> Manifest:
    return generate(images=60, patients=12, size=32)


@pytest.mark.slow
def test_folds_at_one_time_have_the_same_bits(
    images: Manifest, tmp_path: Path, monkeypatch: Any
) -> None:
    limit = Limit(tmp_path / "limit", epoch=1)
    (tmp_path / "pause.py").write_text(
        limit.code
    )  # for the workers: this process does not import it
    monkeypatch.chdir(tmp_path)

    class Stop(Counting):
        def finished_epoch(self, epoch: int, rows: list[Any]) -> None:
            if not self.finished:  # a second signal would end this process
                os.kill(os.getpid(), signal.SIGTERM)
            self.finished.append(epoch)

    with use_threads(1):
        expected = fit(images, CONFIG, out=tmp_path / "serial", neighbours=2)
        paused = CONFIG.replace(imports=("pause",))
        options: dict[str, Any] = {"out": tmp_path / "parallel", "neighbours": 2, "jobs": 2}
        with pytest.raises(Interrupted, match="every fold continues from its saved state"):
            fit(images, paused, reporter=Stop(), **options)
        limit.lift()
        watching = Counting()
        found = fit(images, paused, reporter=watching, **options)
        again = fit(images, paused, **options)
    assert watching.finished == sorted(watching.finished)
    assert watching.finished[-1] == 9
    assert watching.epochs == 9  # of all folds together
    trained = int((found.fold != 2).sum())
    first = f"Fold 3 of 3: {trained} training images, 2 × tiny"
    assert any(note.startswith(first) for note in watching.notes), watching.notes
    assert not any("already finished" in note for note in watching.notes)
    for other in (found, again):
        np.testing.assert_array_equal(other.by_network, expected.by_network)
        np.testing.assert_array_equal(other.selected, expected.selected)
        np.testing.assert_array_equal(other.neighbours, expected.neighbours)
    assert not list((tmp_path / "parallel").glob("fold*/checkpoints"))


@pytest.mark.slow
def test_an_error_of_a_fold_is_the_error_of_the_cross_fit(images: Manifest, tmp_path: Path) -> None:
    with refuses("training_failed", "learning_rate", says="finite"):
        fit(images, CONFIG.replace(learning_rate=1e30), out=tmp_path, jobs=2)


@pytest.mark.slow
def test_a_script_without_a_main_guard_gets_the_reason(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import srjt\n"
        # more than a pipe holds
        "data = srjt.data.synthetic.generate(images=240, patients=24, size=32)\n"
        "srjt.audit(data, folds=2, jobs=2, out='audit', device='cpu', method='sord', network='tiny', image_size=32,"
        " crop=28, epochs=1)\n"
    )
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "worker process failed while it started" in last
    assert 'put the calls of srjt.audit and srjt.study under if __name__ == "__main__":' in last
    assert "which calls srjt.audit again" in ended.stderr  # the error of the worker


def test_how_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(jobs: Any, *, device: str | None = None, **changes: Any) -> Workers | None:
        given: dict[str, Any] = {"folds": 5, "samples": 1000, "out": Path("fits")}
        settings = {
            "method": "sord",
            "epochs": 30,
            "network": "resnet18",
            **changes.pop("config", {}),
        }
        config = TrainConfig(**{"batch_size": 64, **settings})
        setup = Setup(device=device, reporter=reporter, transform=changes.pop("transform", None))
        return choose_workers(jobs, config=config, setup=setup, **{**given, **changes})

    reporter = BarReporter()
    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))
    register_method("registered-here", scores="", updates="", paper="")(Sord)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("srjt.training.crossfit.cores", lambda: 4)
    monkeypatch.setattr("srjt.training.crossfit.available_memory", lambda: 64 * 2**30)
    with use_threads(4):
        assert choose("auto") == Workers(devices=("cpu",) * 4, threads=4)
        assert choose(2) == Workers(devices=("cpu", "cpu"), threads=4)
        assert choose(9) == Workers(devices=("cpu",) * 5, threads=4)
        assert choose(1) is None
        assert choose("auto", config={"network": "tiny", "crop": 56}) is None  # too short
        assert choose("auto", samples=4000, config={"network": "tiny", "crop": 56}) is not None
        assert choose("auto", samples=10**6, config={"network": "mlp"}) is None
        assert choose("auto", samples=2) is None
        here = {"method": "registered-here"}
        assert choose(2, config={**here, "imports": ("my_methods",)}) is not None
        assert reporter.notes == []
        for reason, alone in (
            ("cannot import a network or a transform", {"transform": torch.neg}),
            ("they have no folder", {"out": None}),
            ("do not know the method 'registered-here'", {"config": here}),
        ):
            assert choose("auto", **alone) is None
            assert reason in reporter.notes[-1]
            with refuses("unsupported", "jobs") as raised:
                choose(2, **alone)
            assert reason in str(raised.value)
        with refuses("out_of_bounds", "jobs"):
            choose(0)
        monkeypatch.setattr("srjt.training.crossfit.available_memory", lambda: 8 * 2**30)
        assert choose("auto") == Workers(devices=("cpu", "cpu"), threads=4)
        monkeypatch.setattr("srjt.training.crossfit.available_memory", lambda: 2**30)
        assert choose("auto") is None
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose("auto") == Workers(devices=("cuda:0", "cuda:1"))
    assert choose("auto", device="cuda:1") is None
    assert choose(2, device="cuda:1") == Workers(devices=("cuda:1", "cuda:1"))


def test_the_last_folds_share_all_threads() -> None:
    pair = Workers(devices=("cpu", "cpu"), threads=2)
    assert [pair.threads_of(k, folds=5) for k in range(5)] == [1, 1, 1, 1, 2]
    assert [pair.threads_of(k, folds=4) for k in range(4)] == [1, 1, 1, 1]
    assert Workers(devices=("cuda:0", "cuda:1")).threads_of(4, folds=5) is None
