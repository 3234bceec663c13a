"""What is learnt from samples that several readers graded: their consensus, or more of what they say."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from srjt.data.manifest import Manifest
from srjt.errors import SrjtError
from srjt.methods import Method
from srjt.training.config import TrainConfig
from srjt.training.engine.batches import NO_READERS, ReaderTargets

__all__ = ["reader_targets"]


def reader_targets(
    manifest: Manifest, rows: npt.NDArray[np.int64], config: TrainConfig, method: Method
) -> ReaderTargets:
    """The targets of the training rows (N,) that ``config.reader_targets`` asks for."""
    choice = config.reader_targets
    if choice == "consensus":
        return NO_READERS
    if manifest.posterior is None:
        raise SrjtError(
            f"reader_targets {choice!r} needs the grades of several readers: read the data with "
            "`several_readings='consensus'`."
        )
    posterior = torch.from_numpy(manifest.posterior[rows])
    if choice == "certainty":
        return ReaderTargets(
            certainty=posterior[torch.arange(len(rows)), torch.from_numpy(manifest.labels[rows])]
        )
    if choice == "resample":
        if "transition" in method.needs:
            raise SrjtError(
                f"{config.method} corrects the errors of labels, and grades that are drawn from the readers' "
                "probabilities are true grades: use reader_targets 'consensus', 'posterior' or 'certainty'."
            )
        return ReaderTargets(draw_from=posterior)
    if not method.takes_probabilities:
        raise SrjtError(
            f"{config.method} learns from grades, not from probabilities: use reader_targets 'consensus', or a method "
            "such as standard, sord or co-teaching+ours."
        )
    return ReaderTargets(probabilities=posterior)
