"""``srjt.export_folder``: a run as a folder to send: model, card, configuration and a script that needs no srjt."""

from __future__ import annotations

import hashlib
import os
from importlib import resources
from pathlib import Path
from typing import Any

from srjt.data.images.augment import IMAGENET_MEAN, IMAGENET_STD
from srjt.data.images.feed import Samples
from srjt.errors import SrjtError
from srjt.files import is_foreign, write_atomically, write_json
from srjt.inference.export import Exported, export
from srjt.inference.export_module import OUTPUTS
from srjt.inference.predict import RunLike, open_run
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.purpose import Purpose
from srjt.reports.judged_sides import judge_sides
from srjt.reports.model_card import FILE, model_card
from srjt.training.trained import Trained

__all__ = ["check_export_folder", "export_folder"]

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
        sides=judge_sides(opened, optimise=optimise, decoding=decoding, recalibrate=recalibrate),
        usage=_usage(opened),
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


def _usage(run: Trained) -> str:
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
        "grade_names": dict(run.grade_names) or None,
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
