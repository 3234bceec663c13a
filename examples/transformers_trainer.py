"""Soft labels with the Trainer of Hugging Face's transformers.

pip install "transformers[torch]"; python examples/transformers_trainer.py

A network of transformers is a module that returns its logits; a small one of our own stands for it
here.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from srjt import noise
from srjt.torch import OrdinalLoss

CLASSES = 4

# Severity lies along a line in ten dimensions; 40 % of the training labels are wrong, mostly by one
# grade.
random = torch.Generator().manual_seed(0)
true = torch.randint(CLASSES, (1200,), generator=random)
x = torch.randn(1200, 10, generator=random) + 1.2 * (true[:, None] - 1.5)
matrix = noise.transition_matrix("quasi", num_classes=CLASSES, rho=0.18)
labels = torch.from_numpy(noise.corrupt(true[:1000].numpy(), matrix, seed=0))
training = [
    {"pixel_values": image, "labels": label} for image, label in zip(x[:1000], labels, strict=True)
]


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.layers(pixel_values)}


loss = OrdinalLoss("sord", num_classes=CLASSES)


def ordinal_loss(outputs: dict[str, Tensor], labels: Tensor, **more: Any) -> Tensor:
    total: Tensor = loss(outputs["logits"], labels)
    return total


torch.manual_seed(0)
model = Classifier()
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder,
        num_train_epochs=6,
        per_device_train_batch_size=64,
        learning_rate=3e-3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    Trainer(
        model=model, args=settings, train_dataset=training, compute_loss_func=ordinal_loss
    ).train()
model.eval()
with torch.no_grad():
    grades = loss.grades(model(x[1000:])["logits"])
print(f"accuracy {(grades == true[1000:]).float().mean():.3f}")
