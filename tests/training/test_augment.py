"""Training with ``augment``: what it depends on, and where it has no effect."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import srjt
from srjt import methods
from srjt.data import folds, synthetic
from srjt.data.images.augment import AUGMENTATIONS
from srjt.data.images.feed import open_feed
from srjt.errors import SrjtError
from srjt.training.batches import Preprocess, TrainingSet, draw_plan, train_batches

SMALL = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 2, "batch_size": 16}


def data():
    return synthetic.generate(images=48, patients=12, size=32)


def test_draws_depend_on_seed_and_epoch_alone():
    def plan(**changes):
        settings = {
            "batch_size": 4,
            "epoch": 3,
            "seed": 1,
            "margin": 4,
            "augmentation": AUGMENTATIONS["light"],
        }
        return draw_plan(20, **{**settings, **changes})

    assert torch.equal(plan().changes, plan().changes)
    assert not torch.equal(plan().changes, plan(epoch=4).changes)
    assert not torch.equal(plan().changes, plan(seed=2).changes)
    # the paper's crops and order are not moved by it
    paper = plan(augmentation=None)
    assert paper.changes.shape == (5, 4, 0)
    for name in ("rows", "offsets", "flips"):
        assert torch.equal(getattr(plan(), name), getattr(paper, name))


@pytest.mark.parametrize("augment", ["light", pytest.param("strong", marks=pytest.mark.slow)])
def test_a_training_is_reproducible_and_differs_from_the_papers(augment):
    samples = data()

    def losses(**options):
        run = srjt.train(
            samples,
            method="standard",
            seed=0,
            split=folds(samples)[0],
            device="cpu",
            **SMALL,
            **options,
        )
        return run.history["loss_1"].to_numpy()

    first = losses(augment=augment)
    assert np.array_equal(first, losses(augment=augment), equal_nan=True)
    assert np.nanmean(first != losses()) > 0.9


def test_processes_and_resumed_epochs_change_the_same_images_alike():
    """A part of the columns, and the steps from a later one on, are those of the whole batches; with
    the cutout of the level."""
    strong = AUGMENTATIONS["strong"]
    pixels = torch.randint(0, 256, (12, 32, 32, 3), dtype=torch.uint8)
    samples = TrainingSet(
        feed=open_feed(pixels.numpy(), device="cpu"),
        rows=torch.arange(12),
        labels=torch.zeros(12, dtype=torch.int64),
        true=None,
    )
    plan = draw_plan(12, batch_size=4, epoch=1, seed=0, margin=4, augmentation=strong)
    preprocess = Preprocess(crop=28, augmentation=strong)
    options = {
        "method": methods.create("standard", num_classes=2),
        "preprocess": preprocess,
        "generator": torch.Generator(),
    }
    whole = [batch.x for batch in train_batches(samples, plan, **options)]
    assert len(whole) == 3
    half = train_batches(samples, plan, first=1, part=slice(2, 4), **options)
    for batch, expected in zip(half, whole[1:], strict=True):
        torch.testing.assert_close(batch.x, expected[2:4])
    without = Preprocess(crop=28, augmentation=replace(strong, cutout=0.0))
    plain = next(iter(train_batches(samples, plan, **{**options, "preprocess": without})))
    share = (plain.x != whole[0]).any(dim=1).float().mean()
    assert 0.02 < share < 0.15  # of the pixels; a square of 9 % may reach over the edge


def test_it_is_an_error_where_it_has_no_effect():
    samples = data()
    with pytest.raises(SrjtError) as problem:
        srjt.train(
            samples,
            method="standard",
            split=folds(samples)[0],
            augment="light",
            device="cpu",
            transform=lambda x: x[..., :28, :28].float(),
            eval_transform=lambda x: x[..., :28, :28].float(),
            **SMALL,
        )
    assert (problem.value.code, problem.value.option) == ("option_without_effect", "augment")
