"""Write golden.json anew: the loss and the selection of every method on fixed logits.

Run it only when a value is *meant* to change, and say in the change why:

    python tests/methods/make_golden.py
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from srjt import methods, noise

SEED = 2170
FILE = Path(__file__).with_name("golden.json")
CONVENTIONS = ("paper", "published-code")
# Beside the fourteen names: the paper's soft/soft ablation, its missing cells, selection per class,
# and what is not the paper's.
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("co-teaching", {"select": "soft", "update": "soft"}),
    ("jocor", {"select": "soft", "update": "soft"}),
    ("codis", {"select": "soft", "update": "soft"}),
    ("jocor", {"select": "soft", "update": "hard"}),
    ("co-teaching+ours", {"per_class": True}),
    ("jocor+ours", {"co_lambda": 0.5, "temperature": 0.5}),
    ("jocor+ours", {"co_lambda": 1.0, "agree": "all"}),  # the loss of the former recipe
    ("eae", {}),
    ("gce", {}),
    ("elr", {}),
    ("sce", {}),
    ("corn", {}),
    ("cdw-ce", {}),
    ("srjt", {}),
)


def inputs() -> dict[str, Any]:
    """Two networks that partly agree on 32 samples; a batch that tells all joint methods apart.

    Numbers with three digits, which any platform reads alike.
    """
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.randint(4, (32,), generator=generator)
    own, shared = (
        torch.randn(2, 32, 4, generator=generator),
        torch.randn(32, 4, generator=generator),
    )
    logits = own + shared + torch.nn.functional.one_hot(labels, 4)
    rows = [[[round(v, 3) for v in row] for row in network] for network in logits.tolist()]
    return {"labels": labels.tolist(), "logits": rows}


def measure(given: dict[str, Any]) -> dict[str, Any]:
    """Loss and selection of every method and convention, by a telling key."""
    found: dict[str, Any] = {}
    labels, logits = (
        torch.tensor(given["labels"]),
        torch.tensor(given["logits"], dtype=torch.float64),
    )
    for name, options in [(name, {}) for name in methods.plain_names()] + list(VARIANTS):
        for convention in CONVENTIONS:
            key = " ".join([name, *(f"{k}={v}" for k, v in options.items()), f"({convention})"])
            found[key] = _one(name, convention, options, logits, labels)
    return found


def _one(
    name: str, convention: Any, options: Any, logits: torch.Tensor, labels: torch.Tensor
) -> Any:
    matrix = noise.transition_matrix("quasi", num_classes=4, rho=0.15)
    known = {"noise_rate": 0.4, "transition": matrix, "convention": convention}
    method = methods.create(name, num_classes=4, **known, **options)
    z = logits[: method.networks, :, : method.outputs].clone().requires_grad_()
    _, targets = method.prepare(logits[0], labels, generator=torch.Generator().manual_seed(1))
    keep = method.keep(12, len(labels))
    loss = method.loss(z, targets, keep=keep)
    loss.total.backward()
    return {
        "keep": keep,
        "total": loss.total.item(),
        "per_network": loss.per_network.tolist(),
        "selected": ["".join(str(int(chosen)) for chosen in row) for row in loss.selected],
        "gradient_norm": z.grad.norm().item(),
        "grades": ["".join(map(str, row)) for row in method.grades(z).tolist()],
    }


def _same(new: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    """The old one, if the new one differs by no more than rounding."""
    if old is None:
        return new
    exact = all(new[name] == old[name] for name in ("keep", "selected", "grades"))
    numbers = [[v["total"], v["gradient_norm"], *v["per_network"]] for v in (new, old)]
    return old if exact and np.allclose(*numbers, rtol=1e-12, atol=0.0) else new


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = inputs()
        found = measure(given)
    stored = json.loads(FILE.read_text())
    if (
        stored["inputs"] == given
    ):  # values that differ by rounding, as between machines, stay as they are
        found = {key: _same(value, stored["methods"].get(key)) for key, value in found.items()}
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    FILE.write_text(f'{{"inputs": {json.dumps(given)},\n "methods": {{\n{lines}\n}}}}\n')
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
