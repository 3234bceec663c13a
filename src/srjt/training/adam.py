"""Adam with L2 regularisation, and AdamW, by torch's own fused update.

``torch.optim.Adam`` imports torch's compiler, to mark what must not be compiled: that takes longer
than all other imports together, and on a CPU nothing is compiled. The update itself,
``torch.optim.adam.adam``, does not.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Adam:
    """One group of parameters, with moments that exist from the start.

    Parameters
    ----------
    parameters : iterable of Parameter
        What is learnt.
    rate : float
        Learning rate of the first epoch. On a GPU it becomes a tensor on the device, which a
        captured graph reads.
    weight_decay : float
        Weight of the L2 regularisation, or of the decoupled decay.
    decoupled : bool
        Whether the weights decay beside the gradient, as in AdamW.
    device : torch.device
        Where the parameters are.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        rate: float,
        weight_decay: float,
        decoupled: bool,
        device: torch.device,
    ) -> None:
        self.parameters = list(parameters)
        self.weight_decay = weight_decay
        self.decoupled = decoupled
        self.on_gpu = device.type == "cuda"
        self.rate: float | Tensor = torch.tensor(rate, device=device) if self.on_gpu else rate
        self.steps = [
            torch.zeros((), dtype=torch.float32, device=each.device) for each in self.parameters
        ]
        self.means = [_zeros_like(each) for each in self.parameters]
        self.squares = [_zeros_like(each) for each in self.parameters]

    def set_rate(self, rate: float) -> None:
        """Set the learning rate, in place where a captured graph reads it."""
        if isinstance(self.rate, Tensor):
            self.rate.fill_(rate)
        else:
            self.rate = rate

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters that have a gradient."""
        parameters: list[Tensor] = []
        gradients: list[Tensor] = []
        moments: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
        state = zip(self.means, self.squares, self.steps, strict=True)
        for parameter, tensors in zip(self.parameters, state, strict=True):
            if parameter.grad is None:
                continue
            parameters.append(parameter)
            gradients.append(parameter.grad)
            for moment, tensor in zip(moments, tensors, strict=True):
                moment.append(tensor)
        means, squares, steps = moments
        adam(
            parameters,
            gradients,
            means,
            squares,
            [],  # the largest squares so far, of a variant that is not used
            steps,
            fused=True,
            capturable=self.on_gpu,
            decoupled_weight_decay=self.decoupled,
            amsgrad=False,
            maximize=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.rate,
            weight_decay=self.weight_decay,
            eps=EPSILON,
        )

    def state(self) -> dict[str, Tensor]:
        """The live tensors that the next step depends on, by name."""
        tensors = {}
        for position, step in enumerate(self.steps):
            tensors[f"{position}.step"] = step
            tensors[f"{position}.exp_avg"] = self.means[position]
            tensors[f"{position}.exp_avg_sq"] = self.squares[position]
        return tensors


def _zeros_like(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format)
