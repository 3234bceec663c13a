"""How far a study is, and how long the rest will take: from the runs that are done, not from hope."""

from __future__ import annotations

from collections.abc import Iterator

from srjt.methods import lookup
from srjt.studies.results import StudyResults

__all__ = ["remaining_seconds", "status_lines"]


def remaining_seconds(results: StudyResults) -> float | None:
    """The work that is left if run one after the other, in seconds; None before anything is done.

    A run takes as long as the median of done runs with as many networks; one under way counts in full.
    """
    runs = results.runs.copy()
    imports = results.facts["study"]["train"].get("imports", ())
    runs["networks"] = [lookup(name, registered_by=imports).networks for name in runs["method"]]
    done = runs[runs["status"] == "done"]
    if done.empty:
        return None
    typical = done.groupby("networks")["seconds"].median()
    left = runs[runs["status"].isin(["left", "running", "failed"])]
    return float(
        sum(typical.get(n, typical.mean() * n / typical.index.to_series().mean()) for n in left["networks"])
    )


def status_lines(results: StudyResults) -> Iterator[str]:
    runs = results.runs
    counts = runs["status"].value_counts()
    parts = [f"{counts.get(state, 0)} {state}" for state in ("done", "running", "failed", "left")]
    yield f"{len(runs)} runs: {', '.join(parts)}."
    seconds = remaining_seconds(results)
    if counts.get("done", 0) < len(runs):
        if seconds is None:
            yield "No run is done yet: there is nothing to estimate from."
        else:
            parallel = max(1, int(counts.get("running", 0)))
            yield (
                f"About {_span(seconds)} of work is left ({_span(seconds / parallel)} with {parallel} at a time), by "
                "the median of the done runs with as many networks; start-up is not counted."
            )
    for _, run in runs[runs["status"] == "failed"].iterrows():
        last = [line for line in run["error"].strip().splitlines() if line.strip()][-1:]
        yield f"failed: {run['key']}: {last[0] if last else 'no word was left'}"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
