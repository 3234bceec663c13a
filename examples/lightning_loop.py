"""Co-teaching + Ours as a LightningModule.

pip install lightning; python examples/lightning_loop.py
"""

from __future__ import annotations

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from srjt import noise
from srjt.torch import JointLoss

CLASSES = 4

# Severity lies along a line in ten dimensions; 40 % of the training labels are wrong, mostly by one
# grade.
random = torch.Generator().manual_seed(0)
true = torch.randint(CLASSES, (1200,), generator=random)
x = torch.randn(1200, 10, generator=random) + 1.2 * (true[:, None] - 1.5)
matrix = noise.transition_matrix("quasi", num_classes=CLASSES, rho=0.18)
labels = torch.from_numpy(noise.corrupt(true[:1000].numpy(), matrix, seed=0))


class TwoNetworks(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.loss = JointLoss("co-teaching+ours", num_classes=CLASSES, noise_rate=0.4)
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(10, 64), nn.ReLU(), self.loss.head(64)) for _ in range(2)
        )

    def on_train_epoch_start(self) -> None:
        self.loss.set_epoch(self.current_epoch + 1)

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        inputs, targets = batch
        first, second = (network(inputs) for network in self.networks)
        total: Tensor = self.loss(first, second, targets)
        return total

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


lightning.seed_everything(0, verbose=False)
model = TwoNetworks()
loader = DataLoader(TensorDataset(x[:1000], labels), batch_size=64, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=12,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, loader)
model.eval()
with torch.no_grad():
    right = [model.loss.grades(network(x[1000:])) == true[1000:] for network in model.networks]
print(f"accuracy {torch.stack(right).float().mean():.3f}")
