"""Predictions averaged over views of an image: which ones, how, and where there are none."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

import srjt
from refusals import refuses
from srjt import methods
from srjt.data.grades import Grades
from srjt.inference.evaluate import evaluate
from srjt.inference.predict import predict
from srjt.networks import IMAGENET_MEAN, IMAGENET_STD
from srjt.training.batches import Preprocess
from srjt.training.devices import StackedNetworks
from srjt.training.trained import Trained

SIZE, CROP, MARGIN = 32, 28, 4
PLACES = [(2, 2), (0, 0), (0, 4), (4, 0), (4, 4)]


class LeftColumn(nn.Module):
    """Uses only the mean of the crop's left column: logits (0, weight · mean)."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        seen = self.weight * x[:, 0, :, 0].mean(dim=-1)
        return torch.stack([torch.zeros_like(seen), seen], dim=-1)


class Thresholds(nn.Module):
    """Ordinal logits that follow the brightness of the left column: one bright view among dark
    ones."""

    def forward(self, x: Tensor) -> Tensor:
        bright = x[:, 0, :, 0].mean(dim=-1) > 0
        above = torch.where(
            bright[:, None], torch.tensor([0.9, 0.6, 0.5]), torch.tensor([0.62, 0.45, 0.4])
        )
        return torch.logit(above)


def with_networks(
    image_run: Trained, *networks: nn.Module, method: methods.Method | None = None
) -> Trained:
    method = method or methods.create("standard", num_classes=2)
    grades = Grades(str(grade) for grade in range(method.num_classes))
    return replace(image_run, networks=StackedNetworks(networks), method=method, grades=grades)


def sloping(down: int, right: int) -> npt.NDArray[np.uint8]:
    """One image (1, 32, 32, 3) that grows brighter by so much per pixel."""
    grey = down * np.arange(SIZE)[:, None] + right * np.arange(SIZE)[None, :]
    return np.repeat(grey[None, :, :, None], 3, axis=3).astype(np.uint8)


def upper(brightness: float, *, weight: float) -> float:
    """What LeftColumn gives the upper grade where the mean of its column is this bright."""
    seen = (brightness / 255 - IMAGENET_MEAN[0]) / IMAGENET_STD[0]
    return float(1 / (1 + np.exp(-weight * seen)))


@pytest.mark.parametrize(
    ("views", "flip"), [(1, True), (2, True), (10, True), (1, False), (10, False)]
)
def test_the_average_is_the_one_by_hand(image_run: Trained, views: int, flip: bool) -> None:
    places, ways = PLACES if views == 10 else PLACES[:1], 2 if flip and views > 1 else 1
    run = with_networks(image_run, LeftColumn(1.0), LeftColumn(-3.0))
    run = replace(run, config=run.config.replace(flip=flip))
    found, grades = run.probabilities(sloping(2, 5), views=views)
    for k, weight in enumerate((1.0, -3.0)):
        left_columns = [x + way * (CROP - 1) for y, x in places for way in range(ways)]
        rows = [y + (CROP - 1) / 2 for y, x in places for way in range(ways)]
        expected = [
            upper(2 * y + 5 * x, weight=weight) for y, x in zip(rows, left_columns, strict=True)
        ]
        assert found[k, 0, 1] == pytest.approx(np.mean(expected), abs=1e-5)
        assert found[k, 0].sum() == pytest.approx(1.0, abs=1e-6)
        assert grades[k, 0] == (np.mean(expected) > 0.5)


def test_the_grade_is_that_of_the_average_and_not_that_of_most_views(image_run: Trained) -> None:
    """The centre predicts 0 with p = 0.55, its mirror image 1 with p = 1."""

    class Torn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sure = x[:, 0, 0, 0] > x[:, 0, 0, -1]
            return torch.where(
                sure[:, None], torch.tensor([-9.0, 9.0]), torch.tensor([0.55, 0.45]).log()
            )

    run = with_networks(image_run, Torn())
    assert run.probabilities(sloping(0, 5))[1].tolist() == [[0]]
    probabilities, grades = run.probabilities(sloping(0, 5), views=2)
    assert probabilities[0, 0].tolist() == pytest.approx([0.275, 0.725], abs=1e-5)
    assert grades.tolist() == [[1]]


def test_an_ordinal_head_counts_thresholds_of_the_average_too(image_run: Trained) -> None:
    method = methods.create("garg", num_classes=4, transition=np.eye(4))
    run = with_networks(image_run, Thresholds(), method=method)
    assert run.probabilities(sloping(0, 8))[1].tolist() == [
        [1]
    ]  # the dark side: only 0.62 is above ½
    probabilities, grades = run.probabilities(sloping(0, 8), views=2)
    # Pr(grade > k) is 0.76, 0.525, 0.45: two thresholds are passed, though grade 3 is the likeliest
    assert probabilities[0, 0].tolist() == pytest.approx([0.24, 0.235, 0.075, 0.45], abs=1e-5)
    assert grades.tolist() == [[2]]
    images = srjt.data.from_arrays(sloping(0, 8), ["0"], names=run.grades)
    assert predict(run, images, views=2)["grade"].tolist() == ["2"]


def test_one_view_is_the_centre_bit_for_bit_as_in_training(image_run: Trained, data: Any) -> None:
    images = data.manifest.arrays
    default, one = image_run.probabilities(images), image_run.probabilities(images, views=1)
    edge = MARGIN // 2
    cut = np.ascontiguousarray(images[:, edge:-edge, edge:-edge])
    for a, b, c in zip(default, one, image_run.probabilities(cut), strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)


@pytest.mark.slow
def test_tables_and_judgements_say_how_many_views_they_are_of(
    image_run: Trained, data: Any
) -> None:
    table = predict(image_run, data.manifest, views=10)
    assert table.attrs["how"]["views"] == 10
    own = image_run.probabilities(data.manifest.arrays, views=10)[0].mean(axis=0)
    assert table[["p_0", "p_1", "p_2", "p_3"]].to_numpy() == pytest.approx(own)
    found = evaluate(image_run, data.manifest, views=10, decoding="argmax", resamples=20)
    right = (own.argmax(axis=1) == data.manifest.true_labels).mean()
    assert found.intervals["accuracy"].value == pytest.approx(right)
    assert found.to_dict()["views"] == 10
    assert evaluate(image_run, data.manifest, resamples=20).to_dict()["views"] == 1
    sided = replace(image_run, config=image_run.config.replace(flip=False))
    assert predict(sided, data.manifest, views=10).attrs["how"]["views"] == 5


@pytest.mark.slow
def test_a_second_centre_and_the_own_test_side_are_of_one_view(image_run: Trained) -> None:
    """The run keeps one view of its test side, so more of the others would not be a comparison."""
    other = srjt.data.synthetic.generate(images=40, patients=10, size=SIZE, seed=9)
    one, ten = (evaluate(image_run, other, views=views, resamples=2).external for views in (1, 10))
    assert (one.here, one.home, one.by_answers) == (ten.here, ten.home, ten.by_answers)


@pytest.mark.parametrize("views", [0, 5])
def test_other_numbers_of_views(image_run: Trained, data: Any, views: int) -> None:
    with refuses("out_of_bounds", "views", says=f"got {views}."):
        predict(image_run, data.manifest, views=views)


def test_where_there_are_no_views(image_run: Trained, data: Any) -> None:
    sided = replace(image_run, config=image_run.config.replace(flip=False))
    with refuses("unsupported", "views", says="flip=false"):
        evaluate(sided, data.manifest, views=2)
    whole = replace(
        image_run, config=image_run.config.replace(crop=SIZE), preprocess=Preprocess(crop=SIZE)
    )
    with refuses("unsupported", "views", says="crop"):
        whole.probabilities(data.manifest.arrays, views=10)
    assert whole.probabilities(data.manifest.arrays, views=2)[0].shape == (2, len(data.manifest), 4)
    own = Preprocess(
        crop=CROP, eval_transform=lambda images: images[:, :, :CROP, :CROP].float() / 255
    )
    transformed = replace(image_run, preprocess=own)
    assert transformed.probabilities(data.manifest.arrays)[0].shape == (2, len(data.manifest), 4)
    with refuses("unsupported", "views", says="eval_transform"):
        transformed.probabilities(data.manifest.arrays, views=2)


def test_features_have_no_views() -> None:
    rng = np.random.default_rng(0)
    rows = srjt.data.from_arrays(
        rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)
    )
    run = srjt.train(
        rows, method="standard", network="linear", epochs=1, batch_size=16, device="cpu"
    )
    with refuses("unsupported", "views", says="features"):
        predict(run, rows, views=10)
