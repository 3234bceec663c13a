"""How a run answers, as options: one declaration for Python, the command line, its help and the
documentation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from srjt.errors import Message, Option, SrjtError
from srjt.ordinal import Purpose
from srjt.settings import check_types, documented, setting

WhichNetwork = Literal["ensemble", "1", "2"]
Precision = Literal["fp32", "bf16"]
PlannedMetric = Literal["mae", "accuracy", "qwk", "sensitivity", "specificity", "noise-rate"]

# Panels of the command line's help.
CALIBRATION, DECISIONS, COMPUTING = (
    "Ranges of grades and recalibration",
    "Decisions",
    "How it is computed",
)
EVALUATION = "Evaluation"


def as_columns(names: object, *, option: str = "per") -> tuple[str, ...]:
    """Names of columns as a tuple: ``"patient,eye"`` and ["patient", "eye"] are the same."""
    parts = [names] if isinstance(names, str) else [] if names is None else list(names)  # type: ignore[call-overload]
    columns = [column.strip() for part in parts for column in str(part).split(",")]
    if not all(columns):
        raise SrjtError(
            Option(option), f" needs the names of columns, such as patient; got {names!r}."
        )
    return tuple(dict.fromkeys(columns))


@documented
@dataclass(frozen=True, kw_only=True)
class Grading:
    """How probabilities become grades."""

    network: WhichNetwork = setting("ensemble", "Average the networks, or use one of them.")
    optimise: Purpose | None = setting(
        None,
        "Metric to optimise when probabilities are turned into grades.",
        shown="the run's; mae if it was trained with none",
    )
    decoding: Literal["argmax", "median", "expected"] | None = setting(
        None,
        Message(
            "Use the most likely grade, the median or the rounded mean, instead of ",
            Option("optimise"),
            ".",
        ),
        flag="--decode",
    )

    def __post_init__(self) -> None:
        check_types(self)


@documented
@dataclass(frozen=True, kw_only=True)
class Answering(Grading):
    """How a run answers new samples: its grades, what is fitted after training, and which decisions
    follow.

    ``srjt.predict`` and ``srjt.evaluate`` take these fields as keyword arguments; unknown names are
    errors.
    """

    views: int = setting(
        1,
        "Views of each image to average: 1 is the centre crop, 2 adds its mirror image, 10 adds the"
        " four corners and their mirror images. For a run with flip=false there are no mirror"
        " images: 10 means 5.",
        metavar="1|2|10",
    )
    on_bad_image: Literal["error", "skip"] = setting(
        "error", "Stop at unusable samples, or leave them out."
    )
    precision: Precision | None = setting(
        None,
        "Number format; bf16 needs a GPU.",
        more="bf16 computes with 8 significant bits.",
        shown="that of the run",
        panel=COMPUTING,
    )

    coverage: float | None = setting(
        None,
        "Give each sample a range of grades that contains the true grade with at least this"
        " probability: 0.9.",
        more="With `per` the true grade of a patient is the highest of the images.",
        metavar="SHARE",
        panel=CALIBRATION,
        takes="a probability such as 0.9",
        gt=0,
        lt=1,
    )
    coverage_by: str | None = setting(
        None,
        "Make ranges keep their promise for each true grade, or for each value of a column.",
        more="The calibration samples must have that column, too.",
        metavar="grade|COLUMN",
    )
    calibrate_on: Any = setting(
        None,
        "Labelled samples for calibration that the run was not trained on. For evaluate, also a"
        " share of the source, such as 0.3.",
        more="The share consists of whole patients, which are not evaluated.",
        shown="its validation side",
        metavar="SOURCE",
    )
    label_noise: Literal["unknown", "class-conditional", "none"] = setting(
        "unknown",
        "Assumption about wrong calibration labels: unknown, dependent on the true grade alone"
        " (class-conditional), or none.",
    )
    recalibrate: bool = setting(
        True,
        "Recalibrate the probabilities if there are at least 100 calibration samples and it helps.",
    )

    refer_from: str | int | None = setting(
        None,
        "Refer samples from this grade on.",
        more="Give the grade or its name.",
        metavar="GRADE",
        panel=DECISIONS,
    )
    threshold: float | Literal["grade"] | None = setting(
        None,
        Message(
            "Refer if the probability of ",
            Option("refer_from"),
            " or more is at least P, or by the predicted grade.",
        ),
        shown="0.5",
        metavar="P|grade",
        takes="a probability from 0 to 1, or 'grade'",
        ge=0,
        le=1,
    )
    sensitivity: float | None = setting(
        None, "Find the threshold for this sensitivity on the run's validation side.", metavar="S"
    )
    abstain: float | None = setting(
        None,
        "Leave about this share of the answers, the least confident, to a person.",
        metavar="SHARE",
        gt=0,
        lt=1,
    )
    per: tuple[str, ...] = setting(
        (),
        Message(
            "Give one answer per value of this column, such as patient, or of several: ",
            Option("per", ["patient", "eye"]),
            ".",
        ),
        more="It is compared with the highest label of its images.",
        metavar="COLUMN",
    )
    pool: Literal["highest", "mean", "learned"] = setting(
        "highest",
        "How the answers for several images are combined: the highest grade, the mean, or a rule"
        " that is fitted on the validation side.",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", as_columns(self.per))
        super().__post_init__()
        for name in ("threshold", "sensitivity"):
            if self.refer_from is None and getattr(self, name) is not None:
                raise SrjtError(
                    Option(name),
                    " needs the grade from which to refer: ",
                    Option("refer_from"),
                    ".",
                    code="missing_option",
                )
        if self.threshold is not None and self.sensitivity is not None:
            raise SrjtError("Give a threshold or a sensitivity to find it for, not both.")
        if self.coverage is None and self.coverage_by is not None:
            raise SrjtError(
                Option("coverage_by"),
                " says for whom ranges keep their promise: give a ",
                Option("coverage"),
                ", too.",
                code="missing_option",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that the answers need."""
        by = () if self.coverage_by in (None, "grade") else (self.coverage_by,)
        return (*self.per, *by)


@documented
@dataclass(frozen=True, kw_only=True)
class Evaluating(Answering):
    """How a run is judged: how it answers, and for whom the scores are given apart."""

    by: tuple[str, ...] = setting(
        (),
        "Give scores for each value of this column, such as site, or for each range of a number:"
        " age:10. Repeatable.",
        metavar="COLUMN",
        panel=EVALUATION,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", as_columns(self.by, option="by"))
        super().__post_init__()


@documented
@dataclass(frozen=True, kw_only=True)
class Planning:
    """What is wanted, and what is known beforehand."""

    metric: PlannedMetric = setting(
        "mae", "Metric to plan for; noise-rate is the share of wrong labels."
    )
    half_width: float = setting(0.05, "Wanted half-width of its 95 % interval.", ge=1e-4, lt=1)
    value: float | None = setting(
        None, "Expected value of the metric. It is needed if there is no pilot.", le=10
    )
    spread: float | None = setting(
        None,
        "Standard deviation of one absolute error, for mae.",
        gt=0,
        le=100,
        shown="that of errors by one grade",
    )
    images_per_patient: float = setting(
        1.0, "Number of images per patient.", shown="1, or the pilot's", gt=0, le=1e6
    )
    correlation: float = setting(
        0.0, "Correlation of the errors of a patient's images, from 0 to 1.", ge=0, le=1
    )
    prevalence: float = setting(
        0.5, "Share of the images to refer, for sensitivity or specificity.", gt=0, lt=1
    )
    refer_from: str | None = setting(
        None, "The lowest grade to refer, for the sensitivity of a pilot."
    )
    grade_shares: str | None = setting(
        None,
        "Shares of the grades from the lowest, for qwk, such as 0.8,0.15,0.05.",
        shown="0.6,0.25,0.1,0.05",
    )
    reader_error: float | None = setting(
        None, "Error rate of one reader, to plan readings too.", gt=0, lt=1
    )

    def __post_init__(self) -> None:
        check_types(self)


EXECUTORS = {"local": ("jobs", "device"), "ray": ("address", "gpus_per_run", "cpus_per_run")}


@documented
@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where the runs of a study are trained, and how many at a time; see ``srjt.study``."""

    jobs: int | None = setting(
        None,
        "Number of runs at the same time.",
        shown="1 per GPU, or 1 per CPU core",
        metavar="N",
        gt=0,
        le=1000,
    )
    device: str | None = setting(
        None,
        "cpu, cuda:1, or several: cuda:0,cuda:1.",
        shown="all GPUs, or the CPU",
        metavar="TEXT",
    )
    executor: Literal["local", "ray"] = setting(
        "local", "Run on this machine, or on a Ray cluster."
    )
    address: str | None = setting(
        None,
        "Address of the Ray cluster, or auto.",
        shown="$RAY_ADDRESS, else this machine",
        metavar="TEXT",
    )
    gpus_per_run: float | None = setting(
        None, "Ray: share of a GPU for each run; 0.5 runs two on one.", ge=0, le=1
    )
    cpus_per_run: float | None = setting(None, "Ray: CPU cores for each run.", shown="1", gt=0)
    cache: Path | None = setting(
        None, more="Folder for decoded images.", shown="$SRJT_CACHE, or the user's cache folder"
    )

    def __post_init__(self) -> None:
        check_types(self)
        other = "ray" if self.executor == "local" else "local"
        for option in EXECUTORS[other]:
            if getattr(self, option) is not None:
                raise SrjtError(
                    f"{option} is an option of the executor {other!r}, not of {self.executor!r}."
                )

    @property
    def options(self) -> dict[str, Any]:
        """Those of the executor, by name."""
        return {option: getattr(self, option) for option in EXECUTORS[self.executor]}
