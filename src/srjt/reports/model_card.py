"""``MODEL_CARD.md`` of a run: what it is for, what it was made from, how good it is, what it cannot do; and the
folder in which a run is handed over.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from srjt import methods
from srjt.data.images.feed import IMAGENET_MEAN, IMAGENET_STD, Samples
from srjt.errors import SrjtError, count_of, printable
from srjt.files import is_foreign, write_atomically, write_json
from srjt.inference.export import OUTPUTS, Exported, export
from srjt.inference.options import Answering
from srjt.inference.prepare import RunLike, open_run
from srjt.methods.registry import OURS
from srjt.ordinal import Purpose
from srjt.ordinal.decoding import Decoding
from srjt.reports.run_summary import JudgedSide, judge_sides, judged_run
from srjt.reports.sections import source_name
from srjt.training.folder import NAIVE, RunFacts, read_facts, read_summary
from srjt.training.trained import Trained

# ``MODEL_CARD.md`` of a run: what it is for, what it was made from, how good it is, what it cannot do.
#
# The layout and the metadata are those of Hugging Face's model cards, so that a folder can be published as
# it is.

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
    return [_escaped(grade) for grade in facts.grades.shown]


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


# ``srjt.export_folder``: a run as a folder to send: model, card, configuration and a script that needs no
# srjt.

MODEL, CONFIG, SCRIPT, NEEDS = "model.onnx", "config.json", "predict.py", "requirements.txt"
REQUIREMENTS = "numpy>=1.26\nonnxruntime>=1.20\npillow>=10\n"


def export_folder(
    run: RunLike,
    folder: str | os.PathLike[str],
    *,
    samples: Samples | None = None,
    optimise: Purpose | None = None,
    decoding: Decoding | None = None,
    recalibrate: bool = True,
    overwrite: bool = False,
) -> Exported:
    """Write a run as a folder: ``model.onnx``, ``MODEL_CARD.md``, ``config.json``, ``predict.py``.

    ``predict.py`` predicts with onnxruntime, NumPy and Pillow alone; ``requirements.txt`` lists them.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    folder : path
        The folder to write. It is written only if the model predicts what the run predicts.
    samples, optimise, decoding, recalibrate
        As for ``srjt.export``. The card describes the run with these choices.
    overwrite : bool
        Write into a folder that is not empty; files with other names stay.

    Returns
    -------
    Exported
        What was written as ``model.onnx``.

    Examples
    --------
    >>> import srjt
    >>> srjt.export_folder("runs/mine", "to_send")  # doctest: +SKIP
    """
    target, opened = Path(folder), open_run(run)
    check_export_folder(target, overwrite=overwrite)
    if opened.folder is None:
        raise SrjtError("A model card describes the folder of a run: train with out=… to have one.")
    card = model_card(
        opened.folder,
        sides=judge_sides(opened, Answering(optimise=optimise, decoding=decoding, recalibrate=recalibrate)),
        usage=_folder_usage(opened),
        tags=("onnx",),
    )
    written = export(
        opened, target / MODEL, format="onnx", samples=samples, optimise=optimise, decoding=decoding,
        recalibrate=recalibrate,
    )  # fmt: skip
    script = (resources.files("srjt.reports") / "standalone_predict.py").read_bytes()
    try:
        write_atomically(target / FILE, card.encode("utf-8", "replace"), follow_links=False)
        write_json(target / CONFIG, _config(opened, written))
        write_atomically(target / SCRIPT, script, follow_links=False)
        write_atomically(target / NEEDS, REQUIREMENTS.encode(), follow_links=False)
    except OSError as problem:
        raise SrjtError(f"{target} cannot be written: {problem.strerror or problem}.") from None
    return written


def check_export_folder(folder: Path, *, overwrite: bool = False) -> None:
    """Raise an error if the folder cannot be meant, before minutes are spent."""
    if folder.exists() and not folder.is_dir():
        raise SrjtError(f"{folder} is a file, not a folder: choose another name.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        filled = any(map(is_foreign, folder.iterdir()))
    except OSError as problem:
        raise SrjtError(f"{folder} cannot be written: {problem.strerror or problem}.") from None
    if filled and not overwrite:
        raise SrjtError(
            f"{folder} is not empty: choose another folder, or pass `overwrite=True` to write there."
        )


def _folder_usage(run: Trained) -> str:
    samples = "FEATURES.npz" if len(run.in_shape) == 1 else "IMAGES"
    return (
        "The folder has the model as `model.onnx`. `config.json` says what goes in and what comes out.\n\n"
        f"```bash\npip install -r {NEEDS}\npython {SCRIPT} {samples} > predictions.csv\n```"
    )


def _config(run: Trained, written: Exported) -> dict[str, Any]:
    """What a program needs to know to use the model; ``predict.py`` reads it."""
    facts, rule, recalibration = written.metadata, written.rule, written.recalibration
    features = facts["input"] == "features"
    return {
        "model": MODEL,
        "sha256": hashlib.sha256(written.path.read_bytes()).hexdigest(),
        "grades": list(run.grades),
        "grade_names": run.grades.names or None,
        "input": {
            "name": facts["input"],
            "type": "float32" if features else "uint8",
            "shape": ["N", *facts["input_shape"]],
        },
        "outputs": list(OUTPUTS),
        "preprocessing": None if features else _preprocessing(run),
        "decoding": {
            "inside_the_model": True,
            "rule": "own" if facts["grade_rule"] != str(rule) else rule.how,
            "thresholds": list(rule.thresholds) or None,
            "soft_labels_undone": rule.soft_labels is not None,
            "in_words": facts["grade_rule"],
        },
        "recalibration": None
        if recalibration is None
        else {
            "inside_the_model": True,
            "formula": "softmax(slope * log(p) + offsets)",
            "slope": recalibration.slope,
            "offsets": recalibration.offsets.tolist(),
            "in_words": str(recalibration),
        },
        **{name: facts[name] for name in ("method", "network", "networks", "config_hash", "srjt")},
    }


def _preprocessing(run: Trained) -> dict[str, Any]:
    return {
        "colour": "RGB",
        "orientation": "upright by EXIF",
        "transparency": "on black",
        "resize": run.config.resize,
        "interpolation": "bilinear with antialiasing (Pillow)",
        "size": run.config.image_size,
        "inside_the_model": {
            "centre_crop": run.config.crop,
            "scale": 1 / 255,
            "mean": list(IMAGENET_MEAN),
            "std": list(IMAGENET_STD),
        },
    }
