"""The files that the driver of a study and the nodes of a Ray cluster send to each other where they share no folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from srjt.files import lock_folder, write_atomically

__all__ = ["read_estimates", "read_run_files", "write_estimates", "write_run_files"]

# summary.json is last: a run with it is done
RUN_FILES = ("run.json", "metrics.csv", "history.csv", "weights.safetensors", "summary.json")
# If the run used a noise estimate; if it was trained on images; if it has a validation or test side.
OPTIONAL_FILES = ("noise.json", "image_hashes.npy", "held_out.csv")


def read_run_files(run: Path) -> dict[str, bytes]:
    """The files of a finished run, by name."""
    optional = [name for name in OPTIONAL_FILES if (run / name).exists()]
    return {name: (run / name).read_bytes() for name in (*optional, *RUN_FILES)}


def write_run_files(run: Path, files: Mapping[str, bytes]) -> None:
    """Write a finished run, ``summary.json`` last, which marks it as done. A finished run is not overwritten."""
    from srjt.training.record.run_folder import is_finished

    run.mkdir(parents=True, exist_ok=True)
    with lock_folder(run):
        if not is_finished(run):
            for name in (*OPTIONAL_FILES, *RUN_FILES):
                if name in files:
                    write_atomically(run / name, files[name], follow_links=False)


def read_estimates(folder: Path) -> dict[str, bytes]:
    """The noise estimates in a folder, by name."""
    estimates = {}
    with contextlib.suppress(FileNotFoundError):  # the last run on a node removes the folder
        for file in folder.glob("*/noise.json"):
            estimates[file.parent.name] = file.read_bytes()
    return estimates


def write_estimates(folder: Path, estimates: Mapping[str, bytes]) -> None:
    """Write those that the folder does not have."""
    for name, content in estimates.items():
        file = folder / name / "noise.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content, follow_links=False)
