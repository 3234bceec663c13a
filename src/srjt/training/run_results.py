"""The files of a finished run: what its training has found, written once and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.errors import SrjtError
from srjt.files import write_atomically, write_json
from srjt.training.engine.state import weights
from srjt.training.loop import Fitted
from srjt.training.record import checkpoint
from srjt.training.record.held_out import write_held_out
from srjt.training.record.metrics_log import is_complete, last_epochs, read_metrics
from srjt.training.record.run_folder import check_files, digests, read_summary
from srjt.training.trained import Trained, load_run

__all__ = ["finished_metrics", "open_finished", "write_results"]


def write_results(folder: Path, run: Trained, *, fitted: Fitted) -> None:
    """Write the weights, the history, the predictions for the held-out sides and the summary of a run."""
    config = run.config
    final = {name: tensor.detach().cpu() for name, tensor in weights(fitted.networks).items()}
    try:
        checkpoint.write(folder / "weights.safetensors", final, {"epochs": fitted.kept_epoch})
        write_atomically(folder / "history.csv", run.history.to_csv(index=False).encode(), follow_links=False)
        write_held_out(folder, run.held_out)
        averages = last_epochs(fitted.metrics, pooled=config.convention == "published-code")
        write_json(
            folder / "summary.json",
            {
                "epochs": fitted.epochs,
                **({"kept_epoch": fitted.kept_epoch} if config.keep == "best" else {}),
                "last_epochs": averages.to_dict("records"),
                "confusion": {name: fitted.confusions[name].tolist() for name in run.held_out},
                "files": digests(folder),
            },
        )
    except OSError as problem:
        raise SrjtError(
            f"The results cannot be written to {folder} ({problem.strerror}): free some space and run the same "
            "command again; the training itself is saved in its checkpoint."
        ) from problem


def open_finished(folder: Path, **options: Any) -> Trained:
    """A finished run with its metrics and its history. options: of ``load_run``."""
    run = load_run(folder, **options)
    try:
        history = _read_history(folder / "history.csv")
    except SrjtError as problem:
        raise _restore(folder, problem) from None
    return Trained(**{**vars(run), "metrics": finished_metrics(folder), "history": history})


def finished_metrics(folder: Path) -> pd.DataFrame:
    """The metrics of a finished run, or an error if one of its files is not as the run has written it."""
    try:
        metrics = read_metrics(folder / "metrics.csv")
        summary = read_summary(folder)
        if not is_complete(metrics, summary, epochs=int(summary["epochs"])):
            raise SrjtError(f"{folder / 'metrics.csv'} does not contain all epochs of the run.")
    except SrjtError as problem:
        raise _restore(folder, problem) from None
    check_files(folder)
    return metrics


def _restore(folder: Path, problem: SrjtError) -> SrjtError:
    return SrjtError(
        f"{problem} The run in {folder} is finished: restore the file, or delete summary.json there and run the same "
        "command again."
    )


def _read_history(path: Path) -> pd.DataFrame:
    """The history as it was written. pandas' parser of decimals may err in the last bit; Python's does not."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        for name in table.columns.drop("id"):
            if name.startswith("loss_"):
                table[name] = np.array([float(cell or "nan") for cell in table[name]], dtype=np.float64)
            else:
                table[name] = np.array([int(cell) for cell in table[name]], dtype=np.int64)
    except FileNotFoundError:
        raise SrjtError(f"{path} is missing.") from None
    except (OSError, ValueError, KeyError, OverflowError) as problem:
        raise SrjtError(f"{path} is damaged or not from srjt ({problem}).") from None
    return table
