"""``MODEL_CARD.md`` of a run: what it is for, what it was made from, how good it is, what it cannot do.

The layout and the metadata are those of Hugging Face's model cards, so that a folder can be published as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from srjt import methods
from srjt.data.grade_names import display_grade
from srjt.errors import SrjtError, count_of, printable
from srjt.files import write_atomically
from srjt.methods.catalogue import OURS
from srjt.reports.judged_sides import JudgedSide, judged_run
from srjt.reports.pages.provenance_section import source_name
from srjt.training.record.baselines import NAIVE
from srjt.training.record.run_folder import RunFacts, read_facts, read_summary

__all__ = ["FILE", "model_card", "write_model_card"]

FILE = "MODEL_CARD.md"
SHOWN = {
    "accuracy": "accuracy",
    "mae": "mean absolute error",
    "macro_f1": "macro-F1",
    "qwk": "quadratic weighted κ",
}


def write_model_card(folder: Path, *, sides: Mapping[str, JudgedSide] | None = None) -> Path:
    """Write the card of a finished run beside it. sides: as for ``model_card``."""
    path = folder / FILE
    try:
        write_atomically(path, model_card(folder, sides=sides).encode("utf-8", "replace"), follow_links=False)
    except OSError as problem:
        raise SrjtError(f"The model card cannot be written to {path}: {problem.strerror}.") from None
    return path


def model_card(
    folder: Path,
    *,
    sides: Mapping[str, JudgedSide] | None = None,
    usage: str | None = None,
    tags: Sequence[str] = (),
) -> str:
    """The card of a finished run, as Markdown.

    sides: its held-out sides, if they are judged already. usage: how to use the model, if not by srjt. tags: further
    ones for the metadata.
    """
    facts = read_facts(folder)
    if sides is None:
        sides = _judged_sides(folder)
    judged = sides.get("test") or sides.get("validation")
    metadata = _metadata(folder, facts, judged, tags=tags)
    parts = [
        f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---",
        f"# {_escaped(folder.resolve().name)}",
        _description(facts, epochs=int(read_summary(folder).get("epochs", facts.config.epochs))),
        "## Intended use",
        "Research on the severity of what the training samples show. The model is not a medical device, and nothing "
        "here shows that it is fit for use on patients. Its grades and probabilities hold for samples like those "
        "below, graded by the same rules.",
        "## Training data",
        _data(facts),
        "## Label noise",
        _noise(facts),
        "## Performance",
        *([_no_performance(facts)] if judged is None else _performance(facts, judged)),
        "## Limits",
        _limits(facts, judged),
        "## How to use it",
        _usage(folder, facts) if usage is None else usage,
        "## How to cite",
        _citation(facts.config.method),
    ]
    return "\n\n".join(parts) + "\n"


def _judged_sides(folder: Path) -> dict[str, JudgedSide]:
    try:
        found = judged_run(folder)
    except (
        SrjtError
    ):  # a network of your own, or a method that is not installed: the folder alone does not tell it
        found = None
    return {} if found is None else found[1]


def _metadata(
    folder: Path, facts: RunFacts, judged: JudgedSide | None, *, tags: Sequence[str]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "library_name": "srjt",
        "pipeline_tag": "tabular-classification" if _features(facts) else "image-classification",
        "tags": ["ordinal-classification", "label-noise", facts.config.method, *tags],
    }
    if judged is not None:
        metadata["model-index"] = [
            {
                "name": folder.resolve().name,
                "results": [
                    {
                        "task": {"type": metadata["pipeline_tag"]},
                        "dataset": {"name": source_name(facts) or "not recorded", "type": "private"},
                        "metrics": [
                            {"type": name, "name": title, "value": round(judged.intervals[name].value, 4)}
                            for name, title in SHOWN.items()
                            if math.isfinite(judged.intervals[name].value)
                        ],
                    }
                ],
            }
        ]
    return metadata


def _features(facts: RunFacts) -> bool:
    return len(facts.data["in_shape"]) == 1


def _grades(facts: RunFacts) -> list[str]:
    return [_escaped(display_grade(grade, facts.grade_names)) for grade in facts.grades]


def _description(facts: RunFacts, *, epochs: int) -> str:
    config = facts.config
    network = "a network of the authors' own" if facts.own_network else f"`{config.network}`"
    what = "rows of features" if _features(facts) else "images"
    grades = ", ".join(_grades(facts))
    return (
        f"Grades {what} by severity: {grades}. Trained by srjt {facts.version} with the method `{config.method}` on "
        f"{network}, {count_of(epochs, 'epoch')}."
    )


def _data(facts: RunFacts) -> str:
    samples = {side: n for side, n in facts.data.get("samples", {}).items() if n}
    lines = [f"- {side} side: {count_of(n, 'sample')}" for side, n in samples.items()]
    if isinstance(facts.data.get("patients"), int):
        lines.append(f"- {count_of(facts.data['patients'], 'patient')}")
    source = facts.data.get("source")
    if isinstance(source, dict) and "path" in source:
        digest = f", SHA-256 `{source['sha256']}`" if "sha256" in source else ""
        lines.append(f"- labels from {_escaped(source_name(facts))}{digest}")
    if counts := facts.data.get("class_counts"):
        shares = ", ".join(f"{grade}: {n:,}" for grade, n in zip(_grades(facts), counts, strict=True))
        lines.append(f"- training labels: {shares}")
    return "\n".join(lines)


def _noise(facts: RunFacts) -> str:
    why = str((facts.noise or {}).get("why") or "")
    return _escaped(why) or "Nothing is recorded about wrong labels in the training data."


def _no_performance(facts: RunFacts) -> str:
    sizes = facts.data.get("samples", {})
    if sizes.get("test") or sizes.get("validation"):
        return "The predictions for the held-out samples are not available to this card."
    return "All samples were used for training: nothing is known about the performance on new samples."


def _performance(facts: RunFacts, judged: JudgedSide) -> list[str]:
    what = "true grades" if judged.true else "given labels, which may be wrong"
    units = "patients" if judged.samples.patients is not None else "samples"
    intro = (
        f"On the {count_of(len(judged.labels), 'sample')} of the {judged.name} side, compared with their {what}. A "
        f"grade is {judged.grade_rule}. The 95 % intervals resample {units}; they do not contain the variation between "
        "trainings."
    )
    scores = ["| metric | value | 95 % interval | naive |", "|---|---|---|---|"]
    for name, title in SHOWN.items():
        value, low, high = judged.intervals[name]
        naive = getattr(judged.naive, name, None)
        interval = f"{low:.3f} – {high:.3f}" if math.isfinite(low) else "–"
        scores.append(f"| {title} | {value:.3f} | {interval} | {'–' if naive is None else f'{naive:.3f}'} |")
    by_grade = ["| grade | samples | recall | precision | MAE |", "|---|---|---|---|---|"]
    for grade, (samples, *values) in zip(_grades(facts), judged.by_grade(), strict=True):
        cells = " | ".join(f"{value:.3f}" if math.isfinite(value) else "–" for value in values)
        by_grade.append(f"| {grade} | {samples:,} | {cells} |")
    return [
        intro,
        "\n".join(scores),
        *([f"N{NAIVE[1:]}."] if judged.naive is not None else []),
        "\n".join(by_grade),
    ]


def _escaped(text: str) -> str:
    """Text from elsewhere as Markdown shows it: no links, no HTML, no table cells, no lines of its own."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", printable(text).replace("&", "&amp;").replace("<", "&lt;"))


def _limits(facts: RunFacts, judged: JudgedSide | None) -> str:
    lines = [
        "- Samples from other devices, places or populations may be graded differently; this was not tested."
    ]
    if judged is None:
        lines.append(f"- {_no_performance(facts)}")
    else:
        if judged.naive_warning:
            lines.append(f"- {judged.naive_warning}")
        if not judged.true:
            lines.append(
                f"- The {judged.name} labels may be wrong themselves, so the true performance is not known."
            )
        if judged.samples.patients is None:
            lines.append(
                "- There are no patient ids: images of one patient may be on both sides of the split."
            )
        if judged.name == "validation":
            lines.append("- There is no test side: the numbers are those of the validation side.")
        rare = [grade for grade, (n, *_) in zip(_grades(facts), judged.by_grade(), strict=True) if 0 < n < 30]
        if rare:
            lines.append(f"- Fewer than 30 samples of grade {', '.join(rare)} were evaluated.")
    return "\n".join(lines)


def _citation(method: str) -> str:
    software = "The software: srjt, see its CITATION.cff."
    paper = (
        methods.lookup(method).paper if method in methods.names() else ""
    )  # a plug-in may not be installed
    if paper in ("", "baseline", "this project"):
        return software
    if paper == OURS:
        paper = f"*Self-Relaxed Joint Training*, {OURS}"
    return f"The method: {_escaped(paper)}. {software}"


def _usage(folder: Path, facts: RunFacts) -> str:
    name, samples = folder.resolve().name, "FEATURES" if _features(facts) else "IMAGES"
    return f"```bash\nsrjt predict {name} {samples} --out predictions.csv\nsrjt export {name} --out model.onnx\n```"
