"""The state of a study, and the remaining time, estimated from the finished runs."""

from __future__ import annotations

from collections.abc import Iterator

from srjt.methods import lookup
from srjt.studies.results import StudyResults

__all__ = ["problem_lines", "remaining_seconds", "status_lines"]


def remaining_seconds(results: StudyResults) -> float | None:
    """Seconds of training that remain, one run after the other; None before the first run has finished.

    A run counts as the median of the finished runs with as many networks. A run in progress counts in full.
    """
    runs = results.runs.copy()
    imports = results.facts.get("study", {}).get("train", {}).get("imports", ())
    runs["networks"] = [lookup(name, registered_by=imports).networks for name in runs["method"]]
    done = runs[runs["status"] == "done"]
    if done.empty:
        return None
    median = done.groupby("networks")["seconds"].median()
    left = runs[runs["status"].isin(["left", "running", "failed"])]
    return float(
        sum(median.get(n, median.mean() * n / median.index.to_series().mean()) for n in left["networks"])
    )


def status_lines(results: StudyResults) -> Iterator[str]:
    """What ``srjt study status`` prints."""
    runs = results.runs
    counts = runs["status"].value_counts()
    parts = [f"{counts.get(state, 0)} {state}" for state in ("done", "running", "failed", "left")]
    yield f"{len(runs)} run{'s' * (len(runs) != 1)}: {', '.join(parts)}."
    seconds = remaining_seconds(results)
    if counts.get("done", 0) < len(runs):
        if seconds is None:
            yield "No run has finished yet: the remaining time is unknown."
        else:
            parallel = max(1, int(counts.get("running", 0)))
            at_a_time = f"{parallel} run{'s' * (parallel != 1)} at a time"
            yield (
                f"About {_duration(seconds)} of training remain ({_duration(seconds / parallel)} with {at_a_time}), by "
                "the median of the finished runs with as many networks; start-up is not counted."
            )
    yield from problem_lines(results)


def problem_lines(results: StudyResults) -> Iterator[str]:
    """One line per failed run and per damaged file."""
    runs = results.runs
    for _, run in runs[runs["status"] == "failed"].iterrows():
        last = [line for line in run["error"].strip().splitlines() if line.strip()][-1:]
        yield f"failed: {run['key']}: {last[0] if last else 'no error message'}"
    yield from results.damaged


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
