"""The fastest way to run a network on this CPU, found by a short trial.

Whether oneDNN and the channels-last layout help differs by a factor of two between CPUs, in either
direction. The choice changes the last bits of a result, so it is written into the run and reused.
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

import torch
from torch import Tensor, nn

from srjt.files import cache_folder, write_atomically

__all__ = ["CpuSetting", "applied", "channels_last", "find"]

STEPS = 3  # timed per setting, after one to warm up


@dataclass(frozen=True, kw_only=True)
class CpuSetting:
    channels_last: bool = False
    onednn: bool = True


CANDIDATES = tuple(CpuSetting(channels_last=c, onednn=o) for o in (True, False) for c in (False, True))


@contextlib.contextmanager
def applied(setting: CpuSetting | None, *modules: nn.Module) -> Iterator[None]:
    """Run the body with this setting; the modules are laid out for it."""
    setting = setting or CpuSetting()
    if setting.channels_last:
        for module in modules:
            channels_last(module)
    if setting.onednn:
        yield
        return
    with warnings.catch_warnings():  # torch speaks of Intel GPUs when its own flags are touched
        warnings.simplefilter("ignore", UserWarning)
        before = torch.backends.mkldnn.set_flags(False)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(*before)


def channels_last(module: nn.Module) -> nn.Module:
    """Lay a module's convolution weights out for channels-last images, in place."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def find(network: nn.Module, example: Tensor, *, name: str, cache: Path | None = None) -> CpuSetting:
    """The fastest setting for training ``network`` on batches like ``example`` (B, …).

    Tried on a copy, with zeros for gradients' targets: neither weights nor random state are touched.
    Remembered per machine, torch version, threads, network and shape.
    """
    if example.ndim != 4:
        return CpuSetting()
    key = _key(name, network, example)
    file = (cache or cache_folder()) / "cpu" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return CpuSetting(**json.loads(file.read_text()))
    with torch.random.fork_rng(devices=[]):
        best = min(CANDIDATES, key=lambda setting: _seconds(copy.deepcopy(network), example, setting))
    with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to stop
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(asdict(best)).encode())
    return best


def _seconds(network: nn.Module, example: Tensor, setting: CpuSetting) -> float:
    layout = torch.channels_last if setting.channels_last else torch.contiguous_format
    x = example.contiguous(memory_format=layout)
    network.train()
    best = float("inf")
    # A network that cannot take a layout (it uses ``view``) is infinitely slow in it.
    with applied(setting, network), contextlib.suppress(RuntimeError):
        for _ in range(1 + STEPS):
            began = time.perf_counter()
            network(x).square().mean().backward()
            best = min(best, time.perf_counter() - began)
    return best


def _key(name: str, network: nn.Module, example: Tensor) -> str:
    machine = (
        platform.machine(),
        platform.processor(),
        _cpu_name(),
        torch.__version__,
        torch.get_num_threads(),
    )
    text = json.dumps([*machine, name, str(network), list(example.shape)])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "cpu part")):
                return line.split(":")[-1].strip()
    return platform.node()
