"""``srjt.export``: a trained model as one file for deployment, written only if it predicts what the
run predicts.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from srjt._version import __version__
from srjt.data.images.decode import resized
from srjt.data.images.feed import Samples
from srjt.data.options import without_none
from srjt.data.synthetic import generate
from srjt.errors import SrjtError, missing_extra, reason_of, unknown_name
from srjt.files import write_output
from srjt.inference.calibrated_run import CalibratedRun, RunLike, calibrate_run, open_run
from srjt.inference.options import Answering
from srjt.json_values import json_values
from srjt.networks import IMAGENET_MEAN, IMAGENET_STD, Standardise
from srjt.ordinal import Purpose
from srjt.ordinal.calibration import FLOOR, Recalibration
from srjt.ordinal.decoding import Decoding, GradeRule, expected_grade, undo_soft_labels
from srjt.process import import_quietly
from srjt.training.config import TrainConfig
from srjt.training.devices import StackedNetworks
from srjt.training.trained import Trained

# A trained model as one self-contained module: samples in, probabilities out.

OUTPUTS = ("probabilities", "grade", "severity")


def on_cpu(run: Trained) -> Trained:
    """The same model on the CPU in float32: the reference for an exported file."""
    networks = run.networks
    copied = (
        copy.deepcopy(StackedNetworks(list(networks.members), trunk=networks.trunk)).cpu().float()
    )
    copied.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return replace(
        run,
        networks=copied.eval(),
        method=run.method.to("cpu"),
        config=run.config.replace(precision="fp32"),
        preprocess=replace(run.preprocess, dtype=torch.float32, channels_last=False),
        device=torch.device("cpu"),
    )


class ExportModule(nn.Module):
    """uint8 RGB images (N, H, W, 3) of the stored size, or float32 features (N, F) →

    probabilities (N, C): the mean over the networks of the method's own probabilities, recalibrated
    if that is given; grade (N,) int64: by the rule of the run (``grade_rule``); severity (N,): the
    expected grade.
    """

    def __init__(self, calibrated: CalibratedRun) -> None:
        super().__init__()
        run = calibrated.run
        recalibration = calibrated.recalibration
        if run.preprocess.eval_transform is not None:
            raise SrjtError(
                "Your own eval_transform cannot be exported: export a run without one, and apply"
                " the transform before the exported network.",
                code="unsupported",
            )
        self.networks = run.networks
        self.method = run.method
        self.rule = calibrated.grade_rule
        margin = (run.config.image_size - run.config.crop) // 2
        self.centre = slice(margin, margin + run.config.crop)
        mean = torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
        std = torch.tensor(IMAGENET_STD).view(3, 1, 1)
        self.scale = nn.Buffer(1 / (255 * std))
        self.shift = nn.Buffer(-mean / std)
        self.recalibrates = recalibration is not None
        if recalibration is not None:
            self.slope = recalibration.slope
            self.offsets = nn.Buffer(torch.tensor(recalibration.offsets, dtype=torch.float32))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = samples
        if (
            samples.ndim == 4
        ):  # the centre crop, as in evaluation: (N, H, W, 3) uint8 → (N, 3, crop, crop)
            x = samples[:, self.centre, self.centre].permute(0, 3, 1, 2).to(torch.float32)
            x = x * self.scale + self.shift
        logits = self.networks(x)
        probabilities = self.method.probabilities(logits).mean(dim=0)
        if self.recalibrates:
            log_p = probabilities.clamp(min=FLOOR).log()
            probabilities = torch.softmax(self.slope * log_p + self.offsets, dim=-1)
        if self.rule.method:
            grade = self.method.grades(logits)[0]
        else:
            grade = self.rule.grades(probabilities)
        return probabilities, grade, expected_grade(probabilities)


# ``srjt.export``: one file for deployment, written only if it predicts what the run predicts.

Format = Literal["onnx", "torch.export"]
SUFFIXES: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch.export"}

TOLERANCE = 1e-4  # largest difference from the probabilities of the run
OPSET = 18  # supported by the runtimes of the last years
CHUNK = 64  # samples that are checked at a time

Outputs: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of ``srjt.export``.

    Attributes
    ----------
    path : Path
        The written file.
    format : {"onnx", "torch.export"}
        Its format.
    input : str
        Name, type and shape of its input.
    metadata : dict
        What the file contains about itself: grades, input shape, method, network, what a grade is,
        version, configuration hash.
    checked : int
        Number of samples that it was checked with.
    difference : float
        Largest difference between its probabilities and the run's, at most 1e-4.
    rule : GradeRule
        How its probabilities become grades.
    recalibration : Recalibration or None
        How its probabilities are recalibrated, if they are.
    """

    path: Path
    format: Format
    input: str
    metadata: dict[str, Any]
    checked: int
    difference: float
    rule: GradeRule
    recalibration: Recalibration | None = None


def export_file(
    run: RunLike,
    path: str | Path,
    *,
    format: str | None = None,
    samples: Samples | None = None,
    target_metric: Purpose | None = None,
    decoding: Decoding | None = None,
    recalibrate: bool = True,
) -> Exported:
    """Write a run as one file; see ``srjt.export``.

    The input of the file is ``images``, uint8 (N, H, W, 3) RGB of the run's image size, or
    ``features``, float32 (N, F). The outputs are ``probabilities`` (N, C), ``grade`` (N,) int64 and
    ``severity`` (N,) float. N is dynamic.
    """
    target = Path(path)
    file_format = resolve_format(target, format)
    run = open_run(run)
    config = run.config
    run = on_cpu(run)
    checked = _synthetic_samples(run) if samples is None else _checked_samples(run, samples)
    calibrated = calibrate_run(
        run, Answering(target_metric=target_metric, decoding=decoding, recalibrate=recalibrate)
    )
    metadata = _metadata(calibrated, checked, config)
    module = ExportModule(calibrated).eval()
    with _quiet(), torch.no_grad():
        try:
            # two samples: the exporters treat a batch size of one as a constant
            example = torch.from_numpy(np.resize(checked, (2, *checked.shape[1:])))
            content = _WRITERS[file_format](module, example, metadata)
        except SrjtError:
            raise
        except Exception as problem:  # the exporters raise many types
            (other,) = [name for name in get_args(Format) if name != file_format]
            raise SrjtError(
                f"This network cannot be written as {file_format} ({reason_of(problem)}): try the"
                f" format {other}.",
                code="unsupported",
            ) from problem
        difference = _compare(_READERS[file_format](content), calibrated, checked)
    write_output(target, content)
    return Exported(
        path=target,
        format=file_format,
        input=(
            f"{_input_name(checked)} {checked.dtype}"
            f" ({', '.join(['N', *map(str, checked.shape[1:])])})"
        ),
        metadata=metadata,
        checked=len(checked),
        difference=difference,
        rule=calibrated.grade_rule,
        recalibration=calibrated.recalibration,
    )


def resolve_format(path: Path, format: str | None) -> Format:
    """The requested format, or the one of the file's suffix."""
    if format is not None and format not in get_args(Format):
        raise unknown_name("format", format, get_args(Format))
    if (chosen := format or SUFFIXES.get(path.suffix.lower())) is None:
        raise SrjtError(
            f"The format of {path.name} is not clear from its name: use the suffix"
            f" {' or '.join(SUFFIXES)}.",
            code="wrong_file",
            option="out",
        )
    return chosen  # type: ignore[return-value]


def config_hash(config: TrainConfig) -> str:
    """16 hexadecimal digits of the settings that determine the result: equal for equal
    trainings."""
    return hashlib.sha256(json.dumps(config.determining(), sort_keys=True).encode()).hexdigest()[
        :16
    ]


def _metadata(calibrated: CalibratedRun, samples: Samples, config: TrainConfig) -> dict[str, Any]:
    run = calibrated.run
    facts: dict[str, Any] = {
        "srjt": __version__,
        "grades": list(run.grades),
        "input": _input_name(samples),
        "input_shape": list(samples.shape[1:]),
        "method": config.method,
        "network": config.network_name,
        "networks": run.method.networks,
        "grade_names": list(run.grades.names.values()) or None,
        "feature_names": list(run.feature_names) or None,
        "resize": config.resize,
        "crop": config.crop,
        "grade_rule": json_values(calibrated.grade_rule),
        "config_hash": config_hash(config),
        "recalibration": json_values(calibrated.recalibration),
    }
    if samples.ndim == 2:
        del facts["resize"], facts["crop"]
    return without_none(facts)


# ---------------------------------------------------------------------- check


def _input_name(samples: Samples | Tensor) -> str:
    return "features" if samples.ndim == 2 else "images"


def _synthetic_samples(run: Trained) -> Samples:
    if len(run.in_shape) == 1:
        drawn = np.random.default_rng(0).standard_normal((64, *run.in_shape)).astype(np.float32)
        for module in run.networks.modules():
            if isinstance(module, Standardise):
                drawn = drawn * module.scale.numpy() + module.mean.numpy()
                break
        return drawn
    size = run.config.image_size
    images = generate(
        images=8, patients=4, size=min(max(size, 32), 256)
    ).arrays  # sizes that can be drawn
    assert images is not None
    pictures = []
    for image in images:
        picture = Image.fromarray(image.astype(np.uint8, copy=False))
        pictures.append(np.asarray(resized(picture, size=size, resize="squash")))
    return np.stack(pictures)


def _checked_samples(run: Trained, samples: Samples) -> Samples:
    """The samples, or an error that says which type and shape the file takes."""
    size = run.config.image_size
    shape: tuple[int, ...] = (size, size, 3)
    dtype = "uint8"
    if len(run.in_shape) != 3:
        shape = run.in_shape
        dtype = "float32"
    if samples.shape[1:] != shape or samples.dtype != dtype or len(samples) == 0:
        raise SrjtError(
            f"The check of this run takes samples of {dtype} (N, {', '.join(map(str, shape))}), not"
            f" {samples.dtype} {samples.shape}.",
            code="wrong_shape",
        )
    return samples


def _compare(
    exported: Callable[[Samples], Outputs], calibrated: CalibratedRun, samples: Samples
) -> float:
    """The largest difference between the file's probabilities and the run's; an error if it is too
    large."""
    largest = 0.0
    classes = len(calibrated.run.grades)
    # a single sample, then many: a file with a fixed batch size does not pass
    for part in [slice(0, 1), *(slice(at, at + CHUNK) for at in range(0, len(samples), CHUNK))]:
        outputs = calibrated.run.probabilities(samples[part])
        answers = calibrated.answer(outputs, np.zeros(len(outputs[1][0]), np.int64), None)
        expected = answers.probabilities
        probabilities, grade, severity = exported(samples[part])
        difference = np.abs(probabilities - expected).max()
        off = np.abs(severity - expected @ np.arange(classes)).max() / classes
        equal = grade == answers.grades
        same = (equal | _borderline(expected, calibrated.grade_rule)).all()
        if not (
            max(difference, off) <= TOLERANCE and same
        ):  # "not", because comparisons with NaN are false
            raise SrjtError(
                "The exported network does not predict what the run predicts (probabilities differ"
                f" by {max(difference, off):.1e}, {int((~equal).sum())} of {len(equal)} grades):"
                " nothing was written.",
                code="unsupported",
            )
        largest = max(largest, float(difference))
    return largest


def _borderline(probabilities: npt.NDArray[np.float64], rule: GradeRule) -> npt.NDArray[np.bool_]:
    """(N, C) → (N,): where rounding decides the grade."""
    if rule.decoding == "thresholds":
        cuts = np.array(rule.thresholds)
        to_threshold = np.abs((probabilities @ np.arange(len(cuts) + 1))[:, None] - cuts).min(
            axis=1
        )
        return np.asarray(to_threshold < 10 * TOLERANCE)
    if rule.soft_labels is not None:
        probabilities = undo_soft_labels(torch.from_numpy(probabilities), rule.soft_labels).numpy()
    second, first = np.sort(probabilities, axis=1)[:, -2:].T
    to_half = np.abs(probabilities.cumsum(axis=1) - 0.5).min(axis=1)
    return np.asarray((first - second < 10 * TOLERANCE) | (to_half < 10 * TOLERANCE))


# ---------------------------------------------------------------------- formats


def _write_onnx(module: nn.Module, example: Tensor, metadata: dict[str, Any]) -> bytes:
    onnx = _import("onnx")
    _import("onnxscript")  # used by torch's exporter
    _import("onnxruntime")  # used by the check; imported before minutes are spent
    # dynamo=False would use TorchScript, which is deprecated and cannot pool to sizes that are not
    # divisors.
    program = torch.onnx.export(
        module,
        (example,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("N")},),
        input_names=[_input_name(example)],
        output_names=list(OUTPUTS),
        opset_version=OPSET,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    # ONNX metadata are strings: lists and numbers as JSON
    texts = {}
    for name, value in metadata.items():
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False)
        texts[name] = value
    onnx.helper.set_model_props(proto, texts)
    content: bytes = proto.SerializeToString()
    return content


def _read_onnx(content: bytes) -> Callable[[Samples], Outputs]:
    session = _import("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda samples: tuple(session.run(list(OUTPUTS), {name: samples}))


def _write_exported(module: nn.Module, example: Tensor, metadata: dict[str, Any]) -> bytes:
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("N")},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"srjt.json": json.dumps(metadata)})
    return buffer.getvalue()


def _read_exported(content: bytes) -> Callable[[Samples], Outputs]:
    module = torch.export.load(io.BytesIO(content)).module()
    return lambda samples: tuple(output.numpy() for output in module(torch.from_numpy(samples)))


_WRITERS = {"onnx": _write_onnx, "torch.export": _write_exported}
_READERS = {"onnx": _read_onnx, "torch.export": _read_exported}


def _import(package: str) -> Any:
    try:
        return import_quietly(package)
    except ModuleNotFoundError:
        raise missing_extra(package, "onnx", "Writing ONNX") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the messages and warnings of the exporters: what they write is checked."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
