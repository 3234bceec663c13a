"""The guide's examples of methods are complete and do what it says of them."""

from __future__ import annotations

import re
import sys
import types
from math import log
from pathlib import Path

import pytest
import torch

from srjt import methods
from srjt.methods import registry

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/add-a-method.md").read_text(), flags=re.DOTALL)


@pytest.fixture
def examples(monkeypatch):
    """Run the printed blocks as if each were a module, in a registry of their own."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    for number, block in enumerate(BLOCKS):
        name = f"contributed_{number}"
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(block, f"add-a-method.md, block {number}", "exec"), module.__dict__)


@pytest.mark.usefixtures("examples")
def test_the_new_methods_are_listed_last() -> None:
    assert methods.names()[-3:] == ("gce", "consensus", "consensus+ours")


def test_the_example_is_a_method_in_twenty_lines() -> None:
    for block in BLOCKS:
        assert len([line for line in block.splitlines() if line.strip()]) <= 20


@pytest.mark.usefixtures("examples")
def test_the_single_network_of_the_guide() -> None:
    logits = torch.tensor([[[0.25, 0.75]]], dtype=torch.float64).log()
    loss = methods.create("gce", num_classes=2, q=0.5).loss(logits, torch.tensor([0]))
    assert float(loss.total) == pytest.approx((1 - 0.25**0.5) / 0.5)
    almost = methods.create("gce", num_classes=2, q=1e-6).loss(logits, torch.tensor([0]))
    assert float(almost.total) == pytest.approx(log(4), rel=1e-5)
    with pytest.raises(ValueError, match="option of gce 'p'"):
        methods.create("gce", num_classes=2, p=0.5)


@pytest.mark.usefixtures("examples")
def test_the_host_of_the_guide() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 8, 4, generator=generator), torch.arange(8) % 4
    for name, tau in (("consensus", 1.0), ("consensus+ours", 0.1)):
        loss = methods.create(name, num_classes=4, noise_rate=0.4).loss(logits, labels, keep=5)
        joint = sum(
            torch.nn.functional.cross_entropy(z / tau, labels, reduction="none") for z in logits
        ).tolist()
        expected = sorted(range(8), key=lambda i: joint[i])[:5]
        assert loss.selected.tolist() == [[i in expected for i in range(8)]] * 2
