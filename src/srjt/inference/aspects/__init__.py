"""Aspects: what can be asked about answers beyond the grade, each in one file of this folder.

An aspect is a frozen dataclass. Its fields are options of ``srjt predict`` and ``srjt evaluate``,
in Python, on the command line and in the documentation. It is prepared once, before a sample is
answered; then it may add columns to the predictions and judge answers beside their labels. What it
judged is shown by functions that register in ``srjt.reports.aspects`` for the type of the result.

The files are read for the help of the command line: they import NumPy and torch in functions only.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from srjt.errors import Option, SrjtError
from srjt.settings import check_types

if TYPE_CHECKING:
    import pandas as pd

    from srjt.data.images.store import ImageStore
    from srjt.data.manifest import Ints, Manifest
    from srjt.inference.answers import Answers, Units
    from srjt.noise.quality import NoiseBounds
    from srjt.ordinal.decoding import LearnedPooling
    from srjt.readers.readings import Readings
    from srjt.training.held_out import HeldOut
    from srjt.training.trained import Trained

# Panels of the command line's help.
CALIBRATION = "Ranges of grades and recalibration"
DECISIONS = "Decisions"
COMPUTING = "How it is computed"
EVALUATION = "Evaluation"

A = TypeVar("A", bound="type[Aspect]")
R = TypeVar("R", bound="Rule")
FittedTo = Literal["calibration", "validation"]  # samples whose labels were used


def as_columns(names: object, *, option: str = "per") -> tuple[str, ...]:
    """Names of columns as a tuple: ``"patient,eye"`` and ["patient", "eye"] are the same."""
    if names is None:
        parts: list[Any] = []
    elif isinstance(names, str):
        parts = [names]
    else:
        parts = list(names)  # type: ignore[call-overload]
    columns = [column.strip() for part in parts for column in str(part).split(",")]
    if not all(columns):
        raise SrjtError(
            Option(option),
            f" needs the names of columns, such as patient; got {names!r}.",
            code="wrong_type",
        )
    return tuple(dict.fromkeys(columns))


class Calibration(Protocol):
    """What is settled about a run before its aspects are: a ``CalibratedRun``."""

    @property
    def run(self) -> Trained: ...
    @property
    def options(self) -> Any:
        """All options: ``srjt.inference.options.Answering``."""

    @property
    def views(self) -> int: ...
    @property
    def learned(self) -> LearnedPooling | None: ...
    @property
    def side(self) -> HeldOut | None:
        """The samples to calibrate on: the validation side, or those of ``calibrate_on``."""

    @property
    def calibrate_on(self) -> Manifest | None: ...
    def answer(self, outputs: Any, labels: Ints, groups: list[str] | None) -> Answers:
        """Answers for images, from what the networks give."""

    def answer_store(self, store: ImageStore) -> Answers:
        """Answers for decoded images."""

    def side_answers(self, side: HeldOut, labels: Ints) -> Answers:
        """Answers for a held-out side of the run."""

    def noise_of(self, side: HeldOut, *, promise: bool = False) -> NoiseBounds | None:
        """The noise of the labels of a side; None if they are right."""

    def validation(self, why: str, *, option: Option) -> Answers:
        """The answers for the validation side. why: what needs them; option: by which it was asked
        for."""

    def rule(self, kind: type[R]) -> R | None:
        """The rule of an aspect before this one, by its type."""


class Judged(Protocol):
    """What an aspect says about answers: a frozen dataclass that has plain values, too."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Answers beside their labels, for the aspects to judge.

    Attributes
    ----------
    calibrated : Calibration
        The run, the options and the rules of all aspects.
    answers, images : Answers
        The answers as they are given, per image or per patient; and those for the images.
    samples : Manifest or HeldOut
        The images: labelled samples, or a held-out side that the run keeps.
    resamples : int
        Of the bootstrap; 0 for no intervals.
    units : Units or None
        What each image belongs to, if there is one answer per unit.
    store : ImageStore or None
        The decoded images; None for a held-out side.
    readings : Readings or None
        Every single reading of the images.
    new_to_run : bool
        Whether most of the samples are on no side of the run.
    """

    calibrated: Calibration
    answers: Answers
    images: Answers
    samples: Manifest | HeldOut
    resamples: int
    units: Units | None = None
    store: ImageStore | None = None
    readings: Readings | None = None
    new_to_run: bool = False

    @property
    def run(self) -> Trained:
        return self.calibrated.run


class Rule:
    """An aspect as it is applied: what its options and the run's validation side settle. By default
    it does nothing."""

    problem: SrjtError | None = None  # why it can be judged, but not be applied to new samples

    def extend(self, answers: Answers, images: Answers) -> Answers:
        """The answers with what belongs to each. images: what they are pooled from, or the answers
        themselves."""
        return answers

    def columns(self, answers: Answers, run: Trained) -> dict[str, Any]:
        """Columns of the predictions, each with a value per answer."""
        return {}

    def attributes(self) -> dict[str, Any]:
        """What ``srjt.predict`` adds to ``attrs`` of its result."""
        return {}

    def settled(self, run: Trained) -> dict[str, Any]:
        """Name → how it was settled, as plain values, for ``attrs["how"]`` of the predictions.

        The page shows a text as it is, and other values as ``srjt.reports.aspects.how_words`` says.
        """
        return {}

    def fitted(self) -> dict[str, FittedTo]:
        """What was fitted → the samples whose labels were used for it."""
        return {}

    def judge(self, judging: Judging) -> Judged | None:
        """The result for ``Evaluation.aspects``; None if there is none."""
        return None


@dataclass(frozen=True, kw_only=True)
class Aspect(Rule):
    """One question about answers; its fields are options, declared with ``srjt.settings.setting``.

    A subclass overrides ``prepare`` if something is settled beforehand, and as many methods of
    ``Rule`` as it needs, here or in the rule that ``prepare`` returns.
    """

    name: ClassVar[str] = ""  # all of these are set by ``register_aspect``
    order: ClassVar[int] = 100
    added_columns: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[Mapping[str, Any]] = {}
    evaluation_only: ClassVar[bool] = False
    always_in_files: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def data_columns(self) -> tuple[str, ...]:
        """Columns of the data that it needs."""
        return ()

    def check(self, table: pd.DataFrame) -> None:
        """Raise an error if the samples of this table cannot be judged, before they are decoded."""

    def prepare(self, calibration: Calibration) -> Rule | None:
        """The rule by which it is applied; None if nobody asked for it.

        calibration: the run, its recalibration and pooling, its answers for the validation side,
        and the rules of the aspects before this one.
        """
        return self


_ASPECTS: dict[str, type[Aspect]] = {}


def register_aspect(
    name: str,
    *,
    order: int = 100,
    columns: tuple[str, ...] = (),
    absent: Mapping[str, Any] | None = None,
    evaluation_only: bool = False,
    always_in_files: bool = True,
) -> Callable[[A], A]:
    """Give an aspect its name, as a decorator of its class.

    Parameters
    ----------
    name : str
        The key in ``Evaluation.aspects`` and in the file of ``srjt evaluate --out``.
    order : int
        Aspects are prepared, and shown, from the lowest to the highest. Those of srjt have 10 to
        70.
    columns : tuple of str
        All columns that it may add to predictions.
    absent : mapping, optional
        What ``attrs`` of the predictions hold if it was not asked for.
    evaluation_only : bool
        Whether its options are for ``srjt evaluate`` alone.
    always_in_files : bool
        Whether the file of ``srjt evaluate --out`` has its name even if there is nothing to tell.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from srjt.inference.aspects import Aspect, register_aspect, registered_aspects
    >>> from srjt.settings import setting
    >>> @register_aspect("sureness", columns=("sure",))
    ... @dataclass(frozen=True, kw_only=True)
    ... class Sureness(Aspect):
    ...     sure_from: float | None = setting(None, "Mark answers from this probability on.")
    ...
    ...     def columns(self, answers, run):
    ...         if self.sure_from is None:
    ...             return {}
    ...         return {"sure": answers.probabilities.max(axis=1) >= self.sure_from}
    >>> "sureness" in [aspect.name for aspect in registered_aspects()]
    True
    >>> forget_aspect("sureness")
    """

    def enter(aspect: A) -> A:
        known = _ASPECTS.get(name)
        # the same class once more is a notebook cell run again
        if known is not None and known.__qualname__ != aspect.__qualname__:
            raise SrjtError(f"There is an aspect named {name!r} already.", code="name_in_use")
        for other in _ASPECTS.values():
            taken = {field.name for field in fields(other)} & {
                field.name for field in fields(aspect)
            }
            if other.name != name and taken:
                raise SrjtError(
                    f"The aspect {other.name!r} has the option {min(taken)!r} already.",
                    code="name_in_use",
                )
        aspect.name = name
        aspect.order = order
        aspect.added_columns = columns
        aspect.absent = absent or {}
        aspect.evaluation_only = evaluation_only
        aspect.always_in_files = always_in_files
        _ASPECTS[name] = aspect
        return aspect

    return enter


def forget_aspect(name: str) -> None:
    """Remove an aspect that was registered."""
    _ASPECTS.pop(name, None)


def registered_aspects() -> list[type[Aspect]]:
    """All aspects in their order: those of this folder, and those that were registered."""
    _import_folder()
    return sorted(_ASPECTS.values(), key=lambda aspect: (aspect.order, aspect.name))


@cache
def _import_folder() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
