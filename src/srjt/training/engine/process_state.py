"""What a training may change in its process: restored after each one, so that the next starts as in a fresh process."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

__all__ = ["preserve_process_state", "release_memory"]

Accessors: TypeAlias = tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...]  # (read, write)

RANDOM_STATES: Accessors = (
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (torch.get_rng_state, torch.set_rng_state),
)
SETTINGS: Accessors = (
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
)
FLAGS: tuple[tuple[Any, str], ...] = (
    (torch.backends.cudnn, "enabled"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.mkldnn, "enabled"),
)


@contextlib.contextmanager
def preserve_process_state() -> Iterator[None]:
    """Restore random states, torch's settings, environment variables, the working folder and filters of warnings."""
    states = [read() for read, _ in RANDOM_STATES]
    settings = [read() for read, _ in SETTINGS]
    flags = [getattr(owner, name) for owner, name in FLAGS]
    environment, seed, folder = dict(os.environ), torch.initial_seed(), None
    with contextlib.suppress(OSError):  # it may have been deleted
        folder = Path.cwd()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for (_, write), state in zip(RANDOM_STATES, states, strict=True):
            write(state)
        for (read, write), setting in zip(SETTINGS, settings, strict=True):
            if read() != setting:
                write(setting)
        for (owner, name), flag in zip(FLAGS, flags, strict=True):
            if getattr(owner, name) != flag:
                setattr(owner, name, flag)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        with contextlib.suppress(OSError):
            os.chdir(folder or os.curdir)


def release_memory() -> None:
    """Free what a training held and nobody refers to any more; its peak of memory is not that of the next one."""
    gc.collect()
    if torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):  # the training may have crashed the GPU, and says so itself
            torch.cuda.empty_cache()
    with contextlib.suppress(OSError):  # Linux only
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
