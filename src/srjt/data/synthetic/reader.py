"""A simulated reader, whose labels err as those of people do: by one grade, near a boundary, more often to one side."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from srjt.data.manifest import Manifest
from srjt.data.synthetic.generate import stream
from srjt.data.synthetic.primitives import bell
from srjt.errors import SrjtError

__all__ = ["read_labels"]

_READER = 3  # a random stream beside those of ``generate``

# As in published readings: a third of the labels differs from the truth, 95 of 100 of these by one grade, and more of
# them are too mild than too severe.
BIAS, SPREAD = -0.3, 0.6


def read_labels(
    manifest: Manifest, *, bias: float = BIAS, spread: float = SPREAD, seed: int = 0
) -> npt.NDArray[np.int64]:
    """The grades that one reader gives to synthetic images.

    The reader sees the severity of an image with an error, and says the grade of what is seen. So an image near the
    boundary between two grades is read wrong more often than one in the middle, and hardly ever by two grades.

    Parameters
    ----------
    manifest : Manifest
        A dataset from ``generate``.
    bias : float
        Mean error in grades; below 0: the reader is too mild.
    spread : float
        Standard deviation of the error in grades.
    seed : int
        Seed of the errors. The label of an image does not depend on the other images.

    Returns
    -------
    ndarray of int64, shape (N,)

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> labels = srjt.data.synthetic.read_labels(data)
    >>> noisy = data.with_noisy_labels(labels)
    """
    if "severity" not in manifest.table:
        raise SrjtError(
            "A simulated reader needs the severity of each image: use data from synthetic.generate."
        )
    if spread < 0:
        raise SrjtError(f"The spread of a reader is 0 or larger, not {spread:g}.")
    errors = np.array([bias + spread * bell(stream(seed, _READER, row)) for row in range(len(manifest))])
    seen = np.floor(manifest.table["severity"].to_numpy(np.float64) + errors)
    return np.asarray(np.clip(seen, 0, manifest.num_classes - 1), dtype=np.int64)
