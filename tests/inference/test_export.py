"""An exported file predicts what the run predicts, in a runtime without srjt; a wrong file is never
written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import srjt
from refusals import refuses
from srjt import noise
from srjt.data import Manifest
from srjt.errors import SrjtError
from srjt.inference import export as exporting
from srjt.inference.calibrated_run import calibrate_run
from srjt.inference.export import config_hash
from srjt.inference.predict import predict
from srjt.json_values import json_values
from srjt.training.config import TrainConfig
from srjt.training.train import train
from srjt.training.trained import Trained

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def exported(image_run: Trained, data: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its ONNX file, in a folder of its own; written once, because that takes seconds."""
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    written = srjt.export(image_run, path, samples=data.manifest.arrays)
    assert (written.checked, written.format) == (130, "onnx")
    assert written.difference < 1e-5
    return path


def answers(path: Path, samples: np.ndarray) -> tuple[np.ndarray, ...]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return tuple(
        session.run(["probabilities", "grade", "severity"], {session.get_inputs()[0].name: samples})
    )


def test_onnx_predicts_as_srjt_predict(image_run: Trained, exported: Path, data: Any) -> None:
    table = predict(image_run, data.manifest)
    probabilities, grade, severity = answers(exported, data.manifest.arrays)
    assert (probabilities.dtype, grade.dtype, severity.dtype) == (np.float32, np.int64, np.float32)
    assert probabilities == pytest.approx(table.filter(regex="^p_").to_numpy(), abs=1e-4)
    assert [image_run.grades[g] for g in grade] == table["grade"].tolist()
    assert severity == pytest.approx(table["expected_grade"].to_numpy(), abs=1e-4)


def test_recalibration_is_inside_the_file(run: Trained, features: Manifest, tmp_path: Path) -> None:
    written = srjt.export(run, tmp_path / "model.onnx", samples=features.arrays)
    assert written.metadata["recalibration"] == json_values(calibrate_run(run).recalibration)
    probabilities, _, _ = answers(tmp_path / "model.onnx", features.arrays)
    assert probabilities == pytest.approx(
        predict(run, features).filter(regex="^p_").to_numpy(), abs=1e-4
    )
    raw = srjt.export(run, tmp_path / "raw.onnx", samples=features.arrays, recalibrate=False)
    assert "recalibration" not in raw.metadata


def test_the_batch_is_free_and_the_file_is_whole(exported: Path, data: Any) -> None:
    assert list(exported.parent.iterdir()) == [exported]  # weights inside, nothing left beside it
    onnx.checker.check_model(exported, full_check=True)
    together, _, _ = answers(exported, data.manifest.arrays[:7])
    for row in range(7):
        alone, _, _ = answers(exported, data.manifest.arrays[row : row + 1])
        assert alone[0] == pytest.approx(together[row], abs=1e-6)


def test_the_file_has_metadata(image_run: Trained, exported: Path) -> None:
    session = onnxruntime.InferenceSession(exported)
    (images,) = session.get_inputs()
    assert (images.name, images.type, images.shape[1:]) == ("images", "tensor(uint8)", [32, 32, 3])
    assert isinstance(images.shape[0], str)
    meta = session.get_modelmeta().custom_metadata_map
    assert json.loads(meta["grades"]) == ["0", "1", "2", "3"]
    assert json.loads(meta["input_shape"]) == [32, 32, 3]
    assert (meta["srjt"], meta["method"], meta["network"]) == (srjt.__version__, "srjt", "tiny")
    assert meta["config_hash"] == config_hash(image_run.config)


def test_the_hash_is_of_what_determines_the_result() -> None:
    one = config_hash(TrainConfig(seed=1))
    assert one != config_hash(TrainConfig(seed=2))
    assert one == config_hash(TrainConfig(seed=1, eval_batch_size=7))
    assert len(one) == 16


def test_torch_export(image_run: Trained, data: Any, tmp_path: Path) -> None:
    srjt.export(image_run, tmp_path / "model.pt2", decoding="argmax")
    module = torch.export.load(tmp_path / "model.pt2").module()
    with torch.no_grad():
        probabilities, grade, _ = module(torch.from_numpy(data.manifest.arrays))
    own, _ = image_run.probabilities(data.manifest.arrays)
    assert probabilities.numpy() == pytest.approx(own.mean(axis=0), abs=1e-5)
    assert grade.tolist() == own.mean(axis=0).argmax(axis=1).tolist()


def test_a_wrong_file_is_not_written(
    image_run: Trained, data: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """A centre crop that is one pixel off: the answers differ, and an older good file stays."""
    target = tmp_path / "model"
    target.write_bytes(b"the good one")
    honest = exporting.ExportModule.__init__

    def shifted(self: Any, *parts: Any) -> None:
        honest(self, *parts)
        self.centre = slice(self.centre.start + 1, self.centre.stop + 1)

    monkeypatch.setattr(exporting.ExportModule, "__init__", shifted)
    with refuses("unsupported", says="nothing was written"):
        srjt.export(image_run, target, format="torch.export", samples=data.manifest.arrays)
    assert target.read_bytes() == b"the good one"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_networks_that_answer_nan_are_not_written(image_run: Trained, tmp_path: Path) -> None:
    broken = exporting.on_cpu(image_run)
    with torch.no_grad():
        next(broken.networks.parameters()).fill_(float("nan"))
    with refuses("unsupported", says="nothing was written"):
        srjt.export(broken, tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_frozen_batch_is_noticed(
    image_run: Trained, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = exporting._READERS["torch.export"]

    def frozen(content: bytes) -> Any:
        return lambda samples: tuple(
            np.resize(a, (2, *a.shape[1:])) for a in right(content)(samples)
        )

    monkeypatch.setitem(exporting._READERS, "torch.export", frozen)
    with pytest.raises(ValueError, match=r"nothing was written|could not be broadcast"):
        srjt.export(image_run, "never.pt2", samples=data.manifest.arrays)


def test_your_own_transform_is_refused(image_run: Trained, tmp_path: Path) -> None:
    own = replace(image_run, preprocess=replace(image_run.preprocess, eval_transform=torch.relu))
    with refuses("unsupported", says="eval_transform"):
        srjt.export(own, tmp_path / "model.onnx")


@pytest.mark.parametrize("method", ["garg", "corn"])
def test_features_and_a_method_with_its_own_probabilities(method: str, tmp_path: Path) -> None:
    """Columns of different units are scaled inside the file; the answer is a count of
    thresholds."""
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 200)
    units = np.array([[1, 10, 0.1, 1, 1], [0, 500, 0, 0, 9]], dtype=np.float32)
    x = (random.normal(size=(200, 5)) + y[:, None]).astype(np.float32) * units[0] + units[1]
    matrix, data = (
        noise.transition_matrix("quasi", num_classes=3, rho=0.01),
        srjt.data.from_arrays(x, y),
    )
    run = train(
        data.manifest, method=method, transition=matrix, epochs=30, learning_rate=0.01, device="cpu"
    )
    written = srjt.export(run, tmp_path / "head.onnx")
    assert written.input == "features float32 (N, 5)"
    probabilities, grade, _ = answers(tmp_path / "head.onnx", x)
    by_network, own = run.probabilities(x)
    assert probabilities == pytest.approx(by_network[0], abs=1e-5)
    assert grade.tolist() == own[0].tolist()
    assert (grade == y).mean() > 0.8
    with refuses("wrong_shape", says=("(N, 5)", "(200, 4)")):
        srjt.export(run, tmp_path / "head.onnx", samples=x[:, :4])


def test_a_name_without_a_suffix_is_a_folder(image_run: Trained, tmp_path: Path) -> None:
    for name, form in (("to_send", None), ("version.2", "folder")):
        srjt.export(image_run, tmp_path / name, format=form)
        assert (tmp_path / name / "MODEL_CARD.md").is_file()
        with refuses("unsupported", says="A model card needs the folder of a run"):
            srjt.export(replace(image_run, folder=None), tmp_path / f"{name}_again", format=form)


@pytest.mark.parametrize(
    ("name", "format", "code", "option", "says"),
    [
        ("model.bin", None, "wrong_file", "out", "model.bin"),
        ("model.onnx", "onx", "unknown_name", "", "'onnx'"),
    ],
)
def test_unknown_formats(
    name: str, format: Any, code: str, option: str, says: str, image_run: Trained, tmp_path: Path
) -> None:
    with refuses(code, option, says=says):
        srjt.export(image_run, tmp_path / name, format=format)


def test_a_missing_extra_names_its_line(
    image_run: Trained, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(SrjtError, match=r'onnxscript.*pip install "onnx>=1\.17" "onnx') as raised:
        srjt.export(image_run, tmp_path / "model.onnx")
    assert raised.value.code == "missing_extra"


def test_a_resnet_of_the_papers_size(tmp_path: Path) -> None:
    images = srjt.data.synthetic.generate(images=4, patients=4, size=256)
    run = train(
        images, network="resnet18", pretrained=False, noise_rate=0.2, epochs=1, batch_size=4, device="cpu",
    )  # fmt: skip
    written = srjt.export(run, tmp_path / "model.onnx", samples=images.arrays)
    assert written.input == "images uint8 (N, 256, 256, 3)"
    assert answers(tmp_path / "model.onnx", images.arrays[:3])[0].sum(axis=1) == pytest.approx(
        1, abs=1e-5
    )


@pytest.mark.parametrize("size", [24, 300])
def test_sizes_that_synthetic_images_do_not_have(image_run: Trained, size: int) -> None:
    other = replace(image_run, config=replace(image_run.config, image_size=size, crop=20))
    samples = exporting._synthetic_samples(other)
    assert (samples.shape, samples.dtype) == ((8, size, size, 3), np.uint8)
