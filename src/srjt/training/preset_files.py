"""Presets: settings for a purpose, in the files of ``presets/``, whose headers say what they are
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from srjt.errors import unknown_name
from srjt.settings import load_config

PRESETS = ("cpu", "paper", "limuc", "dr", "demo")


def load_preset(name: str) -> dict[str, Any]:
    """The settings of a preset: those of a study, and under ``train`` those of every training."""
    settings = _read_preset(name)
    del settings["time"]
    return {**settings, "preset": name}


def preset_time(name: str) -> str:
    """How long the trainings of a preset take, as its file says."""
    return str(_read_preset(name)["time"])


def _read_preset(name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return load_config(Path(__file__).parent / "presets" / f"{name}.yaml")


def expand_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those of the preset below them, in place of its name."""
    if settings.get("preset") is None:
        return {name: value for name, value in settings.items() if name != "preset"}
    expanded = {**load_preset(str(settings["preset"]))["train"], **settings}
    del expanded["preset"]
    return expanded
