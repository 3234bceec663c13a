"""The folder of a run: its facts, held-out predictions, and the identity of its images."""

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import srjt
from fixtures.small_images import SETTINGS
from refusals import refuses
from srjt.data import Manifest
from srjt.data.synthetic import generate, write
from srjt.errors import Interrupted
from srjt.files import write_atomically
from srjt.training import checkpoint
from srjt.training.baselines import baseline_from
from srjt.training.checkpoint import CheckpointWriter
from srjt.training.config import TrainConfig
from srjt.training.crossfit import cross_fit
from srjt.training.folder import read_facts
from srjt.training.held_out import HeldOut, read_held_out, write_held_out
from srjt.training.trained import Setup

from .test_resume import StopAt


@pytest.fixture(scope="module")
def finished(train: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    train(out=out, split=None, method="standard", epochs=1, batch_size=64, noise_rate=None)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def change(run: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads((run / "run.json").read_text())
    edit(facts)
    (run / "run.json").write_text(json.dumps(facts))
    (run / "checksums.json").unlink(missing_ok=True)  # else: not what the run has written


def test_what_a_folder_holds(run: Path) -> None:
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert {name for name in names if "checkpoints" not in name} == {
        ".lock", "image_hashes.npy", "run.json", "metrics.csv", "weights.safetensors", "history.csv", "summary.json",
        "training_traces.npz", "checksums.json",
    }  # fmt: skip
    facts = json.loads((run / "run.json").read_text())
    assert facts["config"]["epochs"] == 1
    assert facts["grades"] == ["0", "1", "2", "3"]
    assert datetime.fromisoformat(facts["provenance"]["started"]) <= datetime.now(timezone.utc)
    assert facts["provenance"]["command"] is None
    summary = json.loads((run / "summary.json").read_text())
    results = ("weights.safetensors", "history.csv")
    files = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in results}
    assert summary == {"epochs": 1, "last_epochs": [], "confusion": {}, "files": files}


@pytest.mark.parametrize(
    ("edit", "refused"),
    [
        (lambda f: f["config"].update(epoch=3), ("damaged_file", "", ("'epoch'", "'epochs'"))),
        (lambda f: f["config"].update(network="resnet17"), ("unknown_name", "", "'resnet17'")),
        (lambda f: f.update(format=99), ("other_version", "", "99")),
        (lambda f: f["data"].pop("in_shape"), ("damaged_file", "", "damaged or not")),
        (lambda f: f["data"].update(feature_names=["f0"]), ("damaged_file", "", "damaged or not")),
        (
            lambda f: f["data"].update(class_counts=[-1]),
            ("damaged_file", "", "data.class_counts.0: Input should"),
        ),
        (
            lambda f: f["data"].update(in_shape=[10**30]),
            ("damaged_file", "", "data.in_shape.0: Input should"),
        ),
        (
            lambda f: f.update(noise={"why": 3}),
            ("damaged_file", "", "noise.estimated: Field required"),
        ),
        (lambda f: f.update(grades=["a", "b"]), ("no_match",)),
    ],
)
def test_facts_that_do_not_fit(
    run: Path, edit: Callable[[dict[str, Any]], object], refused: tuple[str, ...]
) -> None:
    change(run, edit)
    with refuses(*refused):
        srjt.load_run(run)


def test_a_run_with_the_former_name_of_a_setting(
    run: Path, recwarn: pytest.WarningsRecorder
) -> None:
    config = read_facts(run).config

    def rename(facts: dict[str, Any]) -> None:
        facts["config"]["optimise"] = facts["config"].pop("target_metric")

    change(run, rename)
    assert read_facts(run).config == config
    assert not recwarn.list  # nobody typed it


def test_not_a_run_or_not_finished(tmp_path: Path, run: Path) -> None:
    with refuses("wrong_file", says="run.json"):
        srjt.load_run(tmp_path / "nowhere")
    (run / "weights.safetensors").unlink()
    with refuses("missing_file", says="weights.safetensors"):
        srjt.load_run(run)
    (run / "summary.json").unlink()
    with refuses("not_finished"):
        srjt.load_run(run)


class Evil:
    """Unpickling it writes a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_a_pickle_in_disguise_is_not_opened(run: Path, tmp_path: Path) -> None:
    (run / "weights.safetensors").write_bytes(pickle.dumps(Evil(tmp_path / "trace")))
    with refuses("damaged_file", says="checkpoint"):
        srjt.load_run(run)
    torch.save({"0.head.weight": Evil(tmp_path / "trace")}, run / "weights.safetensors")
    with refuses("damaged_file", says="checkpoint"):
        srjt.load_run(run)
    assert not (tmp_path / "trace").exists()
    pickle.loads(pickle.dumps(Evil(tmp_path / "trace")))  # it would have worked
    assert (tmp_path / "trace").exists()


def test_weights_of_another_network_or_program(run: Path, data: Any, tmp_path: Path) -> None:
    tensors, meta = checkpoint.read(run / "weights.safetensors")
    tensors["0.head.weight"] = torch.zeros(4, 7)
    checkpoint.write(run / "weights.safetensors", tensors, meta)
    with refuses("no_match", says=("network tiny", "head.weight")):
        srjt.load_run(run)
    save_file({"0.head.weight": torch.zeros(4, 7)}, run / "weights.safetensors")
    with refuses("damaged_file", says="checkpoint"):
        srjt.load_run(run)


TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3),
    "number": torch.tensor(3, dtype=torch.int64),
    "none": torch.empty(0, 4),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "truth": torch.tensor([True, False]),
    "strided": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
}


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "x.safetensors", TENSORS, {"epoch": 3, "name": "ü"})
    tensors, meta = checkpoint.read(tmp_path / "x.safetensors")
    assert meta == {"epoch": 3, "name": "ü"}
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert all(tensors[name].dtype == TENSORS[name].dtype for name in TENSORS)


@pytest.mark.slow
def test_a_flipped_bit_a_changed_letter_of_the_header_and_a_cut_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    checkpoint.write(path, TENSORS, {"epoch": 3, "step": 20})
    whole = path.read_bytes()
    tensors = len(whole) - sum(t.numel() * t.element_size() for t in TENSORS.values())
    flipped = [
        whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for place in range(len(whole))
    ]
    header = [place for place in range(8, tensors) if flipped[place][place : place + 1].isalnum()]
    damaged = [flipped[place] for place in [*header, *range(tensors, len(whole))]]
    for content in [*damaged, *(whole[:size] for size in range(0, len(whole), 7))]:
        path.write_bytes(content)
        with refuses("damaged_file", says="x.safetensors"):
            checkpoint.read(path)


def test_two_are_kept_and_leftovers_swept(tmp_path: Path) -> None:
    (tmp_path / ".step-0000000001.safetensors.99.tmp").write_bytes(b"half")
    (tmp_path / ".x.tmp").mkdir()  # not ours
    writer = CheckpointWriter(tmp_path)
    tensor = torch.zeros(3)
    for step in (5, 40, 300):
        tensor.fill_(step)
        writer.save({"x": tensor}, {"step": step}, step=step)
        tensor.fill_(-1)  # a copy was taken
    writer.wait()
    kept = [".x.tmp", "step-0000000040.safetensors", "step-0000000300.safetensors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == kept
    assert checkpoint.read(tmp_path / "step-0000000300.safetensors")[0]["x"].tolist() == [300] * 3
    assert checkpoint.latest(tmp_path) is not None


def test_a_file_is_as_before_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "x", b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "x", b"after")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"before")]


def test_the_naive_baseline_of_a_run(run: Path) -> None:
    assert baseline_from(read_facts(run), [1, 1, 1, 1]) is not None
    assert baseline_from(read_facts(run), [0, 0, 0, 0]) is None
    for counts in ([], [0, 0, 0, 0], [1, 2]):
        change(run, lambda facts, counts=counts: facts["data"].update(class_counts=counts))  # type: ignore[misc]
        assert baseline_from(read_facts(run), [1, 1, 1, 1]) is None


# Predictions for the validation and test sides, kept with the run.
HELD_OUT_SETTINGS = {
    "network": "tiny",
    "image_size": 32,
    "crop": 28,
    "epochs": 1,
    "noise_rate": 0.2,
}


def some_side(*, patients: bool) -> HeldOut:
    rng = np.random.default_rng(0)
    names = ["a", "0\r7", 'é,\n"x', "\udce9"]
    return HeldOut(
        ids=names,
        probabilities=rng.dirichlet(np.ones(3), (2, 4)).astype(np.float32),
        labels=np.array([0, 1, 2, 1]),
        verified_labels=np.array([-1, 1, -1, -1]),
        verified_probability=np.array([0.0, 1 / 3, 0.0, 0.0]) if patients else None,
        patients=["1", "1", "01", "nan"] if patients else None,
        groups=["1", "1", "01", "nan"] if patients else None,
        images=["/a b.png", "/c,d.png", "/é.png", "/\udce9.png"] if patients else None,
        columns={"reader": ["A", "", "B", "nan"], "eye": ["L", "R", "é,\n", "L"]}
        if patients
        else {},
    )


def assert_equal(found: HeldOut, expected: HeldOut) -> None:
    for name, value in vars(expected).items():
        other = getattr(found, name)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(other, value)
            assert other.dtype == value.dtype
        else:
            assert other == value, name


@pytest.mark.parametrize("patients", [True, False])
def test_what_is_written_is_read_to_the_bit(patients: bool, tmp_path: Path) -> None:
    side = some_side(patients=patients)
    other = some_side(patients=False)
    write_held_out(tmp_path, {"validation": side, "test": other})
    again = read_held_out(tmp_path, networks=2, classes=3)
    assert_equal(again["validation"], side)
    assert_equal(again["test"], other)


def test_a_run_keeps_its_held_out_predictions(tmp_path: Path) -> None:
    data = srjt.data.synthetic.generate(images=80, patients=20, size=32)
    # a column may have the name of one of ours
    data.table["reader"], data.table["p1_0"], data.table["side"] = "A", np.arange(80) // 4, "left"
    kept = ["reader", "p1_0", "side", "patient"]
    split = srjt.data.folds(data)[0]
    run = srjt.train(
        data, out=tmp_path / "run", split=split, keep_columns=kept, **HELD_OUT_SETTINGS
    )
    assert set(run.held_out) == {"validation", "test"}
    again = srjt.load_run(tmp_path / "run")
    for name, side in run.held_out.items():
        assert_equal(again.held_out[name], side)
        rows = [data.ids.index(i) for i in side.ids]
        samples = data.select(rows)
        probabilities, _ = run.probabilities(samples.arrays)
        np.testing.assert_allclose(probabilities, side.probabilities, rtol=0, atol=1e-5)
        assert (side.labels == samples.labels).all()
        assert side.patients == samples.patients
        numbers = [str(row // 4) for row in rows]
        assert side.columns == {
            "reader": ["A"] * len(rows),
            "p1_0": numbers,
            "side": ["left"] * len(rows),
        }
        # as `per` and `coverage_by` name them
        assert list(side.table) == ["id", "patient", "reader", "p1_0", "side"]


def test_nothing_that_says_who_somebody_is(tmp_path: Path) -> None:
    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    planted = ("MRN", "ssn", "nhs_number", "phone", "email", "Geburtsdatum", "姓名", "eye")
    for name in planted:
        data.table[name] = [f"secret-{name}-{k // 4}" for k in range(40)]
    split = srjt.data.folds(data)[0]
    run = srjt.train(data, out=tmp_path / "run", split=split, **HELD_OUT_SETTINGS)
    assert all(side.columns == {} for side in run.held_out.values())
    assert (
        srjt.load_run(tmp_path / "run").held_out["test"].patients
        == data.select(split.test).patients
    )
    for file in filter(Path.is_file, (tmp_path / "run").rglob("*")):
        content = file.read_bytes()
        assert b"secret" not in content
        assert not [name for name in planted if len(name) > 3 and name.encode() in content], file
    with refuses("unknown_name", "keep_columns"):
        srjt.train(data, keep_columns=["eyes"], **HELD_OUT_SETTINGS)
    with refuses("settings_changed", "out", says="'eye'"):
        srjt.train(
            data, out=tmp_path / "run", split=split, keep_columns=["eye"], **HELD_OUT_SETTINGS
        )


@pytest.mark.parametrize(
    "damage", ["side,id\nvalidation,a\n", "\0", "side,id,grade,p1_0,p1_1,p1_2\nx,a,9,1,0,0\n"]
)
def test_a_damaged_file_is_an_error(damage: str, tmp_path: Path) -> None:
    (tmp_path / "held_out.csv").write_text(damage)
    with refuses("damaged_file", says="held_out.csv"):
        read_held_out(tmp_path, networks=1, classes=3)


# Other images under the same names are not the same run, audit or study.
@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(generate(images=48, patients=8, size=32), tmp_path_factory.mktemp("drawn") / "set")


@pytest.fixture
def files(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setenv("SRJT_CACHE", str(tmp_path / "cache"))
    shutil.copytree(drawn.parent, tmp_path / "set")
    return srjt.data.read(tmp_path / "set" / drawn.name)


@pytest.fixture
def settings(files: Manifest) -> dict[str, Any]:
    """One network, two epochs of several steps."""
    small = {
        "method": "standard",
        "epochs": 2,
        "batch_size": 8,
        "split": srjt.data.folds(files, folds=4)[0],
    }
    return {**SETTINGS, **small}


def invert(path: Path) -> None:
    """Another image, in a file of the same size."""
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)


@pytest.fixture
def stopped(files: Manifest, settings: dict[str, Any], tmp_path: Path) -> Path:
    with pytest.raises(Interrupted):
        srjt.train(files, out=tmp_path / "run", reporter=StopAt(2, 2), **settings)
    return tmp_path / "run"


@pytest.mark.slow
def test_a_run_is_not_resumed_with_another_image(
    files: Manifest, settings: Any, stopped: Path
) -> None:
    row = int(settings["split"].train[3])
    hashes = (stopped / "image_hashes.npy").read_bytes()
    invert(files.paths[row])
    with refuses("data_changed", "out", says=f"({files.ids[row]})"):
        srjt.train(files, out=stopped, **settings)
    (stopped / "image_hashes.npy").unlink()
    with refuses("data_changed", "out", says="restore"):
        srjt.train(files, out=stopped, **settings)
    (stopped / "image_hashes.npy").write_bytes(hashes)
    for path in files.paths:
        if path != files.paths[row]:
            invert(path)
    with refuses("data_changed", "out", says=", …)"):
        srjt.train(files, out=stopped, **settings)
    for path in files.paths:  # twice inverted is as before
        invert(path)
    assert len(srjt.train(files, out=stopped, **settings).metrics)


@pytest.mark.slow
def test_a_finished_run_refuses_another_image(
    files: Manifest, settings: Any, tmp_path: Path
) -> None:
    srjt.train(files, out=tmp_path / "run", **settings)
    row = int(settings["split"].test[0])
    invert(files.paths[row])
    with refuses("data_changed", "out", says=f"({files.ids[row]})"):
        srjt.train(files, out=tmp_path / "run", **settings)


def test_images_in_memory_count_too(settings: dict[str, Any], tmp_path: Path) -> None:
    drawn = generate(images=48, patients=8, size=32)
    srjt.train(drawn, out=tmp_path / "run", **settings)
    other = drawn.arrays.copy()
    row = int(settings["split"].train[0])
    other[row] = 255 - other[row]
    with refuses("data_changed", "out", says=f"({drawn.ids[row]})"):
        srjt.train(replace(drawn, arrays=other), out=tmp_path / "run", **settings)


CONFIG = TrainConfig(method="sord", network="tiny", image_size=32, crop=28, epochs=1, batch_size=16)


@pytest.mark.slow
def test_an_audit_is_not_repeated_with_another_image(files: Manifest, tmp_path: Path) -> None:
    cross_fit(files, config=CONFIG, folds=2, out=tmp_path / "fits", setup=Setup(device="cpu"))
    invert(files.paths[7])
    with refuses("data_changed", "out", says=f"({files.ids[7]})"):
        cross_fit(files, config=CONFIG, folds=2, out=tmp_path / "fits", setup=Setup(device="cpu"))
