"""Which model answered, and how the page was made: sections of the pages about new samples."""

from __future__ import annotations

import os
from collections.abc import Sequence

from srjt._version import __version__
from srjt.reports.pages.html import Section
from srjt.studies.paper import display_name
from srjt.training.record.provenance import describe_provenance, describe_source
from srjt.training.trained import Trained

__all__ = ["made_section", "model_section", "run_name"]

SOURCES = 5  # that are named


def run_name(run: Trained) -> str:
    """The folder's name, or the method of a run that has none."""
    return display_name(run.config.method) if run.folder is None else run.folder.resolve().name


def model_section(run: Trained, *, grade_rule: str = "", recalibration: str = "", views: int = 1) -> Section:
    """The run, its training data, and how its probabilities become grades, unless the page says it elsewhere."""
    facts = run.facts
    known = [("run", run_name(run)), ("method", display_name(run.config.method))]
    own = facts is not None and facts.own_network
    known.append(("network", "your own" if own else str(run.config.network)))
    known.append(("networks", f"{run.method.networks}"))
    if facts is not None:
        if trained_on := (facts.data.get("samples") or {}).get("train"):
            known.append(("training samples", f"{trained_on:,}"))
        if "started" in facts.provenance:
            known.append(("trained", str(facts.provenance["started"])[:10]))
        known.append(("trained by", f"srjt {facts.version}"))
    if not grade_rule:
        return Section(slug="model", heading="Model", facts=known)
    text = [f"A grade is {grade_rule}."]
    text.append(
        f"The probabilities are recalibrated: {recalibration}."
        if recalibration
        else "The probabilities are not recalibrated."
    )
    if views > 1:
        text.append(f"They are averaged over {views} views of each image.")
    return Section(slug="model", heading="Model", text=[" ".join(text)], facts=known)


def made_section(
    run: Trained, *, sources: Sequence[str | os.PathLike[str]] = (), command: str | None = None
) -> Section:
    """The command, the data with their hashes, the time, the machine and the versions."""
    made = describe_provenance(run.device, command=command)
    known: list[tuple[str, str]] = []
    for source in sources[:SOURCES]:
        described = describe_source(os.fspath(source))
        known.append(("data", described["path"]))
        if "sha256" in described:
            known.append(("… SHA-256", described["sha256"]))
    if len(sources) > SOURCES:
        known.append(("… and", f"{len(sources) - SOURCES:,} more"))
    packages = ", ".join(f"{name} {version}" for name, version in made["packages"].items())
    known += [
        ("written", str(made["started"]).replace("T", " ").replace("+00:00", " UTC")),
        ("device", str(made["device"])),
        ("versions", f"srjt {__version__}, Python {made['python']}, {packages}"),
        ("system", str(made["system"])),
    ]
    return Section(slug="reproduce", heading="Reproduce", code=command or "", facts=known)
