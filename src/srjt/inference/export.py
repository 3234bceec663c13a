"""One file for deployment, written only after it has answered as the run itself does."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from srjt._version import __version__
from srjt.data.images.feed import Samples
from srjt.data.synthetic import generate
from srjt.errors import SrjtError, missing_extra, suggest
from srjt.files import write_atomically
from srjt.inference.export_module import OUTPUTS, ExportModule, on_cpu
from srjt.inference.predict import predictions
from srjt.networks.small import Standardise
from srjt.training.config import COMPUTE_ONLY, TrainConfig
from srjt.training.trained import Trained

__all__ = ["Exported", "Format", "config_hash", "export", "resolve_format"]

Format = Literal["onnx", "torch.export", "torchscript"]
SUFFIXES: dict[str, Format] = {
    ".onnx": "onnx",
    ".pt2": "torch.export",
    ".pt": "torchscript",
    ".ts": "torchscript",
}

TOLERANCE = 1e-4  # how far probabilities may lie from the run's own
OPSET = 18  # what runtimes of the last years read
CHUNK = 64  # samples that are checked at a time

Answers: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written, and how far its probabilities lie from the run's own."""

    path: Path
    format: Format
    input: str
    metadata: dict[str, Any]
    checked: int  # samples
    difference: float  # the largest, at most TOLERANCE


def export(
    run: Trained, path: str | Path, *, format: Format | None = None, samples: Samples | None = None
) -> Exported:
    """Write ``run`` as one file: preprocessing (without resizing), all networks, probabilities, grade, severity.

    Input: ``images``, uint8 (N, H, W, 3) RGB of the run's image size, or ``features``, float32 (N, F).
    Outputs: ``probabilities`` (N, C), ``grade`` (N,) int64, ``severity`` (N,) float. N is free.

    format: by the suffix of ``path`` unless given (.onnx; .pt2: torch.export; .pt: TorchScript).
    samples: what the file is checked with before it is written, in the shape of the input; by default a few
    synthetic images, or random features. A file whose probabilities differ from those of ``run`` by more than
    1e-4 is not written.
    """
    target = Path(path)
    chosen = resolve_format(target, format)
    config, run = run.config, on_cpu(run)
    given = _examples(run) if samples is None else _checked(run, samples)
    metadata = {**_metadata(run, given), "config_hash": config_hash(config)}
    module = ExportModule(run).eval()
    with _quiet(), torch.no_grad():
        try:
            content = _WRITERS[chosen](module, _batch_of(given, 2), metadata)
        except SrjtError:
            raise
        except Exception as problem:  # the exporters fail in many ways
            reason = next(iter(str(problem).strip().splitlines()), type(problem).__name__)
            others = " or ".join(name for name in get_args(Format) if name != chosen)
            raise SrjtError(
                f"This network cannot be written as {chosen} ({reason}): try the format {others}."
            ) from problem
        difference = _compare(_READERS[chosen](content), run, given)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, content)
    except OSError as problem:
        raise SrjtError(f"{target} cannot be written: {problem.strerror or problem}.") from None
    return Exported(
        path=target,
        format=chosen,
        input=f"{_name(given)} {given.dtype} ({', '.join(['N', *map(str, given.shape[1:])])})",
        metadata=metadata,
        checked=len(given),
        difference=difference,
    )


def resolve_format(path: Path, format: str | None) -> Format:
    """The format that was asked for, or the one that the file's name says."""
    if format is None:
        if path.suffix.lower() not in SUFFIXES:
            raise SrjtError(
                f"What {path.name} should be is not clear from its name: end it in {', '.join(SUFFIXES)}, or give the "
                f"format ({', '.join(get_args(Format))})."
            )
        return SUFFIXES[path.suffix.lower()]
    if format not in get_args(Format):
        raise suggest("format", format, get_args(Format))
    return format  # type: ignore[return-value]


def config_hash(config: TrainConfig) -> str:
    """16 hexadecimal digits of the settings that determine the result: equal for equal trainings."""
    decisive = {name: value for name, value in config.to_dict().items() if name not in COMPUTE_ONLY}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


def _metadata(run: Trained, samples: Samples) -> dict[str, Any]:
    facts = {
        "srjt": __version__,
        "grades": list(run.grades),
        "input": _name(samples),
        "input_shape": list(samples.shape[1:]),
        "method": run.config.method,
        "network": run.config.network,
        "networks": run.method.networks,
    }
    return facts if samples.ndim == 2 else {**facts, "resize": run.config.resize, "crop": run.config.crop}


# ---------------------------------------------------------------------- what the file is checked with


def _name(samples: Samples) -> str:
    return "features" if samples.ndim == 2 else "images"


def _examples(run: Trained) -> Samples:
    if len(run.in_shape) == 1:
        drawn = np.random.default_rng(0).standard_normal((64, *run.in_shape)).astype(np.float32)
        scaled = next((m for m in run.networks.modules() if isinstance(m, Standardise)), None)
        return drawn if scaled is None else drawn * scaled.scale.numpy() + scaled.mean.numpy()
    images = generate(images=8, patients=4, size=run.config.image_size).arrays
    assert images is not None
    return images.astype(np.uint8, copy=False)


def _checked(run: Trained, samples: Samples) -> Samples:
    """Samples as the file will take them, or an error that says what is expected."""
    size = run.config.image_size
    wanted, kind = ((size, size, 3), "uint8") if len(run.in_shape) == 3 else (run.in_shape, "float32")
    if samples.shape[1:] != wanted or samples.dtype != kind or len(samples) == 0:
        raise SrjtError(
            f"To check this run's file it takes samples of {kind} (N, {', '.join(map(str, wanted))}), not "
            f"{samples.dtype} {samples.shape}."
        )
    return samples


def _batch_of(samples: Samples, count: int) -> Tensor:
    """The exporters look at a batch of two: of one they would take the size for a constant."""
    return torch.from_numpy(np.ascontiguousarray(np.resize(samples, (count, *samples.shape[1:]))))


def _compare(answer: Callable[[Samples], Answers], run: Trained, samples: Samples) -> float:
    """The largest difference between the file's probabilities and the run's own, or an error if it is too large."""
    largest = 0.0
    # one alone, then by many: a file in which the batch's size is frozen does not pass
    parts = [slice(0, 1), *(slice(at, at + CHUNK) for at in range(0, len(samples), CHUNK))]
    for part in parts:
        by_network, grades = run.probabilities(samples[part])
        expected = predictions(run, by_network, grades)
        own = by_network.mean(axis=0, dtype=np.float64)
        probabilities, grade, severity = answer(samples[part])
        apart = [
            np.abs(probabilities - own).max(),
            np.abs(severity - expected["expected_grade"].to_numpy()).max() / len(run.grades),
        ]
        said = np.array(run.grades)[grade] == expected["grade"].to_numpy()
        if not (max(apart) <= TOLERANCE and (said | _borderline(own)).all()):  # not: NaN is no number ≤ 1e-4
            differs = max(apart)
            raise SrjtError(
                f"The exported network does not answer as the run does (probabilities differ by {differs:.1e}, "
                f"{int((~said).sum())} of {len(said)} grades): nothing was written."
            )
        largest = max(largest, float(apart[0]))
    return largest


def _borderline(probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """(N, C) → (N,): where the last bits decide the grade, by the mode or by the thresholds at ½."""
    second, first = np.sort(probabilities, axis=1)[:, -2:].T
    above = np.abs(probabilities.cumsum(axis=1) - 0.5).min(axis=1)
    return np.asarray((first - second < 10 * TOLERANCE) | (above < 10 * TOLERANCE))


# ---------------------------------------------------------------------- formats


def _write_onnx(module: nn.Module, example: Tensor, metadata: dict[str, Any]) -> bytes:
    onnx = _import("onnx")
    _import("onnxscript")  # what torch's exporter writes with
    _import("onnxruntime")  # before minutes are spent: the check needs it
    # The older exporter, by TorchScript, is on its way out and cannot pool to a size that is no divisor.
    program = torch.onnx.export(
        module,
        (example,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("N")},),
        input_names=[_name_of(example)],
        output_names=list(OUTPUTS),
        opset_version=OPSET,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    onnx.helper.set_model_props(proto, {key: _as_text(value) for key, value in metadata.items()})
    content: bytes = proto.SerializeToString()
    return content


def _read_onnx(content: bytes) -> Callable[[Samples], Answers]:
    session = _import("onnxruntime").InferenceSession(content, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda samples: tuple(session.run(list(OUTPUTS), {name: samples}))


def _write_exported(module: nn.Module, example: Tensor, metadata: dict[str, Any]) -> bytes:
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("N")},))
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"srjt.json": json.dumps(metadata)})
    return buffer.getvalue()


def _read_exported(content: bytes) -> Callable[[Samples], Answers]:
    module = torch.export.load(io.BytesIO(content)).module()
    return lambda samples: _as_arrays(module(torch.from_numpy(samples)))


def _write_script(module: nn.Module, example: Tensor, metadata: dict[str, Any]) -> bytes:
    traced = torch.jit.trace(module, (example,), check_trace=False)  # we check it ourselves
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer, _extra_files={"srjt.json": json.dumps(metadata)})
    return buffer.getvalue()


def _read_script(content: bytes) -> Callable[[Samples], Answers]:
    module = torch.jit.load(io.BytesIO(content))
    return lambda samples: _as_arrays(module(torch.from_numpy(samples)))


_WRITERS = {"onnx": _write_onnx, "torch.export": _write_exported, "torchscript": _write_script}
_READERS = {"onnx": _read_onnx, "torch.export": _read_exported, "torchscript": _read_script}


def _name_of(example: Tensor) -> str:
    return "features" if example.ndim == 2 else "images"


def _as_text(value: Any) -> str:
    """ONNX keeps texts only: lists and numbers as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_arrays(answers: tuple[Tensor, Tensor, Tensor]) -> Answers:
    probabilities, grade, severity = answers
    return probabilities.numpy(), grade.numpy(), severity.numpy()


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise missing_extra(package, "onnx", "Writing ONNX") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters report that torchvision is missing, and what torch itself will change one day."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(before)
