"""Co-teaching + Ours in a plain PyTorch loop.

python examples/own_loop.py
"""

from __future__ import annotations

import torch
from torch import nn

from srjt import methods, noise

CLASSES, BATCH, EPOCHS = 4, 64, 12

# Severity lies along a line in ten dimensions; 40 % of the training labels are wrong, mostly by one grade.
random = torch.Generator().manual_seed(0)
true = torch.randint(CLASSES, (1200,), generator=random)
x = torch.randn(1200, 10, generator=random) + 1.2 * (true[:, None] - 1.5)
matrix = noise.transition_matrix("quasi", num_classes=CLASSES, rho=0.18)
labels = torch.from_numpy(noise.corrupt(true[:1000].numpy(), matrix, seed=0))
x_test, y_test = x[1000:], true[1000:]

torch.manual_seed(0)
method = methods.create("co-teaching+ours", num_classes=CLASSES, noise_rate=0.4)
networks = [nn.Sequential(nn.Linear(10, 64), nn.ReLU(), method.head(64, CLASSES)) for _ in range(method.networks)]
optimiser = torch.optim.Adam([p for network in networks for p in network.parameters()], lr=3e-3)

for epoch in range(1, EPOCHS + 1):
    for batch in torch.randperm(1000, generator=random).split(BATCH):
        inputs, targets = method.prepare(x[batch], labels[batch])
        logits = torch.stack([network(inputs) for network in networks])  # (K, B, C)
        loss = method.loss(logits, targets, keep=method.keep(epoch, len(batch)))
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
    with torch.no_grad():
        grades = method.grades(torch.stack([network(x_test) for network in networks]))  # (K, N)
    print(f"epoch {epoch:2d}: accuracy {(grades == y_test).float().mean():.3f}")
