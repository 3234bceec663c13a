"""Sections that many pages share: the model, the settings, how a run was made; and small pictures
of samples."""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from srjt._version import __version__
from srjt.data.grades import Grades
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.manifest import Manifest
from srjt.data.thumbnails import data_uri, thumbnail as sample_thumbnail
from srjt.errors import count_of, duration
from srjt.networks import registry
from srjt.ordinal.intervals import Interval
from srjt.reports.page import Section
from srjt.reports.table import Table, between, data_table
from srjt.studies.results import display_name
from srjt.training.folder import DataFacts, RunFacts
from srjt.training.provenance import SourceFile, describe_provenance, describe_source
from srjt.training.trained import Trained

# The settings of a run or a study as a section of a page.

# without effect on rows of features
OF_IMAGES = ("image_size", "crop", "resize", "flip", "augment", "pretrained")


def settings_section(
    config: Mapping[str, Any], *, own_network: bool = False, features: bool = False
) -> list[Section]:
    """The settings that were given; no section if there are none."""
    shown = {name: value for name, value in config.items() if value not in (None, {}, [], ())}
    if features:
        for name in OF_IMAGES:
            shown.pop(name, None)
    row = registry.known(shown.get("backbone") or shown.get("network"))
    if own_network or "weights" in shown or (row is not None and not row.may_be_pretrained):
        shown.pop("pretrained", None)
    if own_network:
        shown["network"] = "your own"
    facts = []
    for name, value in shown.items():
        facts.append((name.replace("_", " "), _text(value)))
    if not facts:
        return []
    return [Section("settings", "Settings", facts=facts)]


def _text(value: Any) -> str:
    """A value as a reader writes it: yes or no, numbers, lists; the rows of a matrix are separated
    by semicolons."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        items = []
        for name, item in value.items():
            items.append(f"{str(name).replace('_', ' ')}: {_text(item)}")
        return ", ".join(items)
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple)) for item in value)
        separator = "; " if nested else ", "
        return separator.join(map(_text, value))
    return str(value)


def shared_patients(data: DataFacts) -> str:
    """What patients on two sides do to the scores of a run, as a sentence; "" if there are none."""
    if not data.shared_patients:
        return ""
    return (
        f"{count_of(data.shared_patients, 'patient is', 'patients are')} on more than one side of"
        " the split: scores on held-out sides are too optimistic. srjt train --fold 0 keeps each"
        " patient on one side."
    )


def counts_table(grades: Sequence[str], counts: Sequence[int], counted: str = "samples") -> Table:
    """How many samples, or what else is counted, have each grade."""
    shares = np.asarray(counts) / max(sum(counts), 1)
    frame = pd.DataFrame({"grade": grades, counted: counts, "share": shares})
    return data_table(frame, title=f"{counted} by grade".capitalize(), formats={"share": ".1%"})


# Small pictures of samples, wherever their images are.

PICTURE = 144  # pixels
IN_A_ROW = 96


def thumbnail(path: str | os.PathLike[str]) -> str:
    """The picture of an image file; "" if it cannot be read."""
    try:
        image = Image.fromarray(read_image(path))
    except (BadImageError, MemoryError):
        return ""
    image.thumbnail((PICTURE, PICTURE), Image.Resampling.LANCZOS)
    return data_uri(image)


def small(picture: str) -> str:
    """The same picture for a row of a table; "" stays ""."""
    if not picture:
        return ""
    image = Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2])))
    image.thumbnail((IN_A_ROW, IN_A_ROW), Image.Resampling.LANCZOS)
    return data_uri(image.convert("RGB"))


def pictures_of(data: Manifest | None) -> Callable[[str], str]:
    """Name of an image in ``data`` → its picture; without data the names are paths. Features have
    none."""
    if data is None:
        return thumbnail
    place = {str(image): row for row, image in enumerate(data.table["image"])}

    def picture(name: str) -> str:
        if name not in place:
            return ""
        return sample_thumbnail(data, place[name], size=PICTURE)

    return picture


# How a page about new samples, or a run, was made.

SOURCES = 5  # that are named


def run_name(run: Trained) -> str:
    """The folder's name, or the method of a run that has none."""
    if run.folder is None:
        return display_name(run.config.method)
    return run.folder.resolve().name


def run_section(
    run: Trained, *, sources: Sequence[str | os.PathLike[str]] = (), command: str | None = None
) -> Section:
    """Which run answered, and how a page about new samples was made: enough to make it again."""
    started = str(run.facts.provenance.get("started", ""))[:10]
    samples = run.facts.data.samples
    facts = [
        ("run", run_name(run)),
        ("method", display_name(run.config.method)),
        ("network", "your own" if run.facts.own_network else run.config.network_name),
        ("training samples", f"{samples.get('train', 0):,}"),
        ("trained", f"{started} by srjt {run.facts.version}".strip()),
    ]
    for source in sources[:SOURCES]:
        facts += _file_facts("data", describe_source(os.fspath(source)))
    if len(sources) > SOURCES:
        facts.append(("… and", f"{len(sources) - SOURCES:,} more"))
    return _reproduce(describe_provenance(run.device, command=command), __version__, facts)


def provenance_section(facts: RunFacts, metrics: pd.DataFrame) -> Section:
    """How a run was made, as far as it has recorded it."""
    seconds = metrics.loc[(metrics["split"] == "train") & (metrics["metric"] == "seconds"), "value"]
    labels = facts.data.labels
    settings = settings_section(
        facts.config.to_dict(), own_network=facts.own_network, features=facts.data.are_features
    )
    trained_for = ""
    if len(seconds):
        trained_for = duration(float(seconds.sum()))
    data = [
        *_file_facts("features from" if labels else "labels from", facts.data.source),
        *_file_facts("labels from", labels),
        ("data fingerprint", facts.data.fingerprint),
        ("training time", trained_for),
    ]
    return _reproduce(facts.provenance, facts.version, data, settings)


def _file_facts(term: str, source: SourceFile | None) -> list[tuple[str, str]]:
    if source is None:
        return []
    return [(term, source.path), ("… SHA-256", source.sha256)]


def _reproduce(
    made: Mapping[str, Any],
    version: str,
    data: Sequence[tuple[str, str]],
    settings: Sequence[Section] = (),
) -> Section:
    """The command, the data, when, on which device, with which versions, as far as it is
    recorded."""
    processes = int(made.get("processes", 1))
    device = str(made.get("device", ""))
    if processes > 1:
        device += f", {processes} processes"
    facts = [
        *data,
        ("when", str(made.get("started", "")).replace("T", " ").replace("+00:00", " UTC")),
        ("device", device),
        ("versions", versions(made, version)),
        ("system", str(made.get("system", ""))),
    ]
    known = [(term, value) for term, value in facts if value]
    command = str(made.get("command") or "")
    return Section("reproduce", "Reproduce", code=command, facts=known, parts=settings, closed=True)


def versions(made: Mapping[str, Any], version: str) -> str:
    """Of srjt, Python and the packages, as far as they are recorded."""
    known = {"srjt": version, "Python": made.get("python"), **(made.get("packages") or {})}
    return ", ".join(f"{name} {number}" for name, number in known.items() if number)


def source_name(facts: RunFacts) -> str:
    """The name of the file or folder that the labels were read from; empty if it is not known."""
    if facts.data.source is None:
        return ""
    return Path(facts.data.source.path).name


# Scores with their intervals.


def interval_frame(scores: Mapping[str, Interval], heading: str = "score") -> pd.DataFrame:
    """A row per score: its name, value and interval."""
    rows = [(name, score.value, between(*score[1:])) for name, score in scores.items()]
    return pd.DataFrame(rows, columns=[heading, "value", "95 % interval"])


def scores_with_intervals(scores: Mapping[str, Interval], title: str) -> Table:
    """The same as a table, with names in words."""
    named = {}
    for name, score in scores.items():
        words = name.replace("_", " ").replace("roc area", "area under the ROC curve")
        named[words] = score
    return data_table(interval_frame(named), title=title)


def interval_text(values: Mapping[str, float | None], pattern: str = ".3f") -> str:
    """ "0.310 (95 % CI 0.280 to 0.350)", of an interval as a file has it: None is not a number."""
    # None becomes nan
    value, low, high = np.array([values.get(name) for name in ("value", "low", "high")], float)
    if math.isnan(value):
        return "not defined"
    text = f"{value:{pattern}}"
    if high - low >= 1e-9:
        text += f" (95 % CI {low:{pattern}} to {high:{pattern}})"
    return text.replace("-", "−")


def named_grades(grades: Grades, places: Sequence[int]) -> str:
    """ "Grade 4 is", "Grades 3 and 4 are"; "" for none."""
    names = [grades.shown[place] for place in places]
    if len(names) < 2:
        return "".join(f"Grade {name} is" for name in names)
    return f"Grades {', '.join(names[:-1])} and {names[-1]} are"
