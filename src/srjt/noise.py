"""``srjt.noise`` is ``srjt.ordinal.noise``, for those who import it by this name."""

from __future__ import annotations

import sys

from srjt.ordinal import noise

sys.modules[__name__] = noise
