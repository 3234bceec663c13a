"""How a run answers, as options: one declaration for Python, the command line, its help and the
documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, field, fields, make_dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_type_hints

from srjt.data.options import picked
from srjt.errors import Message, Option
from srjt.inference.aspects import (
    CALIBRATION,
    COMPUTING as COMPUTING,
    DECISIONS,
    EVALUATION as EVALUATION,
    Aspect,
    as_columns as as_columns,
    registered_aspects,
)
from srjt.lazy import former_names
from srjt.methods import load_entry_points
from srjt.ordinal import Purpose
from srjt.settings import check_types, documented, setting

Options = TypeVar("Options")

WhichNetwork = Literal["ensemble", "1", "2"]
Precision = Literal["fp32", "bf16"]


# Options of a run's answers and of every aspect, as one class.


def with_installed_aspects(options: type[Options]) -> type[Options]:
    """The class with the options of all aspects, also of those that installed packages announce by
    an entry point, or that were registered later."""
    load_entry_points("srjt.aspects")
    return with_aspects(options)


def with_aspects(options: type[Options]) -> type[Options]:
    """The class with the options of all registered aspects that it lacks, each in its panel of the
    help. A decorator of the classes here, which know the aspects of srjt."""
    key: Any = options
    made: type[Options] = _with_aspects(key, tuple(registered_aspects()))
    return made


@cache
def _with_aspects(options: Any, aspects: tuple[type[Aspect], ...]) -> Any:
    rows: list[tuple[str, Any, Any]] = []
    for aspect in aspects:
        if options.judges or not aspect.evaluation_only:
            rows += _rows(aspect)
    names = [name for name, _, _ in rows]
    added = [row for row in rows if row[0] not in options.__dataclass_fields__]
    if not added and list(options.__dataclass_fields__) == list(_by_panel(options, names)):
        return options
    made: Any = make_dataclass(options.__name__, added, bases=(options,), frozen=True, kw_only=True)
    made.__module__ = options.__module__
    made.__doc__ = options.__doc__
    made.__dataclass_fields__ = _by_panel(made, names)  # the order in the help
    return made


def _rows(aspect: type[Aspect]) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and declaration of the options of an aspect."""
    hints = get_type_hints(aspect)
    panel = EVALUATION if aspect.evaluation_only else DECISIONS
    for one in fields(aspect):
        panel = one.metadata.get("panel", panel)
        about = {**one.metadata, "panel": panel}
        yield one.name, hints[one.name], field(default=one.default, metadata=about)


def _by_panel(options: Any, of_aspects: Sequence[str]) -> dict[str, Field[Any]]:
    """All fields by name. In each panel those of aspects come first."""
    every = options.__dataclass_fields__
    panels: dict[str | None, list[str]] = {}
    panel = None
    for name, one in every.items():
        if name not in of_aspects:
            panel = one.metadata.get("panel", panel)
            panels.setdefault(panel, []).append(name)
    for name in reversed(of_aspects):
        panels.setdefault(every[name].metadata["panel"], []).insert(0, name)
    return picked(every, chain.from_iterable(panels.values()))


@documented
@dataclass(frozen=True, kw_only=True)
class Grading:
    """How probabilities become grades."""

    network: WhichNetwork = setting("ensemble", "Average the networks, or use one of them.")
    target_metric: Purpose | None = setting(
        None,
        "Metric to optimise when probabilities are turned into grades.",
        shown="that of the run, or mae if it has none",
    )
    decoding: Literal["argmax", "median", "expected"] | None = setting(
        None,
        Message(
            "Use the most likely grade, the median or the rounded mean, instead of ",
            Option("target_metric"),
            ".",
        ),
        flag="--decode",
    )

    def __post_init__(self) -> None:
        check_types(self)


@documented
@with_aspects
@dataclass(frozen=True, kw_only=True)
class Answering(Grading):
    """How a run answers new samples: its grades, what is fitted after training, and which decisions
    follow.

    ``srjt.predict`` and ``srjt.evaluate`` take these fields as keyword arguments; unknown names are
    errors.
    """

    judges: ClassVar[bool] = False  # whether options are for evaluations, too

    views: int = setting(
        1,
        "Number of views of each image to average: 1 is the centre crop, 2 adds its mirror image,"
        " 10 adds the four corners and their mirror images. A run with flip=false uses no mirror"
        " images, so that 10 means 5.",
        metavar="1|2|10",
    )
    on_bad_image: Literal["error", "skip"] = setting(
        "error", "Stop with an error if samples are unusable, or leave them out."
    )
    precision: Precision | None = setting(
        None,
        "Number format; bf16 needs a GPU.",
        more="bf16 computes with 8 significant bits.",
        shown="that of the run",
        panel=COMPUTING,
    )

    calibrate_on: Any = setting(
        None,
        "Labelled samples for calibration, on which the run was not trained. For evaluate, this"
        " may be a share of the source, such as 0.3.",
        more="The share consists of whole patients, which are not evaluated.",
        shown="its validation side",
        metavar="SOURCE",
        panel=CALIBRATION,
    )
    label_noise: Literal["unknown", "class-conditional", "none"] = setting(
        "unknown",
        "What to assume about wrong calibration labels: nothing (unknown), that they depend on"
        " the true grade alone (class-conditional), or that there are none.",
    )
    recalibrate: bool = setting(
        True,
        "Recalibrate the probabilities if there are at least 100 calibration samples and it helps.",
    )

    per: tuple[str, ...] = setting(
        (),
        Message(
            "Give one answer per value of this column, such as patient, or per combination of"
            " several, as in ",
            Option("per", ["patient", "eye"]),
            ".",
        ),
        more="It is compared with the highest label of its images.",
        metavar="COLUMN",
        panel=DECISIONS,
    )
    pool: Literal["highest", "mean", "learned"] = setting(
        "highest",
        "How to combine the answers for several images: the highest grade, the mean, or a rule"
        " that is fitted on the validation side.",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", as_columns(self.per))
        for aspect in self.aspects():  # each checks its own options
            for name in vars(aspect).keys() & vars(self):
                object.__setattr__(self, name, getattr(aspect, name))
        super().__post_init__()

    if TYPE_CHECKING:  # the options of aspects, too

        def __init__(self, **options: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def aspects(self) -> list[Aspect]:
        """Every registered aspect with its options, in their order."""
        made = []
        for aspect in registered_aspects():
            names = vars(self).keys() & aspect.__dataclass_fields__
            made.append(aspect(**{name: getattr(self, name) for name in names}))
        return made

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that the answers need."""
        columns = list(self.per)
        for aspect in self.aspects():
            columns += aspect.data_columns
        return tuple(columns)


@documented
@with_aspects
@dataclass(frozen=True, kw_only=True)
class Evaluating(Answering):
    """How a run is judged: how it answers, and for whom the scores are given apart."""

    judges: ClassVar[bool] = True


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, {"Planning": "srjt.inference.planning.Planning"})
