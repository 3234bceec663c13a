"""The section of a run's page that says how the run was made: enough to make it again."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from srjt.reports.pages.html import Section
from srjt.reports.pages.settings import settings_section
from srjt.training.record.run_folder import RunFacts

__all__ = ["duration", "provenance_section", "source_name", "training_seconds"]


def provenance_section(facts: RunFacts, metrics: pd.DataFrame, *, unused: Collection[str]) -> Section:
    """The command, the data file with its hash, time, machine and versions, as far as the run has recorded them."""
    made, source = facts.provenance, facts.data.get("source")
    known: list[tuple[str, str]] = []
    if isinstance(source, dict) and "path" in source:
        known.append(("labels from", str(source["path"])))
        if "sha256" in source:
            known.append(("… SHA-256", str(source["sha256"])))
    known.append(("data fingerprint", str(facts.data.get("fingerprint", ""))))
    if "started" in made:
        known.append(("started", str(made["started"]).replace("T", " ").replace("+00:00", " UTC")))
    if (seconds := training_seconds(metrics)) is not None:
        known.append(("training time", duration(seconds)))
    if "device" in made:
        processes = int(made.get("processes", 1))
        known.append(("device", str(made["device"]) + (f", {processes} processes" if processes > 1 else "")))
    versions = [f"srjt {facts.version}"]
    if "python" in made:
        versions.append(f"Python {made['python']}")
    versions += [f"{name} {version}" for name, version in dict(made.get("packages") or {}).items()]
    known.append(("versions", ", ".join(versions)))
    if "system" in made:
        known.append(("system", str(made["system"])))
    return Section(
        slug="reproduce",
        heading="Reproduce",
        code=str(made.get("command") or ""),
        facts=known,
        parts=settings_section(facts.config.to_dict(), own_network=facts.own_network, unused=unused),
    )


def training_seconds(metrics: pd.DataFrame) -> float | None:
    """Seconds of all epochs, training and evaluation; None if they were not recorded."""
    seconds = metrics.loc[(metrics["split"] == "train") & (metrics["metric"] == "seconds"), "value"]
    return float(seconds.sum()) if len(seconds) else None


def duration(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def source_name(facts: RunFacts) -> str:
    """The name of the file or folder that the labels were read from; empty if it is not known."""
    source = facts.data.get("source")
    return Path(str(source["path"])).name if isinstance(source, dict) and "path" in source else ""
