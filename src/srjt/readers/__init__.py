"""Several readers of the same items: how well they agree, what the true grade probably is, and what
to read next.

Nothing here knows of images, files or training.
"""

from __future__ import annotations

from srjt.readers.agreement import Agreement, agreement
from srjt.readers.consensus import Consensus, consensus
from srjt.readers.network import NetworkComparison, compare_network
from srjt.readers.next_readings import next_readings
from srjt.readers.readings import Readings

__all__ = [
    "Agreement",
    "Consensus",
    "NetworkComparison",
    "Readings",
    "agreement",
    "compare_network",
    "consensus",
    "next_readings",
]
