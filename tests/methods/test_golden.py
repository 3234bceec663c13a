"""The loss of every method on fixed logits is written down, and may only change on purpose."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from srjt import methods

HERE = Path(__file__).parent
STORED = json.loads((HERE / "golden.json").read_text())


@pytest.fixture(scope="module")
def measured() -> dict:
    return runpy.run_path(str(HERE / "make_golden.py"))["measure"](STORED["inputs"])


def test_every_method_and_convention_is_stored() -> None:
    for name in methods.plain_names():  # the recipe's loss is among the variants
        for convention in ("paper", "published-code"):
            assert f"{name} ({convention})" in STORED["methods"]


@pytest.mark.parametrize("key", STORED["methods"])
def test_golden(key: str, measured: dict) -> None:
    stored, now = STORED["methods"][key], measured[key]
    for exact in ("keep", "selected", "grades"):
        assert now[exact] == stored[exact]
    for close in ("total", "per_network", "gradient_norm"):
        assert now[close] == pytest.approx(stored[close], rel=1e-6), (
            "changed on purpose? run make_golden.py"
        )


def test_the_golden_cases_tell_the_conventions_and_the_methods_apart() -> None:
    # srjt is the same for every convention
    joint = [v for k, v in STORED["methods"].items() if not k.startswith("srjt")]
    seen = [(v["keep"], v["total"]) for v in joint if len(v["selected"]) == 2]
    assert len(set(seen)) == len(seen)


X, LABELS = np.array(STORED["inputs"]["logits"])[0], np.array(STORED["inputs"]["labels"])
NOISE, RATE, DECAY, STEPS = 0.4, 0.5, 0.1, 3


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def blend_of(seed: int) -> np.ndarray:
    """(B, B) the blend of Mixup's draw: λ on the diagonal, 1 − λ at the partner, read off from
    blended unit vectors."""
    eye, generator = (
        torch.eye(len(LABELS), dtype=torch.float64),
        torch.Generator().manual_seed(seed),
    )
    drawn = methods.create("mixup", num_classes=4).prepare(
        eye, torch.from_numpy(LABELS), generator=generator
    )
    return drawn[0].numpy()


@pytest.mark.parametrize("name", ["standard", "mixup", "cdr"])
def test_three_steps_of_a_small_network(name: str) -> None:
    """Two layers, trained by gradient descent with weight decay; the derivatives are written
    out."""
    rng = np.random.default_rng(5)
    first = [
        rng.normal(size=(6, 4)),
        rng.normal(size=6),
        rng.normal(size=(4, 6)),
        rng.normal(size=4),
    ]
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)).double()
    for parameter, value in zip(network.parameters(), first, strict=True):
        parameter.data = torch.from_numpy(value.copy())
    method = methods.create(name, num_classes=4, noise_rate=NOISE)
    optimiser = torch.optim.SGD(network.parameters(), lr=RATE, weight_decay=DECAY)
    w1, b1, w2, b2 = first
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x, y = method.prepare(torch.from_numpy(X), torch.from_numpy(LABELS), generator=generator)
        optimiser.zero_grad()
        method.loss(network(x)[None], y).total.backward()
        method.adjust(network.parameters())
        optimiser.step()

        blend = blend_of(step) if name == "mixup" else np.eye(len(X))
        inputs, targets = blend @ X, blend @ np.eye(4)[LABELS]
        hidden = np.maximum(inputs @ w1.T + b1, 0.0)
        error = (softmax(hidden @ w2.T + b2) - targets) / len(X)
        back = (error @ w2) * (hidden > 0)
        gradients = [back.T @ inputs, back.sum(axis=0), error.T @ hidden, error.sum(axis=0)]
        if name == "cdr":
            # the share 1 − ε of all weights with the largest |w·g| learns, at the rate times 1 − ε
            importance = np.abs(
                np.concatenate([(w1 * gradients[0]).ravel(), (w2 * gradients[2]).ravel()])
            )
            smallest = np.sort(importance)[-round((1 - NOISE) * importance.size)]
            for place, weight in ((0, w1), (2, w2)):
                learns = np.abs(weight * gradients[place]) >= smallest
                gradients[place] = np.where(learns, (1 - NOISE) * gradients[place], 0.0)
        pairs = zip((w1, b1, w2, b2), gradients, strict=True)
        w1, b1, w2, b2 = (value - RATE * (gradient + DECAY * value) for value, gradient in pairs)
    for parameter, value in zip(network.parameters(), (w1, b1, w2, b2), strict=True):
        assert parameter.detach().numpy() == pytest.approx(value, rel=1e-6, abs=1e-7)
