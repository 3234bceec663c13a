"""The settings of a training, from a file, from options and from ``--set``; checked before data are read."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srjt.cli.splits import check_fold
from srjt.errors import SrjtError, suggest
from srjt.files import read_limited

if TYPE_CHECKING:
    from srjt.training.config import TrainConfig

__all__ = ["check_settings", "layered_settings", "merged", "read_matrix"]

LARGEST_MATRIX = 2**20  # bytes


def layered_settings(
    file: Path | None,
    assignments: Sequence[str] | None,
    *,
    given: Mapping[str, Any],
    method_options: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """The defaults, then the file, then the options, then ``--set``."""
    from srjt.training.config import TrainConfig, load_config, parse_overrides

    options = {name: value for name, value in given.items() if value is not None}
    if isinstance(options.get("transition"), Path):
        options["transition"] = read_matrix(options["transition"])
    for_method = {name: value for name, value in (method_options or {}).items() if value is not None}
    settings = merged(
        defaults or {},
        load_config(file) if file else {},
        options,
        {"method_options": for_method} if for_method else {},
        parse_overrides(assignments or []),
    )
    return TrainConfig.from_dict(settings)


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One layer over the other; settings inside a setting, such as method_options, are merged too."""
    whole: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = whole.get(name)
            both = isinstance(below, dict) and isinstance(value, dict)
            whole[name] = {**below, **value} if both else value  # type: ignore[dict-item]
    return whole


def check_settings(settings: TrainConfig, *, fold: int | None = None, folds: int | None = None) -> None:
    """Report what is wrong before an hour is spent on reading images, in terms of the options."""
    from srjt import networks
    from srjt.methods import lookup
    from srjt.training.resolve_noise import needs_estimate

    known = lookup(settings.method, registered_by=settings.imports)
    needs = (
        () if known.is_recipe and settings.noise_rate is not None else known.needs
    )  # a rate suffices for a recipe
    if "noise_rate" in needs and settings.noise_rate is None:
        raise SrjtError(
            f"{settings.method} needs the share of wrong labels: --noise-rate 0.2 if a fifth of them is wrong, "
            "--noise-rate auto to estimate it, or --method srjt, which needs none."
        )
    if "transition" in needs and settings.transition is None and settings.noise_rate != "auto":
        raise SrjtError(
            f"{settings.method} needs the matrix of label errors: --transition FILE, with a row of numbers "
            "separated by commas for each true grade, or --noise-rate auto to estimate it."
        )
    needs_estimate(settings)  # an error if the soft labels cannot follow the estimate
    name = settings.network
    if name is not None and name not in networks.names() and not name.startswith("timm:"):
        raise suggest("network", name, (*networks.names(), "timm:NAME"))
    if folds is not None:
        check_fold(fold, folds)


def read_matrix(path: Path) -> tuple[tuple[float, ...], ...]:
    """The transition matrix in a CSV file."""
    import numpy as np

    from srjt.noise.matrices import check_matrix

    content = read_limited(path, limit=LARGEST_MATRIX)
    try:
        matrix = np.loadtxt(io.StringIO(content.decode()), delimiter=",", ndmin=2)
    except ValueError as problem:
        raise SrjtError(
            f"{path} cannot be read as a matrix of numbers separated by commas: {str(problem).rstrip('.')}."
        ) from None
    return tuple(tuple(float(p) for p in row) for row in check_matrix(matrix))
