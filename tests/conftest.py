"""Shared by all tests: property tests draw the same examples in every run."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("srjt", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("srjt")
