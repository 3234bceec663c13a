"""Everything that can be set about a training, with the paper's values as defaults but for the
method."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from srjt import methods
from srjt.errors import Message, Option, SrjtError
from srjt.json_values import DictMixin
from srjt.networks import registry
from srjt.ordinal import Purpose
from srjt.settings import check_types, current_names, documented, from_names, setting, show
from srjt.training.preset_files import (
    PRESETS as PRESETS,
    expand_preset,
    load_preset as load_preset,
    preset_time as preset_time,
)

Precision = Literal["auto", "fp32", "tf32", "bf16"]
StepMode = Literal["auto", "eager", "graph", "compiled"]

PAPER_EPOCHS = 150
PAPER_MILESTONES = (90, 120, 140)
PAPER_BATCH = 64

# How long a recipe trains on images, by their number. Measured on four sets
# (benchmarks/evidence/few_labels.py): with 400 images, 240 of them for training, batches of 16 are
# better than 64 in every metric, and 40 epochs better than 20, 80 or 150; with 1,300 images 40
# epochs are better than 20 and level with 80; with 1,400 to 8,300 images 20 and 40 epochs are
# level.
RECIPE_EPOCHS = (20, 40)
IMAGES_SEEN = 60_000  # in all epochs, between the two
RECIPE_BATCHES = (16, 32, 64)
STEPS_OF_AN_EPOCH = 20  # at least, if the epoch saw all images of all sides

PAPER_NETWORK = "resnet18"

# How the weights are learnt, where neither the settings nor the method's recipe say it: as in the
# published code.
PAPER_OPTIMISATION = {
    "optimizer": "adam",
    "schedule": "steps",
    "warmup_epochs": 0,
    "learning_rate": 1e-4,
}
WEIGHT_DECAY = {"adam": 1e-4, "adamw": 0.05}
WARMUP_SHARE = 0.3  # of the learning rate, in the first epoch of a warm-up
COSINE_END = 0.01  # of the learning rate, in the last epoch

# For features, of a file or of a frozen backbone
HEAD = "mlp"
ODDS = "odds"
CHOOSE_HEAD = "auto"  # odds or mlp: the one that makes held-out labels likelier
# of the mlp, if it is chosen. Measured: with 300 rows 150 epochs memorise, 12 learn too little
MOST_HEAD_EPOCHS = 40
# methods whose loss is a likelihood of the labels
FITTED_BY_ODDS = ("standard", "f-correction", "srjt")
# What has no meaning for the network odds, which is fitted at once; epochs is 1
NOT_OF_ODDS = (
    "optimizer",
    "schedule",
    "warmup_epochs",
    "learning_rate",
    "weight_decay",
    "milestones",
    "patience",
)

AUTO = "auto"  # of ``backbone``: the first of the registry whose weights can be had

# Settings of *how* to compute, and where the method's code is: they may change the speed, but not
# what is computed.
COMPUTE_ONLY = frozenset(
    {"step", "deterministic", "memory_share", "eval_batch_size", "checkpoint_seconds", "imports"}
)

# Nor does what the networks learn depend on which columns are written beside their predictions.
NOT_LEARNT = COMPUTE_ONLY | {"keep_columns"}

# of epochs or samples: beyond it a value is a slip of the keyboard, and would fail much later
MANY = 10**6

METHOD = "Method"  # panel of the command line's help

Config = TypeVar("Config", bound="TrainConfig")
T = TypeVar("T")


@documented
@dataclass(frozen=True, kw_only=True)
class TrainConfig(DictMixin):
    """Settings of one training run; saved with the run. Unknown names are errors.

    Defaults for images are those of the paper or its published code, except the method and how it
    learns the weights, the rule for predicted grades (``target_metric``) and the precision. On the
    command line a setting is an option (``--batch-size 32``) or given by name (``--set
    weight_decay=0``). Beside the fields, ``replace`` and ``from_dict`` take ``preset``, the name of
    settings that those given beside it override: ``"cpu"`` (the features of a frozen, pretrained
    network, which take a CPU minutes), ``"paper"``, ``"limuc"``, ``"dr"``, ``"demo"``.

    Examples
    --------
    >>> from srjt.training.config import TrainConfig
    >>> config = TrainConfig(method="jocor+ours", noise_rate=0.2, epochs=30)
    >>> config.effective_milestones
    (18, 24, 28)
    """

    # what is learnt
    method: str = setting(
        "srjt",
        "Name of the method; srjt methods lists them.",
        more="So does `srjt.methods.names()`.",
        panel=METHOD,
    )
    noise_rate: float | Literal["auto"] | None = setting(
        None,
        "ε, the share of wrong labels, such as 0.2; auto estimates it first and is the default of"
        " srjt.",
        more=(
            "Methods that select samples or prune weights need it. A number given to srjt replaces"
            " its estimate by errors of one grade at that rate."
        ),
        metavar="RATE|auto",
        takes="a number such as 0.2, or auto",
        ge=0,
        lt=1,
    )
    transition: tuple[tuple[float, ...], ...] | None = setting(
        None,
        "P, the matrix Pr(label | true grade), for methods that need it. The command line takes a"
        " CSV file.",
        metavar="FILE",
        takes="a matrix, one list of numbers per row",
    )
    soft_labels: Literal["paper", "estimated"] = setting(
        "paper",
        Message(
            "Soft labels of +ours and sord: those of the paper, or the estimated p(true grade |"
            " label),"
            " which needs ",
            Option("noise_rate", "auto"),
            ".",
        ),
    )
    reader_targets: Literal[
        "auto", "consensus", "posterior", "readers", "resample", "certainty"
    ] = setting(
        "auto",
        Message(
            "With ",
            Option("several_readings", "consensus"),
            ": learn the consensus, the posterior probabilities, the likelihood of the readings"
            " (readers), a new draw from the posterior in each epoch (resample), or the consensus"
            " weighted by its certainty. auto is the posterior, or the consensus if the method"
            " takes only grades.",
        ),
    )
    method_options: Mapping[str, Any] = setting(
        {},
        more='Options of the method, such as `{"temperature": 0.1, "per_class": True}`.',
        takes="settings by name, such as method_options.per_class=true",
    )
    convention: Literal["paper", "published-code", "original"] = setting(
        "paper",
        "Where they differ, follow the paper, its code (published-code), or the papers of JoCoR,"
        " CoDis and Co-teaching (original).",
        more=(
            "It matters where the descriptions of a method differ. For other methods original is"
            " the same as paper."
        ),
        metavar="NAME",
    )
    imports: tuple[str, ...] = setting(
        (),
        more=(
            "Modules that register methods of your own, as given to `--import`; named in the error"
            " if the method of a run is not registered. Setting it imports nothing: in Python,"
            " import the module yourself."
        ),
        takes="names of modules, such as [my_package.my_methods]",
    )

    # the network; None: chosen by for_data
    network: str | None = setting(
        None,
        "Backbone, such as resnet18, tiny or timm:NAME.",
        panel="Network",
        more=(
            "Of features, `auto` (for srjt) chooses between odds and an mlp of at most 40 epochs by"
            " how likely they make held-out labels. `odds`, a proportional-odds model with a ridge"
            " penalty, is fitted at once, by the methods standard, f-correction and srjt: epochs,"
            " batch size, learning rate and seed do not apply to it."
        ),
        shown="resnet18; for features mlp, or auto for srjt",
    )
    backbone: str | None = setting(
        None,
        Message(
            "Freeze this network, such as resnet18 or timm:NAME, and train ",
            Option("network"),
            " on its features.",
        ),
        more=(
            "Features of all images are computed once and kept in the cache; `network` is then"
            " odds, mlp or linear. The run is one of images like any other. `auto` takes the first"
            " of efficientnet-lite0-stages, resnet18 and timm:resnet18 whose weights are here or"
            " can be downloaded; without them the network tiny is trained."
        ),
        metavar="NAME|auto",
    )
    pretrained: bool = setting(True, "Start from ImageNet weights.")
    weights: str | None = setting(
        None, "Start from the weights in this file, not from ImageNet weights.", metavar="FILE"
    )

    # the images
    image_size: int = setting(
        256, "Side of the stored, square images in pixels.", panel="Images", gt=0, le=2**14
    )
    crop: int = setting(
        224,
        "Side of the square that the network sees: cut out at random in training, else the centre.",
        gt=0,
    )
    resize: Literal["squash", "crop", "pad"] = setting(
        "squash",
        "How an image becomes square: squash changes its shape, crop cuts off the ends of its long"
        " side, pad fills up its short side.",
    )
    flip: bool = setting(True, "Mirror training images at random.")
    augment: Literal["paper", "light", "strong"] = setting(
        "paper",
        "How training images are changed at random.",
        more=(
            "`paper`: a crop, and a mirror image unless `flip` is false. `light`: also rotated by"
            " up to 15°, zoomed by 10 % and recoloured by 15 %. `strong`: rotated by any angle,"
            " also mirrored top to bottom, zoomed by 25 %, recoloured by 30 %, and a square of 30 %"
            " of the side is greyed."
        ),
    )

    # the optimisation; None: chosen by for_data
    epochs: int | None = setting(
        None,
        "Passes over the samples.",
        panel="Optimisation",
        shown="150; for srjt on images 40, falling to 20 from 1,500 to 3,000 images",
        gt=0,
        le=MANY,
    )
    batch_size: int | None = setting(
        None,
        "Samples per step.",
        shown="64; for srjt with fewer than 1,280 images 16 or 32",
        gt=0,
        le=MANY,
    )
    optimizer: Literal["adam", "adamw"] | None = setting(
        None,
        "Adam with L2 regularisation, or with decoupled weight decay.",
        shown="adamw for srjt on images, else adam",
    )
    schedule: Literal["steps", "cosine"] | None = setting(
        None,
        "The learning rate falls at the milestones, or along a cosine to 1 %.",
        shown="cosine for srjt on images, else steps",
    )
    warmup_epochs: int | None = setting(
        None,
        "First epochs, in which the learning rate rises from 30 %.",
        shown="1 for srjt on images, else 0",
        ge=0,
        le=MANY,
    )
    learning_rate: float | None = setting(
        None,
        "Learning rate.",
        shown="1e-3 for srjt, else 1e-4, also for transformers; mlp 3e-4, linear 1e-3, odds none",
        gt=0,
        lt=math.inf,
    )
    weight_decay: float | None = setting(
        None, "Weight decay.", shown="adam 1e-4, adamw 0.05", ge=0, le=1e3
    )
    milestones: tuple[int, ...] | None = setting(
        None,
        "Epochs after which the learning rate falls.",
        metavar="LIST",
        shown="90,120,140 for 150 epochs, else in proportion",
        takes="a list of epochs such as [90, 120, 140]",
    )
    gamma: float = setting(0.1, "Factor of the learning rate at each milestone.", gt=0, le=1)
    balance: float | None = setting(
        None,
        "How grades are drawn: 0 as often as they occur, 1 equally often.",
        more="Grade c is drawn with probability ∝ n_c^(1 − balance).",
        shown="0, unless the method sets it",
        ge=0,
        le=1,
    )
    seed: int = setting(0, "Seed of weights, sample order and augmentation.", ge=0, lt=2**63)

    # what is kept, and what for
    target_metric: Purpose = setting(
        "mae",
        "Metric to optimise when probabilities are turned into grades.",
        more="`metrics.csv` always has the most likely grades, as in the paper.",
        panel="Evaluation",
    )
    keep: Literal["last", "best"] = setting(
        "last",
        Message(
            "Keep the networks of the last epoch, or of the best one on the validation side by ",
            Option("target_metric"),
            ".",
        ),
    )
    patience: int | None = setting(
        None,
        Message("With ", Option("keep", "best"), ": stop after N epochs without an improvement."),
        metavar="N",
        gt=0,
        le=MANY,
    )
    keep_columns: tuple[str, ...] = setting(
        (),
        Message(
            "Keep these columns for later commands: ",
            Option("keep_columns", ["eye", "centre"]),
            ".",
        ),
        metavar="COLUMN",
        shown="only the patient",
        takes="names of columns, such as [eye, centre]",
    )
    track_wrong_labels: bool = setting(
        False,
        "If true grades are known, record how many wrong labels the networks repeat.",
        more=(
            "`metrics.csv` then has the split `wrong_labels`, the training samples whose labels are"
            " wrong: their accuracy is the share of wrong labels that the networks repeat."
        ),
    )

    # how it is computed
    precision: Precision = setting(
        "auto",
        "Number format: fp32, tf32 or bf16.",
        panel="How it is computed",
        shown="bf16 on a GPU, else fp32",
    )
    step: StepMode = setting(
        "auto",
        "How a step is executed: eager, graph or compiled.",
        more="The fastest is compiled and captured in a CUDA graph where possible.",
        shown="the fastest",
    )
    deterministic: bool = setting(
        False, "Make results reproducible bit for bit on a GPU, too (slower)."
    )
    sync_batchnorm: bool = setting(
        False, "Synchronise batch normalisation over distributed processes."
    )
    memory_share: float = setting(
        0.5, "Share of the free GPU memory that the images may fill.", gt=0, le=1
    )
    eval_batch_size: int = setting(1024, "Samples per step of an evaluation.", gt=0, le=MANY)
    checkpoint_seconds: float = setting(
        30.0, "Shortest time between two checkpoints, in seconds.", ge=0, le=1e9
    )

    def __post_init__(self) -> None:
        check_types(self)
        if self.schedule == "cosine" and self.milestones is not None:
            raise SrjtError(
                Option("milestones"),
                " are for ",
                Option("schedule", "steps"),
                ", not for 'cosine': leave out one of them.",
                code="conflict",
            )
        if self.crop > self.image_size:
            raise SrjtError(
                Option("crop"),
                f" ({show(self.crop)}) cannot be larger than ",
                Option("image_size"),
                f" ({self.image_size}).",
                code="out_of_bounds",
            )
        if self.patience is not None and self.keep == "last":
            raise SrjtError(
                Option("patience"),
                " needs ",
                Option("keep", "best"),
                ", which looks for the best epoch.",
                code="conflict",
            )
        for name, value in self.method_options.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError):  # a date or a set, which YAML can hold
                raise SrjtError(
                    f"method_options.{name} takes a number, a text, true, false or a list of these;"
                    f" got {show(value)}.",
                    code="wrong_type",
                    option="method_options",
                ) from None
        if (
            self.soft_labels == "estimated"
            and "label_matrix" not in self.method_options  # else they are estimated already
            and self.requested_noise_rate != "auto"
        ):
            raise SrjtError(
                Option("soft_labels", "estimated"),
                " needs ",
                Option("noise_rate", "auto"),
                ": they are computed from its estimate.",
                code="missing_option",
            )

    @property
    def effective_milestones(self) -> tuple[int, ...]:
        """Epochs after which the learning rate falls; the paper's, scaled to the number of
        epochs."""
        if self.milestones is not None:
            return self.milestones
        epochs = self.epochs or PAPER_EPOCHS
        return tuple(round(milestone * epochs / PAPER_EPOCHS) for milestone in PAPER_MILESTONES)

    @property
    def network_name(self) -> str:
        """The network for people; of a frozen backbone with what is trained on its features."""
        if self.backbone is None:
            return str(self.network)
        return f"{self.backbone} + {self.network}"

    @property
    def requested_noise_rate(self) -> float | Literal["auto"] | None:
        """The noise rate as it was given; else the recipe's, if the method lacks something that it
        needs."""
        known = methods.lookup(self.method, registered_by=self.imports)
        if self.noise_rate is None and any(getattr(self, need) is None for need in known.needs):
            return known.recipe.noise_rate
        return self.noise_rate

    @property
    def known_noise_rate(self) -> float | None:
        """The noise rate as a number; an error while it is still to be estimated."""
        if self.noise_rate == "auto":
            raise SrjtError(
                Option("noise_rate", "auto"),
                " has not been resolved: srjt.train estimates it first.",
                code="missing_option",
            )
        return self.noise_rate

    def with_recipe(self, *, features: bool = False) -> TrainConfig:
        """A copy in which the method's recipe for images, or for features, fills in what was not
        given.

        The options of a recipe are written out, so that a run says what it was even if the recipe
        changes later.
        """
        known = methods.lookup(self.method, registered_by=self.imports)
        recipe = known.recipe
        options = dict(self.method_options)
        if known.is_recipe:
            options = {**known.defaults, **(recipe.for_features if features else {}), **options}
        if self.epochs is not None and (ramp := recipe.ramp_epochs(self.epochs)) is not None:
            options.setdefault("ramp_epochs", ramp)
        balance = recipe.balance if self.balance is None else self.balance
        return self.replace(
            noise_rate=self.requested_noise_rate, balance=balance, method_options=options
        )

    def for_data(self, *, features: bool, samples: int) -> ResolvedConfig:
        """The settings in which everything is chosen: the network by the kind of data (images get
        the paper's, features a head), how its weights are learnt by the network and the method's
        recipe, the rest by the recipe.

        Where held-out labels shall choose between two heads, the network is ``"auto"``, and what
        depends on it is not chosen yet.

        samples: of all sides. The length of a recipe depends on them.
        """
        features = features or self.backbone is not None
        network = self.network or (self._head() if features else PAPER_NETWORK)
        chosen = self.replace(network=network)
        if self.backbone is not None:
            # its features are computed once, in float32, of images that are not mirrored
            precision = "fp32" if self.precision == "auto" else self.precision
            chosen = chosen.replace(flip=False, precision=precision)
        if network == ODDS:
            fixed: dict[str, Any] = {**dict.fromkeys(NOT_OF_ODDS), "epochs": 1, "keep": "last"}
            fixed["batch_size"] = self.batch_size or PAPER_BATCH
            if self.precision == "auto":  # its weights are few, and fitted in float64
                fixed["precision"] = "fp32"
            return resolved(chosen.replace(**fixed).with_recipe(features=features))
        learning = {**chosen.optimisation(), **chosen.length(samples)}
        unset = {name: value for name, value in learning.items() if getattr(self, name) is None}
        return resolved(chosen.replace(**unset).with_recipe(features=features))

    def length(self, samples: int) -> dict[str, int]:
        """Epochs and batch size for so many samples of all sides."""
        if not self.has_length_by_size:
            return {"epochs": PAPER_EPOCHS, "batch_size": PAPER_BATCH}
        fewest, most = RECIPE_EPOCHS
        fitting = [size for size in RECIPE_BATCHES if size * STEPS_OF_AN_EPOCH <= samples]
        return {
            "epochs": min(max(round(IMAGES_SEEN / samples), fewest), most),
            "batch_size": max(fitting, default=RECIPE_BATCHES[0]),
        }

    @property
    def has_length_by_size(self) -> bool:
        """Whether epochs and batch size that are not given depend on the number of samples: those
        of a recipe that also learns the weights of the images' network in its own way; others are
        the paper's."""
        recipe = methods.lookup(self.method, registered_by=self.imports).recipe
        chosen = {"optimizer": self.optimizer, "schedule": self.schedule}
        differs = any(
            value not in (None, recipe.for_images.get(name)) for name, value in chosen.items()
        )
        is_head = self.network == CHOOSE_HEAD or registry.takes_rows(str(self.network))
        if is_head or differs or self.milestones is not None:
            return False
        return bool(recipe.length_by_size)

    def with_head(self, network: str) -> ResolvedConfig:
        """A copy with this network in place of "auto"."""
        epochs = min(self.epochs or PAPER_EPOCHS, MOST_HEAD_EPOCHS) if network == HEAD else 1
        return self.replace(network=network, epochs=epochs).for_data(features=True, samples=1)

    def _head(self) -> str:
        """The network for features: the recipe's is chosen by the data."""
        known = methods.lookup(self.method, registered_by=self.imports)
        if known.is_recipe and self.method in FITTED_BY_ODDS:
            return CHOOSE_HEAD
        return HEAD

    def optimisation(self) -> dict[str, Any]:
        """How the method's recipe learns the weights of this network: the settings that were not
        given."""
        if self.network is None or self.network in (CHOOSE_HEAD, ODDS):
            return {}  # the head is not known yet; odds is fitted at once
        learning: dict[str, Any] = dict(PAPER_OPTIMISATION)
        row = registry.known(self.network)
        if row is not None and row.reads == "rows":
            learning["learning_rate"] = row.learning_rate
        else:
            learning |= methods.lookup(self.method, registered_by=self.imports).recipe.for_images
            if row is not None and row.learning_rate is not None:
                learning["learning_rate"] = min(learning["learning_rate"], row.learning_rate)
        if self.milestones is not None:
            learning["schedule"] = "steps"
        learning["weight_decay"] = WEIGHT_DECAY[self.optimizer or learning["optimizer"]]
        return learning

    @classmethod
    def from_dict(cls: type[Config], values: Mapping[str, Any]) -> Config:
        """Settings from a mapping, as a file holds them; an unknown name is an error that suggests
        the nearest."""
        return from_names(cls, expand_preset(values))

    def replace(self: Config, **changes: Any) -> Config:
        """A copy with changes; unknown names are errors here too."""
        return from_names(type(self), {**vars(self), **expand_preset(current_names(changes))})

    def determining(self) -> dict[str, Any]:
        """Plain values of the settings that determine the result: what identifies a training."""
        values = {name: value for name, value in self.to_dict().items() if name not in NOT_LEARNT}
        if self.backbone is None:  # as before there was such a setting
            del values["backbone"]
        if self.augment == "paper":
            del values["augment"]
        values["optimise"] = values.pop("target_metric")  # as it was called
        return values

    def identity(self) -> dict[str, Any]:
        """The settings without those of how to compute: a run in which one of them differs is
        another run."""
        return {name: value for name, value in vars(self).items() if name not in COMPUTE_ONLY}


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How weights are learnt step by step; nothing is left to choose."""

    optimizer: Literal["adam", "adamw"]
    schedule: Literal["steps", "cosine"]
    learning_rate: float
    weight_decay: float
    warmup_epochs: int
    epochs: int
    milestones: tuple[int, ...]
    gamma: float

    def rate_at(self, epoch: int) -> float:
        """The learning rate during epoch T = 1, 2, …: it rises for the epochs of the warm-up, then
        falls."""
        after = epoch - 1 - self.warmup_epochs
        if after < 0:
            return self.learning_rate * (1.0 + (1.0 - WARMUP_SHARE) * after / self.warmup_epochs)
        if self.schedule == "cosine":
            progress = after / max(1, self.epochs - 1 - self.warmup_epochs)
            share = 0.5 * (1.0 + math.cos(math.pi * progress))
            return self.learning_rate * (COSINE_END + (1.0 - COSINE_END) * share)
        passed = sum(epoch > milestone for milestone in self.milestones)
        return self.learning_rate * self.gamma**passed


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig(TrainConfig):
    """The settings of a training with everything chosen that was left open: what ``for_data``
    returns, and what a run has and saves.

    What has no meaning for the network ``odds`` stays None, and ``learning`` is an error then.
    """

    if TYPE_CHECKING:  # the fields of TrainConfig, none of which is None
        network: str
        epochs: int
        batch_size: int
        balance: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("network", "epochs", "batch_size", "balance"):
            _chosen(getattr(self, name), name)

    @property
    def learning(self) -> Learning:
        """How the weights are learnt; an error for a network that is fitted at once."""
        return Learning(
            optimizer=_chosen(self.optimizer, "optimizer"),
            schedule=_chosen(self.schedule, "schedule"),
            learning_rate=_chosen(self.learning_rate, "learning_rate"),
            weight_decay=_chosen(self.weight_decay, "weight_decay"),
            warmup_epochs=_chosen(self.warmup_epochs, "warmup_epochs"),
            epochs=self.epochs,
            milestones=self.effective_milestones,
            gamma=self.gamma,
        )

    @property
    def known_epochs(self) -> int:
        """``epochs``."""
        return self.epochs

    @property
    def known_batch_size(self) -> int:
        """``batch_size``."""
        return self.batch_size


def resolved(config: TrainConfig) -> ResolvedConfig:
    """The same settings, of which none that a training needs is left open; else an error."""
    return ResolvedConfig(**vars(config))


def reopened(config: TrainConfig, **changes: Any) -> TrainConfig:
    """What is asked for, with changes: a setting that becomes None is chosen anew."""
    return TrainConfig(**{**vars(config), **changes})


def _chosen(value: T | None, name: str) -> T:
    if value is None:
        raise SrjtError(
            f"`{name}` is not chosen yet: a training chooses it for its data.",
            code="missing_option",
            option=name,
        )
    return value
