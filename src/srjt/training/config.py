"""Everything that can be set about a training, with the paper's values as defaults."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from srjt import methods
from srjt.errors import SrjtError, suggest

__all__ = ["TrainConfig", "load_config", "parse_overrides"]

Precision = Literal["auto", "fp32", "tf32", "bf16"]
StepMode = Literal["auto", "eager", "graph", "compiled"]

PAPER_EPOCHS = 150
PAPER_MILESTONES = (90, 120, 140)

PAPER_NETWORK, PAPER_RATE = "resnet18", 1e-4

# For features. Measured: with 1e-3 an mlp memorises wrong labels of embeddings, with 1e-4 it is slow on few columns.
HEAD, HEAD_RATES = "mlp", {"mlp": 3e-4, "linear": 1e-3}


# Settings of *how* to compute: they may change speed, but not what is being computed.
COMPUTE_ONLY = frozenset(
    {"step", "tune_cpu", "deterministic", "memory_share", "eval_batch_size", "checkpoint_seconds"}
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of one training run; saved with it. Unknown names are errors."""

    # what is learnt
    method: str = "co-teaching+ours"
    # ε, for methods that select or prune by it; "auto": estimated from the labels beforehand, see audit/auto.py;
    # None: the method's recipe, if it has one
    noise_rate: float | Literal["auto"] | None = None
    transition: tuple[tuple[float, ...], ...] | None = None  # P, for methods that correct by it
    # paper: Eq. 3; estimated: p(true grade | label) from the estimated noise, for methods that learn from soft labels
    soft_labels: Literal["paper", "estimated"] = "paper"
    method_options: Mapping[str, Any] = field(default_factory=dict)  # temperature, per_class, …
    convention: Literal["paper", "published-code"] = "paper"

    # the network
    network: str | None = None  # None: decided by the data, see for_data
    pretrained: bool = True
    weights: str | None = None  # a local file instead of the official one

    # the images
    image_size: int = 256
    crop: int = 224
    resize: Literal["squash", "crop"] = "squash"
    flip: bool = True

    # the optimisation
    epochs: int = PAPER_EPOCHS
    batch_size: int = 64
    learning_rate: float | None = None  # None: decided by the data, see for_data
    weight_decay: float = 1e-4
    milestones: tuple[int, ...] | None = None  # None: 90/120/140 of 150, scaled to the epochs
    gamma: float = 0.1
    # grade c is drawn ∝ n_c^(1 − balance): 0 as often as it occurs, 1 all grades equally; None: the method's recipe
    balance: float | None = None
    seed: int = 0

    # how it is computed
    precision: Precision = "auto"  # auto: bf16 on a GPU that has it, fp32 on a CPU
    step: StepMode = "auto"  # auto: compiled and captured in a CUDA graph where possible
    deterministic: bool = False
    sync_batchnorm: bool = False
    tune_cpu: bool = True  # find the fastest CPU setting by a short trial
    memory_share: float = 0.5  # of free GPU memory that the images may fill
    eval_batch_size: int = 1024
    checkpoint_seconds: float = 30.0  # at least this long between two checkpoints

    def __post_init__(self) -> None:
        for name in _HINTS:
            object.__setattr__(self, name, _typed(name, getattr(self, name)))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise suggest(name, str(getattr(self, name)), choices)
        positive = ("epochs", "batch_size", "learning_rate", "image_size", "crop", "gamma", "eval_batch_size")
        for name in positive:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SrjtError(f"{name} must be positive; got {value}.")
        if not 0.0 <= self.weight_decay < math.inf:
            raise SrjtError(f"weight_decay cannot be negative; got {self.weight_decay:g}.")
        if self.crop > self.image_size:
            raise SrjtError(f"crop ({self.crop}) cannot be larger than image_size ({self.image_size}).")
        if isinstance(self.noise_rate, float) and not 0.0 <= self.noise_rate < 1.0:
            raise SrjtError(f"noise_rate lies in [0, 1); got {self.noise_rate:g}.")
        following = (
            self.soft_labels == "estimated" and "label_matrix" not in self.method_options
        )  # else settled
        if following and self.requested_noise_rate != "auto":
            raise SrjtError(
                "soft_labels 'estimated' follow the noise that is estimated with noise_rate 'auto': say so, too."
            )
        if self.balance is not None and not 0.0 <= self.balance <= 1.0:
            raise SrjtError(f"balance lies in [0, 1]; got {self.balance:g}.")
        if not 0.0 < self.memory_share <= 1.0:
            raise SrjtError(f"memory_share lies in (0, 1]; got {self.memory_share:g}.")

    @property
    def effective_milestones(self) -> tuple[int, ...]:
        """Epochs after which the learning rate falls; the paper's, scaled to the number of epochs."""
        if self.milestones is not None:
            return self.milestones
        return tuple(round(m * self.epochs / PAPER_EPOCHS) for m in PAPER_MILESTONES)

    def learning_rate_at(self, epoch: int) -> float:
        """The learning rate during epoch T = 1, 2, …: γ for each milestone that lies behind."""
        assert self.learning_rate is not None, "decided by for_data before training begins"
        passed = sum(epoch > milestone for milestone in self.effective_milestones)
        return self.learning_rate * self.gamma**passed

    @property
    def requested_noise_rate(self) -> float | Literal["auto"] | None:
        """The noise rate as it was given; else what the method's recipe says of what it needs."""
        wanted = methods.lookup(self.method)
        if self.noise_rate is None and any(getattr(self, need) is None for need in wanted.method.needs):
            return wanted.recipe.noise_rate
        return self.noise_rate

    @property
    def known_noise_rate(self) -> float | None:
        """The noise rate as a number; an error while it is still to be estimated."""
        if self.noise_rate == "auto":
            raise SrjtError(
                "noise_rate 'auto' has not been resolved: call srjt.train, which estimates the rate first."
            )
        return self.noise_rate

    def with_recipe(self) -> TrainConfig:
        """What was left open and the method has a wish for, decided; what was given stays. A recipe's options are
        spelt out, so that a run says what it was, also when the recipe has changed since."""
        wanted = methods.lookup(self.method)
        recipe, options = wanted.recipe, dict(self.method_options)
        if wanted.is_recipe:
            options = {**wanted.defaults, **options}
        if (ramp := recipe.ramp_epochs(self.epochs)) is not None:
            options.setdefault("ramp_epochs", ramp)
        balance = recipe.balance if self.balance is None else self.balance
        return self.replace(noise_rate=self.requested_noise_rate, balance=balance, method_options=options)

    def for_data(self, *, features: bool) -> TrainConfig:
        """What was left open, decided: images get the paper's network and rate, features a head and its rate; the
        rest follows the method's recipe."""
        network = self.network or (HEAD if features else PAPER_NETWORK)
        rate = HEAD_RATES.get(network, PAPER_RATE) if self.learning_rate is None else self.learning_rate
        return self.replace(network=network, learning_rate=rate).with_recipe()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON and YAML keep them."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        known = {f.name for f in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise suggest("setting", str(name), known)
        return cls(**values)

    def replace(self, **changes: Any) -> TrainConfig:
        """A copy with changes; unknown names are errors here too."""
        return TrainConfig.from_dict({**_shallow(self), **changes})

    def difference(self, other: TrainConfig) -> dict[str, tuple[Any, Any]]:
        """The settings that determine the result and differ: name → (mine, the other's)."""
        return {
            f.name: (getattr(self, f.name), getattr(other, f.name))
            for f in dataclasses.fields(self)
            if f.name not in COMPUTE_ONLY and getattr(self, f.name) != getattr(other, f.name)
        }


def load_config(path: Path) -> dict[str, Any]:
    """The settings of a YAML or JSON file."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SrjtError(f"There is no configuration file {path}.") from None
    except OSError as problem:
        raise SrjtError(f"The configuration file {path} cannot be read: {problem.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        raise SrjtError(f"{path} is not valid YAML: {' '.join(str(problem).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SrjtError(f"{path} must hold settings as 'name: value' lines.")
    return values


def parse_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """``["epochs=30", "method_options.per_class=true"]`` → nested settings; values are read as YAML."""
    import yaml

    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise SrjtError(f"--set takes name=value, for example --set epochs=30; got {assignment!r}.")
        target = settings
        *parents, leaf = name.strip().split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise SrjtError(f"--set {assignment}: {parent} is given both a value and parts of one.")
        try:
            target[leaf] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise SrjtError(f"--set {assignment}: the value is not valid YAML.") from None
    return settings


_HINTS = get_type_hints(TrainConfig)
_CHOICES = {name: get_args(hint) for name, hint in _HINTS.items() if str(hint).startswith("typing.Literal")}
_KINDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    "noise_rate": "a number, or auto",
    "milestones": "a list of epochs such as [90, 120, 140]",
    "transition": "a matrix, one list of numbers per row",
    "method_options": "settings by name, such as method_options.per_class=true",
}


def _typed(name: str, value: Any) -> Any:
    """A value of the declared type, or an error that names the setting (YAML reads 1e-4 as a string)."""
    hint = _HINTS[name]
    optional = type(None) in get_args(hint)
    if (value is None and optional) or name in _CHOICES or (name, value) == ("noise_rate", "auto"):
        return value
    wanted = get_args(hint)[0] if optional else hint
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if wanted is bool and isinstance(value, bool):
            return value
        if wanted is str and isinstance(value, (str, Path)):
            return str(value)
        if wanted is float and not isinstance(value, bool):
            return float(value)
        if wanted is int:
            return _whole(value)
        if name == "milestones":
            return tuple(_whole(epoch) for epoch in value)
        if name == "transition":
            return tuple(tuple(float(p) for p in row) for row in value)
        if name == "method_options":
            return {str(option): _plain(setting) for option, setting in dict(value).items()}
    raise SrjtError(f"{name} takes {_KINDS.get(name) or _KINDS[wanted]}; got {value!r}.")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value).is_integer():
        raise ValueError(value)
    return int(float(value))


def _plain(value: Any) -> Any:
    """Arrays and tuples as lists, as they come back from a file."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(v) for v in value] if isinstance(value, Iterable) and not isinstance(value, str) else value


def _shallow(config: TrainConfig) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
