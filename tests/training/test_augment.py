"""Training with ``augment``: what it depends on, and where it has no effect."""

import numpy as np
import pytest
import torch

import srjt
from srjt.data import folds, synthetic
from srjt.data.images.augment import AUGMENTATIONS
from srjt.errors import SrjtError
from srjt.training.batches import draw_plan

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
