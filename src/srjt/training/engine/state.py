"""The whole state of a training as named tensors: to save it, to restore it, to undo a warm-up."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from srjt.errors import SrjtError
from srjt.training.engine.recorder import Recorder
from srjt.training.engine.stacked_networks import StackedNetworks

__all__ = ["initialise_optimizer", "restore", "state_tensors", "weights"]


def initialise_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Create Adam's (zero) moments now instead of at its first step, so that the state always has the same names."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            }


def weights(networks: StackedNetworks) -> dict[str, Tensor]:
    """Parameters and buffers, named ``0.…`` and ``1.…`` by network."""
    return {
        f"{k}.{name}": tensor
        for k, member in enumerate(networks.members)
        for name, tensor in member.state_dict().items()
    }


def state_tensors(
    networks: StackedNetworks,
    optimizer: torch.optim.Optimizer,
    recorder: Recorder,
    memory: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Every tensor that the next step depends on, and the recorder's. The live tensors, not copies.

    memory: what the method remembers.
    """
    state = {f"network.{name}": tensor for name, tensor in weights(networks).items()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for position, parameter in enumerate(parameters):
        for name, tensor in optimizer.state[parameter].items():
            state[f"optimizer.{position}.{name}"] = tensor
    state.update({f"recorder.{name}": tensor for name, tensor in recorder.tensors.items()})
    state.update({f"method.{name}": tensor for name, tensor in memory.items()})
    return state


@torch.no_grad()
def restore(live: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy saved values into the live tensors, in place, because captured graphs keep their addresses."""
    if live.keys() != saved.keys():
        name = sorted(live.keys() ^ saved.keys())[0]
        raise SrjtError(
            f"The saved state does not belong to this network or method: {name} is in only one of them."
        )
    for name, tensor in live.items():
        if tensor.shape != saved[name].shape:
            raise SrjtError(
                f"The saved state does not belong to this training: {name} has shape {tuple(saved[name].shape)} "
                f"there and {tuple(tensor.shape)} here."
            )
        tensor.copy_(saved[name])
