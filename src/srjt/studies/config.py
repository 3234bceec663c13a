"""The settings of a study: the same from options, a YAML file or a preset; how a noise is written,
and where the runs take the noise rate from.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from srjt import methods
from srjt.data.options import ReadOptions
from srjt.errors import Message, Option, SrjtError, unknown_name
from srjt.json_values import DictMixin
from srjt.settings import (
    FORMER_NAMES,
    check_types,
    current_names,
    documented,
    from_names,
    parse_yaml,
    setting,
    show,
)
from srjt.training.config import TrainConfig

if TYPE_CHECKING:  # the help of srjt study reads the settings without waiting for NumPy
    import numpy as np
    import numpy.typing as npt

# Parse a noise: ``quasi:0.2``, ``truncated:rho=0.15``, ``quasi:rho=0.1,rate=0.2``, ``none``; in a
# learning curve with ``@0.25`` for a quarter of the training patients, and ``corrected`` for the
# true or verified grades.

CORRECTED = "corrected"


@dataclass(frozen=True, kw_only=True)
class NoiseSpec:
    """The noise injected into training and validation labels, and the rate given to the methods.

    With ``rate`` alone, ρ is solved on the whole dataset's class mix. With ``rho`` alone, the rate
    follows from that mix. With both, ρ is fixed and the methods get the nominal rate, as in the
    paper (0.1 and 0.2 for LIMUC).
    """

    label: str
    kind: str  # of ``noise.FAMILIES``, or none
    rate: float | None = None
    rho: float | None = None
    share: float = 1.0  # of the training patients; the smaller shares are part of the larger ones

    @property
    def corrected(self) -> bool:
        """Whether training and validation labels are the true or verified grades, where these are
        known."""
        return self.labels == CORRECTED

    @property
    def labels(self) -> str:
        """The label without the share: all shares of a noise have the same wrong labels."""
        return self.label.partition("@")[0]

    def on(
        self, class_counts: Sequence[int] | npt.NDArray[np.int64]
    ) -> tuple[float | None, npt.NDArray[np.float64] | None, float | None]:
        """The rate ε that the methods get; the transition matrix (C, C); and ρ as given, or solved
        for the rate.

        All are None if nothing is injected.
        """
        from srjt import noise

        rho = self.rho
        rate = self.rate
        if rho is None:
            if rate is None:
                return None, None, None
            rho = noise.rho_for_rate(self.kind, rate=rate, class_counts=class_counts)
        matrix = noise.transition_matrix(self.kind, num_classes=len(class_counts), rho=rho)
        if rate is None:
            rate = noise.expected_rate(matrix, class_counts=class_counts)
        return rate, matrix, rho


def parse_noise(text: str) -> NoiseSpec:
    """The noise that ``text`` describes; an error with an example if it describes none."""
    from srjt import noise

    label = "".join(str(text).split())
    written, at, part = label.partition("@")
    kind, _, rest = written.partition(":")
    share = 1.0
    try:
        if at:
            share = float(part)
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise SrjtError(
            f"A share of the training patients is written quasi:0.2@0.25; got {text!r}.",
            code="wrong_syntax",
            option="noise",
        )
    if written in ("none", CORRECTED):
        return NoiseSpec(label=label, kind="none", share=share)
    if kind not in (*noise.FAMILIES, "none"):
        raise unknown_name("noise", kind, (*noise.FAMILIES, "none"))
    values: dict[str, float] = {}
    try:
        for part in rest.split(","):
            if "=" not in part:
                part = f"rate={part}"
            name, number = part.split("=")
            if name not in ("rate", "rho") or name in values or kind == "none":
                raise ValueError(name)
            values[name] = float(number)
    except ValueError:
        raise SrjtError(
            f"Write noise as quasi:0.2, quasi:rho=0.1 or none; got {text!r}.",
            code="wrong_syntax",
            option="noise",
        ) from None
    return NoiseSpec(
        label=label, kind=kind, rate=values.get("rate"), rho=values.get("rho"), share=share
    )


def learning_curve(noises: Iterable[str], *, corrected: bool = False) -> tuple[str, ...]:
    """The noises of a learning curve: a quarter, half and all of the training patients, and better
    labels.

    Better labels: half of the injected noise and none of it. Where nothing is injected, the true or
    verified grades, if the data have some (``corrected``).

    Examples
    --------
    >>> learning_curve(["quasi:0.2"])
    ('quasi:0.2@0.25', 'quasi:0.2@0.5', 'quasi:0.2', 'quasi:rate=0.1', 'none')
    >>> learning_curve(["none"], corrected=True)
    ('none@0.25', 'none@0.5', 'none', 'corrected')
    """
    arms: list[str] = []
    for text in noises:
        spec = parse_noise(text)
        for share in CURVE:
            arms.append(f"{spec.labels}@{share:g}")
        arms.append(spec.labels)
        better = better_labels(spec)
        if better != CORRECTED:
            arms += [better, "none"]
        elif corrected:
            arms.append(CORRECTED)
    return tuple(dict.fromkeys(arms))


def better_labels(spec: NoiseSpec) -> str:
    """The noise to compare with: half of what is injected, or corrected labels."""
    halves = []
    if spec.rho:
        halves.append(f"rho={spec.rho / 2:g}")
    if spec.rate:
        halves.append(f"rate={spec.rate / 2:g}")
    if halves:
        return f"{spec.kind}:{','.join(halves)}"
    return CORRECTED


# The settings of a study: the same from options, a YAML file or a preset.

# settings of a run that the study decides; a variant may have its own noise rate
RESERVED = {"method", "method_options", "noise_rate", "transition", "seed", "soft_labels"}
CURVE = (0.25, 0.5)  # shares of the training patients in a learning curve, beside all of them
SEEDS = "whole numbers from 0 up, at least one"
# names for ``paper_table`` → the paper's dataset
PAPER_TABLES = {"limuc": "limuc", "private-uc": "private", "dr": "dr"}
ESTIMATED = "estimated"  # label_matrix of a method whose soft labels follow the estimated noise


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """A method, perhaps with its own options and training settings: a cell of an ablation."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method
    # of its training; they override the study's
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def own_rate(self) -> float | Literal["auto"] | None:
        """The noise rate that overrides the study's: the variant's, or else its recipe's; None: the
        study's is used."""
        given: float | Literal["auto"] | None = self.settings.get("noise_rate")
        if given is None:
            return methods.lookup(self.name).recipe.noise_rate
        return given

    @property
    def variant(self) -> str:
        """``name=value,…`` of all options and settings; empty for the plain method."""
        chosen = sorted({**self.options, **self.settings}.items())
        return ",".join(f"{name}={value}" for name, value in chosen)


def parse_method(text: str) -> MethodSpec:
    """A method as the command line and files write it.

    ``co-teaching``; with options ``co-teaching:select=soft,update=soft``; with a training setting
    ``jocor+ours:balance=0.5``; with soft labels that follow the estimated noise
    ``sord:label_matrix=estimated``; ``jocor+ours:noise_rate=auto`` estimates the rate even if the
    study knows it, ``f-correction:noise_rate=auto`` the matrix.
    """
    name, _, rest = str(text).strip().partition(":")
    known = methods.options(name)
    trainable = {f.name for f in dataclasses.fields(TrainConfig)} - RESERVED | {*FORMER_NAMES}
    needs = methods.lookup(name).needs
    if needs:  # "auto" estimates the matrix as well
        trainable.add("noise_rate")
    options: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = map(str.strip, part.partition("="))
        if not equals:
            raise SrjtError(
                f"Options of a method are written name=value; {part!r} of {text!r} is not.",
                code="wrong_syntax",
                option="methods",
            )
        if option not in known and option not in trainable:
            raise unknown_name(f"option of {name}", option, {*known, *trainable})
        try:
            parsed = parse_yaml(value)
        except ValueError:
            raise SrjtError(
                f"{option} of {text!r} has a value that is not valid YAML.",
                code="wrong_syntax",
                option="methods",
            ) from None
        if option in known:
            options[option] = parsed
        else:
            settings[option] = parsed
    if settings.get("noise_rate", "auto") != "auto" and "noise_rate" not in needs:
        raise SrjtError(
            f"{name} uses the matrix of label errors, not a rate: noise_rate=auto estimates it.",
            code="conflict",
            option="noise_rate",
        )
    if options:  # report a misspelt value now, not once from every run
        identity = [[float(i == j) for j in range(4)] for i in range(4)]
        tried = dict(options)
        if options.get("label_matrix") == ESTIMATED:
            tried["label_matrix"] = identity
        methods.create(name, num_classes=4, noise_rate=0.2, transition=identity, **tried)
    TrainConfig().replace(**settings)
    return MethodSpec(name=name, options=options, settings=settings)


def _texts(value: Any) -> Any:
    """Numbers as texts: YAML reads a noise, a method or a grade such as 0.2 as a number."""
    if isinstance(value, Mapping):
        return {_texts(key): _texts(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_texts, value))
    if type(value) in (int, float):
        return str(value)
    return value


@documented
@dataclass(frozen=True, kw_only=True)
class StudyConfig(DictMixin):
    """A grid of trainings: methods × noises × folds × seeds."""

    source: str = setting(
        "", more="What `srjt.data.read` accepts, or synthetic.", takes="a path, or synthetic"
    )
    reading: Mapping[str, Any] = setting(
        {},
        more="Options of `srjt.data.read`, or of `srjt.data.synthetic.generate`.",
        takes="settings by name",
    )
    on_bad_image: Literal["error", "skip"] = setting(
        "error", more="Stop at unusable samples, or leave them out."
    )
    methods: tuple[str, ...] = setting(
        ("all",),
        "Methods to compare: all, or names separated by spaces, such as codis:select=soft."
        " Repeatable.",
        more="all: the paper's fourteen and your own.",
        shown="all",
        metavar="NAMES",
        listed=True,
        takes="methods, at least one",
    )
    noises: tuple[str, ...] = setting(
        ("none",),
        "Noise to inject: quasi:0.2 (a rate), quasi:rho=0.1, truncated:0.4 or none. Repeatable.",
        more="It is injected into training and validation labels.",
        shown="none",
        flag="--noise",
        metavar="NOISE",
        takes="noises such as quasi:0.2, at least one",
        listed=True,
    )
    learning_curve: bool = setting(
        False,
        "Also train on a quarter and on half of the training patients, and on better labels: half"
        " of the injected noise, or the true or verified grades.",
        more="These then judge the test side.",
        flag="--learning-curve",
        takes="true or false",
    )
    noise_rate: float | Literal["auto"] | None = setting(
        None,
        Message(
            "With ",
            Option("noises", "none"),
            ": ε, the share of wrong labels in the data; auto estimates it.",
        ),
        more="From the training labels, also if noise is injected.",
        metavar="RATE|auto",
        takes="a number such as 0.2, or auto",
    )
    transition: tuple[tuple[float, ...], ...] | None = setting(
        None,
        "P, the matrix Pr(label | true grade) of these data. The command line takes a CSV file.",
        shown="quasi, for ε",
        metavar="FILE",
        takes="a matrix, one list of numbers per row",
    )
    folds: int = setting(5, "Number of folds.")
    only_folds: tuple[int, ...] | None = setting(
        None,
        "Run only this fold. Repeatable.",
        flag="--fold",
        metavar="K",
        takes="numbers of folds, at least one",
        listed=True,
    )
    split_by: str = setting(
        "random", more="random, or stratified by grade.", takes="random or stratified"
    )
    split_seed: int = setting(0, more="Seed of the folds.")
    splits: str | None = setting(
        None,
        "Folds from a file of srjt data split.",
        more="They replace the settings above.",
        metavar="FILE",
        takes="a path",
    )
    hold_out: str | None = setting(
        None,
        "Make one fold for each value of this column, such as a site, and test on it.",
        metavar="COLUMN",
        takes="the name of a column",
    )
    group_near_duplicates: bool = setting(
        False,
        "Keep nearly identical images on the same side of a split. Identical images always stay"
        " together.",
        flag="--group-near-duplicates",
        takes="true or false",
    )
    seeds: tuple[int, ...] = setting(
        (0,),
        "Seed of the noise and the networks. Repeatable.",
        shown="0",
        flag="--seed",
        metavar="N",
        takes=SEEDS,
        listed=True,
    )
    train: Mapping[str, Any] = setting(
        {},
        more="Settings of `TrainConfig` that all runs share.",
        takes="settings of the runs by name",
    )
    preset: str | None = setting(
        None, more="Name of the preset that it began with.", takes="a name"
    )
    paper_table: Literal["limuc", "private-uc", "dr"] | None = setting(
        None,
        more=(
            "The data set of the paper whose printed values the tables show beside these. Unless it"
            " is named, they are shown if the data have the paper's number of images of each grade."
        ),
        takes="limuc, private-uc or dr",
    )
    grade_names: Mapping[str, str] = setting(
        {},
        more="Grade → its name, for people; the grades themselves stay.",
        takes="a name for each grade",
    )

    def __post_init__(self) -> None:
        for name in ("methods", "noises", "grade_names"):
            object.__setattr__(self, name, _texts(getattr(self, name)))
        check_types(self)
        if not all(0 <= seed < 2**63 for seed in self.seeds):
            raise SrjtError(
                Option("seeds"), f" takes {SEEDS}; got {show(self.seeds)}.", code="wrong_type"
            )
        object.__setattr__(self, "train", current_names(self.train))
        if reserved := (RESERVED - {"soft_labels"}) & set(self.train):
            raise SrjtError(
                f"{min(reserved)} is a setting of the study, not of its trainings: give it outside"
                " of train.",
                code="conflict",
                option="train",
            )
        if "soft_labels" in self.train:
            raise SrjtError(
                "A study sets soft labels by method: co-teaching+ours:label_matrix=estimated.",
                code="conflict",
                option="soft_labels",
            )
        if self.source not in ("", "synthetic"):
            ReadOptions.of(self.reading)
        if self.splits is not None and self.hold_out is not None:
            raise SrjtError(
                Option("splits"),
                " has its folds already: leave out ",
                Option("hold_out"),
                ".",
                code="conflict",
            )
        for text in self.noises:
            parse_noise(text)
        runs = TrainConfig().replace(**self.train)
        for text in self.methods:
            if text != "all":
                methods.lookup(text.strip().partition(":")[0], registered_by=runs.imports)
        self.method_specs()

    def method_specs(self) -> list[MethodSpec]:
        """The methods in order, each once; ``all`` is the paper's fourteen and your own."""
        texts: list[str] = []
        for text in self.methods:
            if text == "all":
                texts += methods.plain_names()
            else:
                texts.append(text)
        specs: dict[tuple[str, str], MethodSpec] = {}
        for spec in map(parse_method, texts):
            specs[spec.name, spec.variant] = spec
        return list(specs.values())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StudyConfig:
        """Settings from a mapping, as a file holds them; an unknown name is an error that suggests
        the nearest."""
        return from_names(cls, values, kind="study setting")


# Where the runs of a study take the noise rate from, as far as the plan decides it.

# readers: what was to be estimated follows from the grades of several readers
RateSource = Literal["none", "given", "own", "estimate", "readers"]


def rate_source(method: str, variant: str, *, study_rate: float | str | None) -> RateSource:
    """study_rate: ``noise_rate`` of the study, a number, "auto" or None."""
    try:
        spec = parse_method(f"{method}:{variant}")
    except SrjtError:
        return "given"  # a plug-in that is not installed may need it
    if not methods.lookup(method).method.needs and spec.options.get("label_matrix") != ESTIMATED:
        return "none"
    if spec.own_rate is not None:
        if spec.own_rate == "auto":
            return "estimate"
        return "own"
    if study_rate == "auto":
        return "estimate"
    return "given"


# Where the runs are trained: one machine, or a Ray cluster.

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
                    Option(option),
                    f" is an option of the executor {other!r}, not of {self.executor!r}.",
                    code="option_without_effect",
                )

    @property
    def options(self) -> dict[str, Any]:
        """Those of the executor, by name."""
        return {option: getattr(self, option) for option in EXECUTORS[self.executor]}
