"""``MODEL_CARD.md`` of a run: what it is for, what it was made from, how good it is, what it cannot
do; and the folder in which a run is handed over.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from srjt.data.images.feed import Samples
from srjt.errors import Option, SrjtError
from srjt.files import explain_write_errors, is_foreign, write_atomically, write_json
from srjt.inference.calibrated_run import RunLike, open_run
from srjt.inference.evaluate import Evaluation, evaluate_sides
from srjt.inference.export import OUTPUTS, Exported, export_file
from srjt.inference.options import Answering
from srjt.methods.table import OURS
from srjt.ordinal import Purpose
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.metrics import MAIN, METRICS
from srjt.reports.aspects.grading import grade_in_words
from srjt.reports.checklist import paper_of, run_facts
from srjt.reports.page import Page, Section, markdown
from srjt.reports.pages import evaluation
from srjt.reports.pages.run import stored_sides
from srjt.reports.sections import source_name
from srjt.training.folder import read_facts
from srjt.training.trained import Trained

# The layout and the metadata are those of Hugging Face's model cards, so that a folder can be
# published as it is.

FILE = "MODEL_CARD.md"
USE = (
    "Research on the severity of what the training samples show. The model is not a medical device,"
    " and nothing here shows that it is fit for use on patients. It holds for samples like those"
    " below, graded by the same rules."
)

# of the checklist
MODEL_FACTS = "grades model training software"
DATA_FACTS = "source sha256 flow disjoint counts noise"


def limits_of(evaluated: Evaluation | None, *, held_out: bool) -> Iterator[str]:
    """What the model cannot do, or nobody knows. held_out: whether some samples were."""
    yield "Samples from other devices, places or populations may be graded differently; not tested."
    if not held_out:
        yield "All samples were used for training: the performance on new ones is not known."
    if held_out and evaluated is None:
        yield "The predictions for the held-out samples are not available to this card."
    if evaluated is not None and not evaluated.by_patient:
        yield "There are no patient ids: images of one patient may be on both sides of the split."
    if evaluated is not None and evaluated.side == "validation":
        yield "There is no test side: the numbers are those of the validation side."


def write_model_card(folder: Path, *, sides: Mapping[str, Evaluation] | None = None) -> Path:
    """Write the card of a finished run beside it. sides: as for ``model_card``."""
    path = folder / FILE
    with explain_write_errors(f"The model card cannot be written to {path}"):
        write_atomically(path, model_card(folder, sides=sides).encode("utf-8", "replace"))
    return path


def model_card(
    folder: Path, *, sides: Mapping[str, Evaluation] | None = None, usage: str = ""
) -> str:
    """The card of a finished run, as Markdown.

    sides: its held-out sides, if they are evaluated already. usage: how to use it as an ONNX model.
    """
    facts = read_facts(folder)
    name = folder.resolve().name
    if sides is None:
        sides = stored_sides(folder, facts.grades)
    evaluated = sides.get("test") or sides.get("validation")
    known = run_facts(folder, facts)
    features = facts.data.are_features
    sizes = facts.data.samples
    held_out = bool(sizes.get("test") or sizes.get("validation"))
    task = "tabular-classification" if features else "image-classification"
    tags = ["ordinal-classification", "label-noise", facts.config.method]
    if usage:
        tags.append("onnx")
    metadata: dict[str, Any] = {"library_name": "srjt", "pipeline_tag": task, "tags": tags}
    performance = ["Not known: see the limits."]
    tables = []
    if evaluated is not None:
        warnings, remarks = evaluation.evaluation_notes(evaluated)
        tables = [evaluation.scores_table(evaluated), evaluation.by_grade_table(evaluated)]
        performance = [". ".join(evaluation.judgement(evaluated)), " ".join([*warnings, *remarks])]
        scores = []
        for metric in MAIN:
            score = evaluated.intervals[metric].value
            if math.isfinite(score):
                name_of_metric = METRICS[metric].long_name
                scores.append({"type": metric, "name": name_of_metric, "value": round(score, 4)})
        result = {
            "task": {"type": task},
            "dataset": {"name": source_name(facts) or "not recorded", "type": "private"},
            "metrics": scores,
        }
        metadata["model-index"] = [{"name": name, "results": [result]}]
    paper = paper_of(facts.config.method)
    cited = "The software: srjt, see its CITATION.cff."
    if paper == OURS:
        cited = f"The method: Self-Relaxed Joint Training, {paper}. {cited}"
    elif paper:
        cited = f"The method: {paper}. {cited}"
    page = Page(
        kind="Model card",
        title=name,
        lead=known.paragraph(MODEL_FACTS),
        sections=[
            Section("use", "Intended use", text=[USE]),
            Section("data", "Training data", text=[known.paragraph(DATA_FACTS)]),
            Section("performance", "Performance", text=performance, tables=tables),
            Section("limits", "Limits", text=list(limits_of(evaluated, held_out=held_out))),
            Section("cite", "How to cite", text=[cited]),
        ],
    )
    if not usage:
        samples = "FEATURES" if features else "IMAGES"
        predict = f"srjt predict {name} {samples} --out predictions.csv"
        usage = f"```bash\n{predict}\nsrjt export {name} --out model.onnx\n```"
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{markdown(page)}\n## How to use it\n\n{usage}\n"


# A run as a folder to send: model, card, configuration and a script that needs no srjt.

MODEL = "model.onnx"
CONFIG = "config.json"
SCRIPT = "predict.py"
NEEDS = "requirements.txt"
IMAGE = (
    "RGB, upright by EXIF, on black where it is transparent, resized bilinearly with antialiasing"
    " (Pillow)"
)
REQUIREMENTS = "numpy>=1.26\nonnxruntime>=1.20\npillow>=10\n"


def export_folder(
    run: RunLike,
    folder: str | os.PathLike[str],
    *,
    samples: Samples | None = None,
    target_metric: Purpose | None = None,
    decoding: Decoding | None = None,
    recalibrate: bool = True,
    overwrite: bool = False,
) -> Exported:
    """Write a run as a folder: ``model.onnx``, ``MODEL_CARD.md``, ``config.json``, ``predict.py``;
    see ``srjt.export``. The card describes the run with the options."""
    target = Path(folder)
    opened = open_run(run)
    if opened.folder is None:
        raise SrjtError(
            "A model card needs the folder of a run. Train with out=….", code="unsupported"
        )
    if target.exists() and not target.is_dir():
        raise SrjtError(
            f"{target} is a file, not a folder: choose another name.", code="wrong_file"
        )
    with explain_write_errors(f"{target} cannot be written"):
        target.mkdir(parents=True, exist_ok=True)
        filled = any(map(is_foreign, target.iterdir()))
    if filled and not overwrite:
        raise SrjtError(
            f"{target} is not empty: choose another folder, or pass ",
            Option("overwrite", True),
            " to write there.",
            code="folder_in_use",
        )
    written = export_file(
        opened,
        target / MODEL,
        format="onnx",
        samples=samples,
        target_metric=target_metric,
        decoding=decoding,
        recalibrate=recalibrate,
    )
    answering = Answering(target_metric=target_metric, decoding=decoding, recalibrate=recalibrate)
    inputs = "FEATURES.npz" if len(opened.in_shape) == 1 else "IMAGES"
    usage = (
        "The folder has the model as `model.onnx`. `config.json` says what goes in and what comes"
        f" out. A grade is {grade_in_words(written.rule)}.\n\n```bash\npip install -r"
        f" {NEEDS}\npython {SCRIPT} {inputs} > predictions.csv\n```"
    )
    card = model_card(opened.folder, sides=evaluate_sides(opened, answering), usage=usage)
    script = (resources.files("srjt.reports") / "standalone_predict.py").read_bytes()
    with explain_write_errors(f"{target} cannot be written"):
        write_atomically(target / FILE, card.encode("utf-8", "replace"))
        write_json(target / CONFIG, _config(opened, written))
        write_atomically(target / SCRIPT, script)
        write_atomically(target / NEEDS, REQUIREMENTS.encode())
    return written


def _config(run: Trained, written: Exported) -> dict[str, Any]:
    """What a program needs to know to use the model; ``predict.py`` reads it."""
    facts = written.metadata
    features = facts["input"] == "features"
    images = {"image": IMAGE, "size": run.config.image_size, "resize": run.config.resize}
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
        "preprocessing": None if features else images,
        "recalibration": facts.get("recalibration"),
        **{
            name: facts[name]
            for name in ("grade_rule", "method", "network", "networks", "config_hash", "srjt")
        },
    }
