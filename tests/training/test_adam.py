"""Our Adam is torch's, to the bit, and does not import torch's compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from srjt.training.adam import Adam


@pytest.mark.parametrize("decoupled", [False, True])
def test_it_is_the_optimizer_of_torch(decoupled: bool) -> None:
    networks = []
    for _ in range(2):
        torch.manual_seed(0)
        networks.append(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(9, 9)))
    ours, theirs = networks
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    reference = kind(theirs.parameters(), lr=0.1, weight_decay=0.3, fused=True)
    device = torch.device("cpu")
    optimizer = Adam(
        ours.parameters(), rate=0.1, weight_decay=0.3, decoupled=decoupled, device=device
    )
    for step in range(5):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        optimizer.set_rate(0.1 / (step + 1))
        reference.param_groups[0]["lr"] = 0.1 / (step + 1)
        for network, either in ((ours, optimizer), (theirs, reference)):
            either.zero_grad()
            network[:3](x).square().sum().backward()  # the last layer gets no gradient, and stays
            either.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
    moments = optimizer.state()
    for position, parameter in enumerate(list(theirs.parameters())[:4]):
        for name, tensor in reference.state[parameter].items():
            assert torch.equal(moments[f"{position}.{name}"], tensor)
    assert float(moments["4.step"]) == 0


@pytest.mark.slow  # imports torch in a new process
def test_it_does_not_import_the_compiler() -> None:
    program = (
        "import sys, torch\n"
        "from srjt.training.adam import Adam\n"
        "weight = torch.nn.Parameter(torch.ones(2))\n"
        "device = torch.device('cpu')\n"
        "adam = Adam([weight], rate=0.1, weight_decay=0.0, decoupled=False, device=device)\n"
        "weight.sum().backward()\n"
        "adam.step()\n"
        "assert weight[0] < 1\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
