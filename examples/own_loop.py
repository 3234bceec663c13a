"""Co-teaching + Ours in a plain PyTorch loop.

python examples/own_loop.py
"""

from __future__ import annotations

import torch
from torch import nn

from srjt import noise
from srjt.torch import JointLoss

CLASSES = 4
BATCH = 64
EPOCHS = 12

# Severity lies along a line in ten dimensions; 40 % of the training labels are wrong, mostly by one
# grade.
random = torch.Generator().manual_seed(0)
true = torch.randint(CLASSES, (1200,), generator=random)
x = torch.randn(1200, 10, generator=random) + 1.2 * (true[:, None] - 1.5)
matrix = noise.transition_matrix("quasi", num_classes=CLASSES, rho=0.18)
labels = torch.from_numpy(noise.corrupt(true[:1000].numpy(), matrix, seed=0))

torch.manual_seed(0)
loss = JointLoss("co-teaching+ours", num_classes=CLASSES, noise_rate=0.4)
networks = [nn.Sequential(nn.Linear(10, 64), nn.ReLU(), loss.head(64)) for _ in range(2)]
optimizer = torch.optim.Adam([p for network in networks for p in network.parameters()], lr=3e-3)

for epoch in range(1, EPOCHS + 1):
    loss.set_epoch(epoch)  # fewer samples are kept from epoch to epoch
    for batch in torch.randperm(1000, generator=random).split(BATCH):
        first, second = (network(x[batch]) for network in networks)
        optimizer.zero_grad()
        loss(first, second, labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        right = [loss.grades(network(x[1000:])) == true[1000:] for network in networks]
    print(f"epoch {epoch:2d}: accuracy {torch.stack(right).float().mean():.3f}")
