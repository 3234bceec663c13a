"""Options for the commands that we suggest: a training that the machine can do."""

from __future__ import annotations

__all__ = ["SMALL_NETWORK", "machine_options"]

# as in docs/ten-minutes.md
SMALL_NETWORK = "--network tiny --image-size 64 --crop 56 --epochs 15"


def machine_options(*, features: bool = False) -> list[str]:
    """What to add to ``srjt train`` on this machine: a small network if there is no GPU. Features need none."""
    from srjt.training.engine.devices import choose_device

    return [] if features or choose_device().type == "cuda" else SMALL_NETWORK.split()
