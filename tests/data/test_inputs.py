"""What ``srjt.train`` and ``srjt.predict`` accept: tables, arrays and datasets give the samples
that files give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import srjt
from fixtures.small_images import SETTINGS, Data
from refusals import refuses
from srjt.data import from_arrays
from srjt.data.images.decode import read_image
from srjt.data.sources import labelled_samples, unlabelled_samples
from srjt.data.sources.samples import read_ungraded_features
from srjt.errors import SrjtError


class Samples(torch.utils.data.Dataset[Any]):
    """A map-style dataset, as torchvision's are."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


def as_tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)


@pytest.mark.parametrize(
    "form",
    [as_tensor, lambda image: as_tensor(image) / 255, Image.fromarray, lambda image: image],
    ids=["uint8 tensor", "float tensor", "PIL", "array"],
)
def test_a_dataset_may_return_tensors_pictures_or_arrays(form: Any, pixels: np.ndarray) -> None:
    labels = [0, torch.tensor(1), np.int64(2), 1]
    found = labelled_samples(Samples(list(zip(map(form, pixels), labels, strict=True))))
    assert found.labels.tolist() == [0, 1, 2, 1]
    assert np.array_equal(found.arrays, pixels)
    unlabelled = unlabelled_samples(Samples([form(image) for image in pixels]), features=False)
    assert np.array_equal(unlabelled.arrays, pixels)


def test_a_grey_tensor_gets_three_channels() -> None:
    grey = torch.arange(16, dtype=torch.uint8).reshape(1, 4, 4)
    found = unlabelled_samples(Samples([grey]), features=False)
    assert found.arrays.shape == (1, 4, 4, 3)
    assert np.array_equal(found.arrays[0, ..., 0], grey[0].numpy())


class Stream(torch.utils.data.IterableDataset[Any]):
    """An iterable-style dataset: it has no length and no samples by index."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __iter__(self) -> Any:
        return iter(self.samples)


class OnGpu(torch.Tensor):
    """A tensor that NumPy cannot read before it is copied to the CPU, as those of CUDA."""

    def __array__(self, *_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def test_iterable_datasets_and_tensors_of_a_gpu_or_with_a_gradient(pixels: np.ndarray) -> None:
    labels = torch.tensor([0, 1, 2, 1])
    found = labelled_samples(Stream(list(zip(map(as_tensor, pixels), labels, strict=True))))
    assert found.labels.tolist() == [0, 1, 2, 1]
    assert np.array_equal(found.arrays, pixels)  # type: ignore[arg-type]
    new = unlabelled_samples(Stream([as_tensor(image) for image in pixels]), features=False)
    assert np.array_equal(new.arrays, pixels)  # type: ignore[arg-type]
    with refuses("too_few"):
        labelled_samples(Stream([]))
    rows = torch.arange(8.0).reshape(4, 2)
    for given in (rows.as_subclass(OnGpu), rows.clone().requires_grad_(), rows.bfloat16()):
        pair = labelled_samples((given, labels.as_subclass(OnGpu)))
        assert pair.labels.tolist() == [0, 1, 2, 1]
        assert np.array_equal(pair.arrays, rows)  # type: ignore[arg-type]
        assert np.array_equal(unlabelled_samples(given, features=True).arrays, rows)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("samples", "refused"),
    [
        ([torch.zeros(3, 4, 4)], ("wrong_type",)),
        ([(torch.full((3, 4, 4), -2.0), 0)], ("wrong_values",)),
        ([(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 5, 4), 1)], ("wrong_shape", "", "index 1")),
        ([(torch.zeros(3, 4, 4, dtype=torch.int32), 0)], ("wrong_shape", "", "neither an image")),
        ([(torch.zeros(3, 4, 4), torch.tensor([0, 1]))], ("wrong_shape", "grade")),
        ([], ("too_few",)),
    ],
)
def test_a_dataset_that_cannot_be_used_gets_one_sentence(
    samples: list[Any], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        labelled_samples(Samples(samples))


def test_a_pair_of_arrays(pixels: np.ndarray) -> None:
    named = labelled_samples((pixels, ["mild", "severe"] * 2), grades=["mild", "severe"])
    assert named.labels.tolist() == [0, 1, 0, 1]
    with refuses("wrong_type", says="(images, grades)"):
        labelled_samples(pixels)  # type: ignore[arg-type]
    with refuses("wrong_type", says="int"):
        labelled_samples(3)  # type: ignore[arg-type]


def test_a_table_in_memory_is_read_as_its_file(
    labels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_file = srjt.data.read(labels)
    frame = pd.read_csv(labels, dtype={"patient": str})
    found = srjt.data.read(frame, images=labels.parent)
    pd.testing.assert_frame_equal(found.table, from_file.table)
    assert found.paths == from_file.paths
    monkeypatch.chdir(labels.parent)
    assert (
        labelled_samples(frame).paths == from_file.paths
    )  # names are relative to the present folder
    unlabelled = unlabelled_samples(frame.drop(columns="grade"), features=False, columns=["split"])
    assert [path.resolve() for path in unlabelled.paths] == from_file.paths
    assert unlabelled.patients == from_file.patients
    assert list(unlabelled.table["split"]) == list(frame["split"])


def test_rows_of_features_in_a_table() -> None:
    frame = pd.DataFrame({"f0": [0.5, 1.5, 2.5], "f1": [1, 2, 3], "grade": [0, 1, 0]})
    frame["patient"] = ["007", "8", "8"]
    found = labelled_samples(frame)
    assert found.are_features
    assert found.arrays.tolist() == [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]]
    assert found.patients == ["007", "8", "8"]
    named = srjt.data.read(
        frame.rename(columns={"f0": "age", "f1": "size"}), feature_columns=["age", "size"]
    )
    assert np.array_equal(named.arrays, found.arrays)
    new = unlabelled_samples(frame.drop(columns="grade"), features=True)
    assert new.patients == ["007", "8", "8"]
    with refuses("wrong_values"):
        labelled_samples(frame.assign(f1=["1", "x", "2"]))


def test_features_in_memory_are_read_as_from_their_file(tmp_path: Path) -> None:
    """With ids, patients by another name, further columns, and grades as text."""
    frame = pd.DataFrame({
        "id": ["b", "a", "c"], "patient_id": ["007", "8", "8"], "eye": ["L", "R", None], "f0": [0.5, 1.5, 2.5],
        "f1": [1, 2, 3], "grade": ["mild", "severe", "mild"],
    })  # fmt: skip
    frame.to_csv(tmp_path / "rows.csv", index=False)
    grades = ("mild", "severe")
    from_file = srjt.data.read(tmp_path / "rows.csv", feature_columns="f*", grades=grades)
    found = srjt.data.read(frame, grades=grades)
    pd.testing.assert_frame_equal(found.table, from_file.table)
    assert (found.ids, found.patients) == (["b", "a", "c"], ["007", "8", "8"])
    columns = ["grade", "eye", "id"]
    new = unlabelled_samples(frame, features=True, columns=columns, grades=grades)
    as_file = read_ungraded_features(tmp_path / "rows.csv", columns=columns, grades=grades)
    pd.testing.assert_frame_equal(new.table, as_file.table)
    assert new.table["grade_source"].tolist() == ["mild", "severe", "mild"]
    data = pd.concat([frame] * 4).assign(id=[f"s{k}" for k in range(12)])
    run = srjt.train(srjt.data.read(data, grades=grades), method="standard", epochs=1)
    table = run.predict(frame, keep=["grade", "eye"])
    assert list(table.columns[:5]) == ["image", "patient", "grade_source", "eye", "grade"]
    assert table["grade_source"].tolist() == frame["grade"].tolist()
    assert run.predict(frame, per="patient_id")["images"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("frame", "options", "refused"),
    [
        (pd.DataFrame({"image": [], "grade": []}), {}, ("too_few",)),
        (pd.DataFrame({"image": ["a.png"]}), {}, ("missing_column", "grade_column")),
        (pd.DataFrame([[1, 2]], columns=["grade", "grade"]), {}, ("not_unique",)),
        (
            pd.DataFrame({"image": ["a.png"], "grade": [0]}),
            {"kind": "limuc"},
            ("conflict", "kind"),
        ),
        (
            pd.DataFrame({"image": ["a.png"], "grade": [0]}),
            {"labels": "x.csv"},
            ("option_without_effect", "labels"),
        ),
    ],
)
def test_a_table_in_memory_that_cannot_be_read(
    frame: Any, options: dict[str, Any], refused: tuple[str, ...]
) -> None:
    with refuses(*refused):
        srjt.data.read(frame, **options)


@pytest.mark.slow
def test_train_predict_and_evaluate_take_the_same_samples_in_every_form(
    data: Data, labels: Path
) -> None:
    """The manifest has its images in memory; the table names the same images as files."""
    run = srjt.train(labels, **{**SETTINGS, "epochs": 1}, split=data.split)
    paths = srjt.data.read(labels).paths[:4]
    images = np.stack([read_image(path) for path in paths])
    expected = run.predict(paths)
    forms: list[Any] = [
        [str(path) for path in paths],
        images,
        Samples([as_tensor(image) for image in images]),
        pd.DataFrame({"image": [str(path) for path in paths]}),
    ]
    columns = [name for name in expected if name.startswith("p_")]
    for form in forms:
        found = run.predict(form)
        assert np.allclose(found[columns], expected[columns], atol=1e-6)
    given = srjt.data.read(labels).labels[:4]
    pair = run.evaluate((images, given), resamples=10)
    dataset = run.evaluate(
        Samples(list(zip(map(as_tensor, images), given, strict=True))), resamples=10
    )
    assert pair.confusion == dataset.confusion
    assert pair.samples == 4


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: from_arrays([np.zeros((4, 4)), np.zeros((5, 4))], [0, 1]), "have different sizes"),
        (lambda: from_arrays(np.zeros((2, 3)), 3), "grade must have one entry per sample; got 3"),  # type: ignore[arg-type]
        (lambda: srjt.load_run(None), "A run is .* the path of its folder; got NoneType"),  # type: ignore[arg-type]
        (lambda: srjt.data.read(None), "read from a path or a DataFrame; got NoneType"),  # type: ignore[arg-type]
        (lambda: srjt.data.read_readings(3), "read from a path or a DataFrame; got int"),  # type: ignore[arg-type]
        (lambda: srjt.readers.consensus(None), "Readings are wanted, .*; got NoneType"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_is_not_data_at_all_gets_a_sentence(
    wrong: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(SrjtError, match=sentence):
        wrong()
