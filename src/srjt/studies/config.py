"""What a study is asked to do; the same from options, a YAML file or a preset."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from srjt import methods
from srjt.errors import SrjtError, suggest
from srjt.studies.noise_spec import parse_noise
from srjt.training.config import TrainConfig, load_config

__all__ = ["ESTIMATED", "PRESETS", "MethodSpec", "StudyConfig", "load_preset", "parse_method"]

PRESETS = ("limuc", "dr", "demo")
# settings of a run that the study says; of a variant all but the noise rate
RESERVED = {"method", "method_options", "noise_rate", "transition", "seed", "soft_labels"}
ESTIMATED = "estimated"  # label_matrix of a method whose soft labels follow the estimated noise


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """A method, perhaps with options and settings of its own: a cell of an ablation."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method
    settings: Mapping[str, Any] = field(default_factory=dict)  # of its training, over the study's

    @property
    def own_rate(self) -> float | Literal["auto"] | None:
        """The rate that it is told whatever the study knows: the variant's, or else its recipe's; None: the study's."""
        said: float | Literal["auto"] | None = self.settings.get("noise_rate")
        return methods.lookup(self.name).recipe.noise_rate if said is None else said

    @property
    def variant(self) -> str:
        said = {**self.options, **self.settings}
        return ",".join(f"{name}={value}" for name, value in sorted(said.items()))


def parse_method(text: str) -> MethodSpec:
    """``co-teaching`` or ``co-teaching:select=soft,update=soft``; ``co-teaching+ours:label_matrix=estimated`` learns
    from soft labels that follow the estimated noise, ``jocor+ours:balance=0.5`` with a training setting of its own,
    ``jocor+ours:noise_rate=auto`` without knowing the rate that the study knows, ``f-correction:noise_rate=auto`` the
    matrix."""
    import yaml

    name, _, rest = str(text).strip().partition(":")
    known = methods.options(name)
    trainable = {f.name for f in dataclasses.fields(TrainConfig)} - RESERVED
    needs = methods.lookup(name).method.needs
    if needs:  # "auto" estimates the matrix as well
        trainable.add("noise_rate")
    options: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise SrjtError(f"Options of a method are written name=value; {part!r} of {text!r} is not.")
        if option not in known and option not in trainable:
            raise suggest(f"option of {name}", option, {*known, *trainable})
        try:
            (options if option in known else settings)[option] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SrjtError(f"{option} of {text!r} has a value that is not valid YAML.") from None
    if settings.get("noise_rate", "auto") != "auto" and "noise_rate" not in needs:
        raise SrjtError(
            f"{name} is told the matrix of label errors, not a rate: say noise_rate=auto to have it estimated."
        )
    if options:  # a misspelt value is better known now than from every run
        tried = {
            **options,
            **({"label_matrix": np.eye(4)} if options.get("label_matrix") == ESTIMATED else {}),
        }
        methods.create(name, num_classes=4, noise_rate=0.2, transition=np.eye(4), **tried)
    TrainConfig().replace(**settings)
    return MethodSpec(name=name, options=options, settings=settings)


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """A grid of trainings. ``train`` holds settings of TrainConfig that all of them share."""

    source: str = ""  # a path, or "synthetic" for the synthetic dataset
    # options of srjt.data.read, or of synthetic.generate
    reading: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ("all",)
    noises: tuple[str, ...] = ("none",)
    # ε for data that are noisy already (noise none); "auto": estimated, also where noise is injected
    noise_rate: float | Literal["auto"] | None = None
    transition: tuple[tuple[float, ...], ...] | None = None  # P likewise
    folds: int = 5
    only_folds: tuple[int, ...] | None = None  # run these alone, of ``folds``
    split_by: str = "stratified"
    split_seed: int = 0
    splits: str | None = None  # a file of srjt data split instead
    seeds: tuple[int, ...] = (0,)
    train: Mapping[str, Any] = field(default_factory=dict)
    preset: str | None = None

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            object.__setattr__(self, setting.name, _settled(setting.name, getattr(self, setting.name)))
        if reserved := (RESERVED - {"soft_labels"}) & set(self.train):
            raise SrjtError(
                f"{sorted(reserved)[0]} is set by the study for each run; say it beside 'train', not inside."
            )
        if "soft_labels" in self.train:
            raise SrjtError(
                "In a study soft labels are said method by method, for example co-teaching+ours:label_matrix=estimated."
            )
        for text in self.noises:
            parse_noise(text)
        TrainConfig().replace(**self.train)
        self.method_specs()

    def method_specs(self) -> list[MethodSpec]:
        """The methods in order, each once; ``all`` is the paper's fourteen and your own."""
        texts = [t for text in self.methods for t in (methods.plain_names() if text == "all" else (text,))]
        specs = [parse_method(text) for text in texts]
        return list({(spec.name, spec.variant): spec for spec in specs}.values())

    def to_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StudyConfig:
        known = {f.name for f in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise suggest("study setting", str(name), known)
        return cls(**values)


_TAKES = {
    "source": "a path, or synthetic",
    "reading": "settings by name",
    "methods": "methods, at least one",
    "noises": "noises such as quasi:0.2, at least one",
    "noise_rate": "a number, or auto",
    "transition": "a matrix, one list of numbers per row",
    "folds": "a whole number",
    "only_folds": "numbers of folds, at least one",
    "split_by": "stratified or random",
    "split_seed": "a whole number",
    "splits": "a path",
    "seeds": "whole numbers from 0 up, at least one",
    "train": "settings of the runs by name",
    "preset": "a name",
}
_OPTIONAL = ("noise_rate", "transition", "only_folds", "splits", "preset")


def _settled(name: str, value: Any) -> Any:
    """A value of the declared kind, lists without repetitions, or an error that names the setting."""
    if value is None and name in _OPTIONAL:
        return None
    with contextlib.suppress(TypeError, ValueError):
        if name in ("train", "reading"):
            return dict(value)
        if name == "transition":
            return tuple(tuple(float(p) for p in row) for row in value)
        if name == "noise_rate":
            return value if value == "auto" else float(value)
        if name in ("folds", "split_seed"):
            return operator.index(value)
        if name in ("methods", "noises", "seeds", "only_folds"):
            listed: list[Any] = [value] if isinstance(value, (str, int)) else list(value)
            if name in ("seeds", "only_folds"):
                listed = [operator.index(v) for v in listed]
            if listed and not (name == "seeds" and min(listed) < 0):
                return tuple(dict.fromkeys(listed))
        elif isinstance(value, str):
            return value
    raise SrjtError(f"{name} takes {_TAKES[name]}; got {value!r}.")


def load_preset(name: str) -> dict[str, Any]:
    """The settings of a preset; its header says what it is for and what the paper found."""
    if name not in PRESETS:
        raise suggest("preset", name, PRESETS)
    return {**load_config(Path(__file__).parent / "presets" / f"{name}.yaml"), "preset": name}
