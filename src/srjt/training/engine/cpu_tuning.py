"""Find the fastest way to run a network on this CPU by a short trial.

Whether oneDNN and the channels-last layout help differs by a factor of two between CPUs, in either direction. The
choice changes the last bits of a result, so it is written into the run and reused.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import platform
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from srjt.errors import SrjtError
from srjt.files import cache_folder, read_json, write_json

__all__ = ["CpuSetting", "channels_last", "fastest_setting", "use_cpu_setting", "use_threads"]

TIMED_STEPS = 3  # per setting, after one step to warm up


@dataclass(frozen=True, kw_only=True)
class CpuSetting:
    """How a network runs on a CPU."""

    channels_last: bool = False
    onednn: bool = True

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}  # in files


CANDIDATES = tuple(CpuSetting(channels_last=c, onednn=o) for o in (True, False) for c in (False, True))


@contextlib.contextmanager
def use_cpu_setting(setting: CpuSetting | None, *modules: nn.Module) -> Iterator[None]:
    """Run the body with this setting; the modules are converted to its memory layout."""
    setting = setting or CpuSetting()
    if setting.channels_last:
        for module in modules:
            channels_last(module)
    if setting.onednn:
        yield
        return
    with warnings.catch_warnings():  # torch warns about Intel GPUs when these flags are set
        warnings.simplefilter("ignore", UserWarning)
        before = torch.backends.mkldnn.set_flags(False)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(*before)


@contextlib.contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Run the body with as many threads as a run will have; None: no change."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def channels_last(module: nn.Module) -> nn.Module:
    """Convert a module's convolution weights to the channels-last layout, in place."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def fastest_setting(
    network: nn.Module, example: Tensor, *, backward: bool = True, cache: Path | None = None
) -> CpuSetting:
    """The fastest setting for training ``network`` on batches like ``example`` (B, …), or for applying it alone.

    The trial runs on a copy: it changes neither weights nor random state. Its result is cached per machine, torch
    version, number of threads, network and shape.
    """
    if example.ndim != 4:
        return CpuSetting()
    machine = (platform.node(), platform.machine(), torch.__version__, torch.get_num_threads())
    key = json.dumps([*machine, str(network), list(example.shape), *([] if backward else ["forward"])])
    name = hashlib.blake2b(key.encode(), digest_size=12).hexdigest()
    file = (cache or cache_folder()) / "cpu" / f"{name}.json"
    with contextlib.suppress(SrjtError):
        return read_json(file, CpuSetting)
    with torch.random.fork_rng(devices=[]):
        best = min(
            CANDIDATES, key=lambda setting: seconds_per_step(network, example, setting, backward=backward)
        )
    with contextlib.suppress(OSError):  # training does not depend on a writable cache
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, asdict(best))
    return best


def seconds_per_step(
    network: nn.Module, example: Tensor, setting: CpuSetting, *, backward: bool = True
) -> float:
    """The shortest time of a forward and, for training, a backward pass, measured on a copy of ``network``."""
    network = copy.deepcopy(network).train(backward)
    layout = torch.channels_last if setting.channels_last else torch.contiguous_format
    x = example.contiguous(memory_format=layout)
    best = float("inf")
    # A network that cannot run with a layout (because it uses ``view``) keeps the time inf.
    with (
        use_cpu_setting(setting, network),
        torch.inference_mode(not backward),
        contextlib.suppress(RuntimeError),
    ):
        for _ in range(1 + TIMED_STEPS):
            start = time.perf_counter()
            output = network(x)
            if backward:
                output.square().mean().backward()
            best = min(best, time.perf_counter() - start)
    return best
