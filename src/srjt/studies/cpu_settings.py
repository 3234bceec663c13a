"""How the runs of a study use the CPU: chosen once, before the first run, and stored in the study's folder.

The setting changes the last bits of a result. Were it left to the runs, two that start at the same time could choose
differently, and so could two nodes of a cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from srjt import networks
from srjt.errors import SrjtError
from srjt.files import read_json, write_json
from srjt.networks.backbones import takes_rows
from srjt.studies.grid import PlannedRun
from srjt.training.config import TrainConfig
from srjt.training.engine import cpu_tuning
from srjt.training.engine.cpu_tuning import CpuSetting, use_threads

__all__ = ["choose_cpu_settings", "cpu_setting"]

FILE = "cpu.json"


def choose_cpu_settings(
    folder: Path, planned_runs: Sequence[PlannedRun], *, threads: int | None = None
) -> None:
    """Find the fastest setting for every network of the planned runs that the study has none for yet."""
    settings = _read(folder)
    known = len(settings)
    with use_threads(threads):
        for planned in planned_runs:
            name = _name(planned.config)
            if name is not None and name not in settings:
                with contextlib.suppress(
                    SrjtError
                ):  # a network that cannot be built is the error of its runs
                    settings[name] = _fastest(planned.config)
    if len(settings) > known:
        write_json(folder / FILE, {name: asdict(setting) for name, setting in settings.items()})


def cpu_setting(folder: Path, config: TrainConfig) -> CpuSetting | None:
    """The study's setting for a run; None if the study has chosen none."""
    name = _name(config)
    return None if name is None else _read(folder).get(name)


def _name(config: TrainConfig) -> str | None:
    """What the choice depends on; None for runs without a choice."""
    name = str(config.network)
    known = name in networks.names() or name.startswith("timm:")
    if not config.tune_cpu or config.deterministic or not known or takes_rows(name):
        return None
    return f"{name}, crop {config.crop}, batch {config.batch_size}"


def _fastest(config: TrainConfig) -> CpuSetting:
    shape = (3, config.crop, config.crop)
    network = networks.build(
        str(config.network), head=lambda features: nn.Linear(features, 2), in_shape=shape
    )
    return cpu_tuning.fastest_setting(network, torch.zeros(config.batch_size, *shape))


def _read(folder: Path) -> dict[str, CpuSetting]:
    path = folder / FILE
    if not path.exists():
        return {}
    return read_json(
        path,
        dict[str, CpuSetting],
        advice="restore it, or delete it to have the settings chosen again",
    )
