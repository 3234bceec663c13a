"""Apply a run faster on a CPU: in the layout that suits this CPU, and in bfloat16 where it is wanted.

bfloat16 has 8 significant bits. A CPU with instructions for it (AMX, AVX512-BF16) is several times as fast; without
them it is slower than float32. So a few samples are predicted both ways, and the user is told what differs.
"""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch

from srjt.data.images.feed import Samples
from srjt.errors import SrjtError, count_of, suggest
from srjt.training.engine.cpu_tuning import CpuSetting, channels_last, fastest_setting
from srjt.training.engine.devices import amp_dtype
from srjt.training.trained import Trained

__all__ = ["Precision", "check_precision", "compare_precisions", "for_this_cpu", "with_precision"]

Precision = Literal["fp32", "bf16"]
COMPARED = 16, 64  # samples that are predicted in both precisions: a twentieth, at least and at most so many
TUNING_PAYS = 500  # images from which a trial of CPU settings pays
TUNING_BATCH = 8  # images of one step in the trial


def check_precision(run: Trained, precision: str | None) -> None:
    """Raise an error for an unknown precision, or one that changes nothing."""
    if precision is not None and precision not in get_args(Precision):
        raise suggest("precision", precision, get_args(Precision))
    if precision is not None and len(run.in_shape) == 1:
        raise SrjtError("A precision is for images; this run was trained on features, which take no time.")


def for_this_cpu(run: Trained, *, images: int) -> Trained:
    """A run that was trained on a GPU, in the setting that is fastest on this CPU.

    A run that was trained on a CPU keeps its own setting, and so its bits.
    """
    tuned = run.device.type != "cpu" or run.cpu is not None or len(run.in_shape) == 1
    if tuned or images < TUNING_PAYS:
        return run
    example = torch.zeros(TUNING_BATCH, *run.in_shape)
    setting = fastest_setting(run.networks.members[0], example, backward=False)
    return _with_layout(run, setting)


def with_precision(run: Trained, precision: Precision) -> Trained:
    """The run with its forward pass in this precision."""
    config = replace(run.config, precision=precision)
    dtype = amp_dtype(config, run.device) or torch.float32
    run = replace(run, config=config, preprocess=replace(run.preprocess, dtype=dtype))
    # oneDNN's bfloat16 kernels are fastest, on some CPUs only fast, in this layout
    return _with_layout(run, CpuSetting(channels_last=True)) if precision == "bf16" else run


def compare_precisions(run: Trained, faster: Trained, pixels: Samples) -> str:
    """What a prediction by ``faster`` costs: the differences of some samples, and a warning if it is slower."""
    least, most = COMPARED
    count = min(max(least, min(most, len(pixels) // 20)), len(pixels))
    chosen = np.linspace(0, len(pixels) - 1, count).astype(int)
    some = np.ascontiguousarray(pixels[chosen])
    seconds, probabilities = [], []
    for each in (run, faster):
        each.probabilities(some[:2])  # warm
        start = time.perf_counter()
        probabilities.append(each.probabilities(some)[0].mean(axis=0))
        seconds.append(time.perf_counter() - start)
    exact, rounded = probabilities
    changed = int((exact.argmax(axis=1) != rounded.argmax(axis=1)).sum())
    sentence = (
        f"bf16: of {count_of(len(some), 'image')} predicted in fp32 too, {changed:,} "
        f"{'has' if changed == 1 else 'have'} another most likely grade, and no probability differs by more than "
        f"{np.abs(exact - rounded).max():.2g}"
    )
    if seconds[1] > seconds[0]:
        sentence += ". It is not faster than fp32 on this machine"
    return sentence


def _with_layout(run: Trained, setting: CpuSetting) -> Trained:
    """A copy of the run: the networks of the user keep their layout."""
    if run.device.type != "cpu":
        return run
    networks = copy.deepcopy(run.networks)
    if setting.channels_last:
        channels_last(networks)
    preprocess = replace(run.preprocess, channels_last=setting.channels_last)
    return replace(run, networks=networks, preprocess=preprocess, cpu=setting)
