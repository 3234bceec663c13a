"""What tests of decoding share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def colours() -> np.ndarray:
    """(4, 6, 3) uint8 without any symmetry."""
    return np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
