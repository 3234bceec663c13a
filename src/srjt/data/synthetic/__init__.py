"""The synthetic dataset: endoscopy-like images whose true severity is known."""

from __future__ import annotations

from srjt.data.synthetic.generate import check_empty, generate, write

__all__ = ["check_empty", "generate", "write"]
