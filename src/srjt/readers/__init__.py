"""Several readers of the same items: how well they agree, what the true grade probably is, and what to read next.

Needs numpy, scipy and pandas alone: nothing here knows of images, files or training.
"""

from __future__ import annotations

from srjt.readers.readings import Readings

__all__ = ["Readings"]
