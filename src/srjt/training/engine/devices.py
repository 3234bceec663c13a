"""Which device, which precision: decided once, from the configuration and the machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from srjt.errors import SrjtError
from srjt.training.config import TrainConfig

__all__ = ["amp_dtype", "choose_device", "device_name", "settled"]

# Images. Trying kernels for all layers of an EfficientNet-Lite0 took 20 to 33 seconds on an H200, in each process
# anew, and made it no faster than cuDNN's own choice: a study of short runs spent half its time on it.
TRIALS_PAY = 500_000


def choose_device(wanted: str | None = None) -> torch.device:
    """The device asked for, or the GPU of this process if there is one, or the CPU."""
    if wanted is None:
        wanted = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise SrjtError(f"Unknown device {wanted!r}: use cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SrjtError(f"Device {wanted!r} was asked for, but torch sees no GPU here; use --device cpu.")
    if device.type == "cuda":
        index = 0 if device.index is None else device.index
        if index >= torch.cuda.device_count():
            raise SrjtError(f"There is no GPU number {index}: this machine has {torch.cuda.device_count()}.")
        return torch.device("cuda", index)
    return device


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{threads} CPU thread{'s' if threads > 1 else ''}"


def amp_dtype(config: TrainConfig, device: torch.device) -> torch.dtype | None:
    """bfloat16 when the forward pass is to run in it, None for float32. Never bf16 by itself on a CPU."""
    if config.precision == "bf16":
        return torch.bfloat16
    if config.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return None


@contextlib.contextmanager
def settled(config: TrainConfig, device: torch.device, *, work: int) -> Iterator[None]:
    """The process-wide switches that the configuration asks for, for as long as the body runs.

    work: images of the whole training, by which it is judged whether trying cuDNN's kernels pays.
    """
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic)
    strict = torch.are_deterministic_algorithms_enabled()
    if device.type == "cuda":
        torch.cuda.set_device(device)
        cuda.allow_tf32 = cudnn.allow_tf32 = config.precision != "fp32"
        cudnn.benchmark = work >= TRIALS_PAY and not config.deterministic  # never both
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        cudnn.deterministic = True
        torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as problem:
        if "does not have a deterministic implementation" in str(problem):
            operation = str(problem).split(" ")[0]
            raise SrjtError(
                f"This network uses {operation}, which has no deterministic version on a GPU: choose another "
                "network, or go without --deterministic."
            ) from None
        raise
    finally:
        cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before
        torch.use_deterministic_algorithms(strict)
