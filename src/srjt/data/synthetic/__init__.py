"""The synthetic dataset: endoscopy-like images whose true severity is known."""

from __future__ import annotations

from srjt.data.synthetic.generate import check_empty, generate, redraw, write
from srjt.data.synthetic.reader import read_labels

__all__ = ["check_empty", "generate", "read_labels", "redraw", "write"]
