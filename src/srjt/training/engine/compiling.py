"""Compile networks: once for all networks of the same structure, and kept on disk for later processes."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from srjt.errors import warn
from srjt.files import cache_folder
from srjt.training.engine.stacked_networks import StackedNetworks

__all__ = ["compile_networks", "keep_compiled_code", "pause_garbage_collection"]

# Batch shapes for which torch compiles a network; by default 8, but a worker evaluates sides of up to 16 sizes.
SHAPES = 64

# Without these steps the set-up of a ResNet-18 takes a third less time on an H200, and it trains as fast. They
# time several variants of simple kernels, search for patterns such as attention, pad matrices, and divide the code into
# parts for CUDA graphs, which we capture ourselves.
LEFT_OUT: dict[str, str | int | bool | Callable[..., object]] = {
    "triton.autotune_pointwise": False,
    "pattern_matcher": False,
    "shape_padding": False,
    "graph_partition": False,
}

_compiled: set[str] = (
    set()
)  # what this process has compiled: the structure of the networks and their batch size


def compile_networks(networks: StackedNetworks, *, batch_size: int) -> None:
    """Compile each network; without a working compiler the networks run as they are.

    Networks of the same structure share the compiled code: the two of a method, and those of later trainings in this
    process. Code for other networks is dropped, because torch compiles a function a limited number of times and then
    runs it as it is. Shapes are static: if dynamic ones were allowed, the code, and so the last bits of a result, would
    depend on the shapes that an earlier training in this process had.
    """
    keep_compiled_code()
    made_for = f"{networks.members[0]}\0{batch_size}"
    if _compiled and made_for not in _compiled:
        torch.compiler.reset()
        _compiled.clear()
    _compiled.add(made_for)
    try:
        networks.compiled = [_compile(member) for member in networks.members]
    except RuntimeError as problem:
        warn(f"torch.compile is not available ({str(problem).splitlines()[0]}); training without it.")


def _compile(network: nn.Module) -> Callable[[Tensor], Tensor]:
    compiled: Callable[[Tensor], Tensor] = torch.compile(network, dynamic=False, options=LEFT_OUT)

    def forward(x: Tensor) -> Tensor:
        with torch._dynamo.config.patch(recompile_limit=SHAPES):
            return compiled(x)

    return forward


def keep_compiled_code() -> None:
    """Let torch keep compiled code in our cache folder instead of a temporary one, unless the user has chosen.

    As soon as an optimizer is made, torch sets the variable to its temporary folder: that is nobody's choice.
    """
    chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    temporary = os.path.abspath(os.path.join(tempfile.gettempdir(), "torchinductor_"))
    if chosen is not None and not chosen.startswith(temporary):
        return
    folder = cache_folder() / "compiled"
    with contextlib.suppress(OSError):  # without a writable cache torch uses its own folder
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Compiling makes millions of objects that stay: to search them for garbage took 8 % of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
