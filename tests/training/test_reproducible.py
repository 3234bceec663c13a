"""A training is a function of its seed, and leaves the caller's random state alone."""

import random
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srjt.training.batches import draw_plan, generator, subseed
from srjt.training.step import weights
from srjt.training.trained import Trained


def bits(run: Trained) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in weights(run.networks).items()}


@pytest.fixture(scope="module")
def first(train: Any) -> Trained:
    return train(epochs=2)


def test_the_same_seed_gives_the_same_bits_and_another_others(train: Any, first: Trained) -> None:
    torch.rand(3)  # whatever the caller drew before
    again = train(epochs=2)
    assert bits(again) == bits(first)
    assert again.history.equals(first.history)
    other = train(epochs=2, seed=1)
    assert not set(bits(other).values()) & {
        v for k, v in bits(first).items() if "num_batches" not in k
    }


def test_the_callers_random_states_do_not_change(train: Any) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    train(epochs=1, method="mixup")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]
    assert random.getstate() == before[2]


def test_the_two_networks_differ_from_the_start(train: Any) -> None:
    run = train(epochs=1, learning_rate=1e-12, weight_decay=0.0)
    both = zip(*(member.parameters() for member in run.networks.members), strict=True)
    drawn = [(a, b) for a, b in both if a.ndim > 1 or a.shape == (4,)]  # not norms' 1 and 0
    assert len(drawn) >= 4
    assert all(not torch.equal(a, b) for a, b in drawn)


class Witness(nn.Module):
    """A network that remembers what it was shown."""

    seen: ClassVar[list[list[Tensor]]] = []

    def __init__(self) -> None:
        super().__init__()
        self.mine: list[Tensor] = []
        self.linear = nn.Linear(3, 8)
        Witness.seen.append(self.mine)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mine.append(x.clone())
        features: Tensor = self.linear(x.mean(dim=(2, 3)))
        return features


def test_both_networks_see_the_same_augmented_batches(data: Any, train: Any) -> None:
    Witness.seen = []
    train(epochs=2, network=Witness)
    one, two = Witness.seen
    assert len(one) == len(two) == 2 * (len(data.split.train) // 16)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], one[len(one) // 2])  # another epoch, another order


def test_a_plan_covers_each_sample_at_most_once_and_can_be_drawn_out_of_order() -> None:
    late = draw_plan(50, batch_size=16, epoch=7, seed=3, margin=4)
    assert late.rows.shape == (3, 16)
    assert len(set(late.rows.flatten().tolist())) == 48
    assert 0 <= late.offsets.min() <= late.offsets.max() == 4
    draw_plan(50, batch_size=16, epoch=1, seed=3, margin=4)
    again = draw_plan(50, batch_size=16, epoch=7, seed=3, margin=4)
    assert torch.equal(late.rows, again.rows)
    assert torch.equal(late.flips, again.flips)
    assert not torch.equal(late.rows, draw_plan(50, batch_size=16, epoch=8, seed=3, margin=4).rows)


def test_without_flips_the_crops_stay_the_same() -> None:
    flipped = draw_plan(50, batch_size=16, epoch=1, seed=0, margin=4)
    plain = draw_plan(50, batch_size=16, epoch=1, seed=0, margin=4, flip=False)
    assert flipped.flips.any()
    assert not plain.flips.any()
    assert torch.equal(flipped.offsets, plain.offsets)


def test_each_purpose_has_a_seed_of_its_own() -> None:
    purposes = [("plan", 1), ("plan", 11), ("method", 1), ("weights", 1)]
    seeds = {subseed(seed, *purpose) for purpose in purposes for seed in (0, 1, -1)}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert torch.rand(1, generator=generator(0, "a")) == torch.rand(1, generator=generator(0, "a"))
