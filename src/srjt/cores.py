"""The CPU cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["cores"]

CGROUP = Path("/sys/fs/cgroup")  # where Linux tells a container its share of the processor


def cores() -> int:
    """The CPU cores that this process may use; a scheduler or a container may allow fewer than the machine has."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _quota() -> float | None:
    """Processor seconds per second that the container gets; None without a limit."""
    try:
        try:
            microseconds, period = (CGROUP / "cpu.max").read_text().split()
        except FileNotFoundError:  # the first version of control groups
            microseconds, period = (
                (CGROUP / "cpu" / name).read_text() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            )
        quota = float(microseconds) / float(period)  # "max", or a negative number, without a limit
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return quota if quota > 0 else None
