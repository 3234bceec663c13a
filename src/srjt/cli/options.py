"""What commands take: options that several share, options that are fields of a dataclass elsewhere,
the source with its split, and the settings of a training from a file, from options and from
``--set``.

``--per`` and all others about answers are fields in inference/options.py and of the aspects in
inference/aspects, about reading in data/options.py, about training in training/config.py, about
studies in studies/config.py; ``Fields`` makes the options of a command of them.
"""

from __future__ import annotations

import functools
import inspect
import io
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.models import ArgumentInfo, OptionInfo

import srjt
from srjt.cli import say
from srjt.data.options import ReadOptions
from srjt.data.reading_file import load_reading_file, reading_file, used
from srjt.errors import SrjtError, count_of, few, unknown_name, warn
from srjt.inference.options import COMPUTING, EVALUATION
from srjt.methods import import_modules
from srjt.progress import progress_bar
from srjt.reports.flags import as_typed
from srjt.settings import (
    FORMER_NAMES,
    current_names,
    load_config,
    parse_overrides,
    required_type,
    setting,
    shown_default,
)
from srjt.training.config import TrainConfig


def about(help: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """An option that several commands share, as an annotation."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


def option(default: Any, help: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """An option of one command, as the default of its parameter; ``...`` if it must be given."""
    return typer.Option(default, *flags, help=help, rich_help_panel=panel, **more)


def argument(default: Any, help: str, *, metavar: str) -> Any:
    """An argument of one command."""
    return typer.Argument(default, help=help, metavar=metavar)


# Options that a command gets as a group, from the fields of a dataclass.

Command = TypeVar("Command", bound=Callable[..., None])


class Fields:
    """Annotates a parameter of a command that stands for options: one for each field that has a
    help text.

    The command receives those that were given, by name; or an object of the dataclass, if it is the
    parameter's type.

    only, without: which fields; an option of the command itself takes precedence. shown: those that
    the help lists; all by default. panel: where it lists them, instead of the fields' own panels.
    defaults: those that differ, as the help shows them. more: further options of the group.
    """

    def __init__(
        self,
        group: type,
        *,
        only: Collection[str] = (),
        without: Collection[str] = (),
        shown: Collection[str] = (),
        panel: str | None = None,
        defaults: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        hints = get_type_hints(group)
        self.group = group
        self.options = more
        self.kinds = hints
        self.lists = set()
        current = None
        for field in fields(group):
            name = field.name
            metadata = field.metadata
            current = metadata.get("panel", current)
            if metadata.get("help") and name not in without and name in (only or hints):
                help = as_typed(metadata["help"])
                default = (defaults or {}).get(name, shown_default(field))
                if default and "argument" not in metadata:
                    help += f" [default: {default}]"
                hidden = bool(shown) and name not in shown
                self.options[name] = _option(
                    field, hints[name], help, panel=panel or current, hidden=hidden
                )
                if metadata.get("metavar") == "LIST":
                    self.lists.add(name)

        for former, name in FORMER_NAMES.items():
            if name in self.options:
                self.options[former] = Annotated[str | None, about("", f"--{former}", hidden=True)]

    def value(self, typed: Mapping[str, Any], hint: Any) -> Any:
        """What the command receives for the parameter of this type."""
        values = {
            name: typed[name] for name in self.options if typed.get(name) not in (None, [], ())
        }
        values = current_names(values)
        for name in values:
            one_or_several = {str, tuple[str, ...]} <= {*get_args(self.kinds.get(name))}
            if name in self.lists:
                values[name] = [part.strip() for part in values[name].split(",")]
            elif one_or_several and len(values[name]) == 1:
                values[name] = values[name][0]  # one is not a list: most sources have one column
            elif name == "transition":
                values[name] = read_matrix(values[name])
        wanted = get_args(hint)[0]
        if get_origin(wanted) is not None or not issubclass(self.group, wanted):
            return values
        made = self.group(**values)
        if isinstance(made, Source):
            return made.with_reading_file()
        return made


def expand(command: Command) -> Command:
    """The command with an option for each field instead of the parameters that ``Fields``
    annotates."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Fields] = {}
    for name, hint in hints.items():
        for metadata in getattr(hint, "__metadata__", ()):
            if isinstance(metadata, Fields):
                groups[name] = metadata
    parameters: dict[str, inspect.Parameter] = {}

    def add(name: str, kind: Any, default: Any) -> None:
        # by keyword, so that options without a default may follow those with one
        keyword = inspect.Parameter.KEYWORD_ONLY
        new = inspect.Parameter(name, keyword, default=default, annotation=kind)
        parameters.setdefault(name, new)

    for parameter in inspect.signature(command).parameters.values():
        name = parameter.name
        if name not in groups:
            _complete(parameter.default, name, hints[name])
            add(name, hints[name], parameter.default)
            continue
        for option_name, kind in groups[name].options.items():
            if option_name not in hints:
                is_argument = isinstance(kind.__metadata__[0], ArgumentInfo)
                add(option_name, kind, parameter.empty if is_argument else None)

    @functools.wraps(command)
    def expanded(**typed: Any) -> Any:
        of_command = {name: value for name, value in typed.items() if name in hints}
        of_groups = {name: value for name, value in typed.items() if name not in hints}
        for name, group in groups.items():
            of_command[name] = group.value(of_groups, hints[name])
        return command(**of_command)

    expanded.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    expanded.__annotations__ = {one.name: one.annotation for one in parameters.values()}
    return cast(Command, expanded)


def _complete(declared: Any, name: str, kind: Any) -> None:
    """Add to the declaration of an option what follows from its type."""
    if not isinstance(declared, OptionInfo):
        return
    if declared.default is False and not declared.param_decls:  # a switch needs no --no-…
        declared.param_decls = (f"--{name.strip('_').replace('_', '-')}",)
    if declared.metavar is None and Path in (kind, *get_args(kind)):
        declared.metavar = "FILE"


def _option(field: Field[Any], hint: Any, help: str, *, panel: str | None, hidden: bool) -> Any:
    """The option of the command line for a field: its kind, flag and metavar."""
    metadata = field.metadata
    kinds = {hint, *get_args(hint)}
    choice = required_type(hint)
    metavar = metadata.get("metavar")
    flag = metadata.get("flag") or f"--{field.name.replace('_', '-')}"
    if metavar == "SOURCE" and "argument" in metadata:
        return Annotated[Path, typer.Argument(metavar=metavar, help=help)]
    kind: Any = str
    if bool in kinds:
        kind = bool
        if "flag" not in metadata:
            flag = f"{flag}/--no-{flag[2:]}"
    elif metavar is None and get_origin(choice) is Literal and "auto" not in get_args(choice):
        metavar = "|".join(get_args(choice))
    elif metavar in ("DIR", "FILE", "SOURCE", "FILE|RUN"):
        kind = Path
    elif metavar != "LIST" and any(get_origin(one) is tuple for one in kinds):
        kind = list[str]
    elif str not in kinds and not any(get_origin(one) is Literal for one in kinds):
        kind = next((one for one in (int, float) if one in kinds), str)
    return Annotated[
        kind | None,
        about(help, flag, metavar=metavar, panel=panel, show_default=False, hidden=hidden),
    ]


# Options for the commands that we suggest: a training that the machine can do, by a method that the
# data suffice for.


def machine_options(samples: int, *, features: bool = False) -> list[str]:
    """What to add to ``srjt train`` on this machine: a frozen network if there is no GPU. Features
    need none."""
    from srjt.training.devices import choose_device

    if features or choose_device().type == "cuda":
        return []
    return ["--preset", "cpu"]


# Options that several commands share, each declared once.


def _import(modules: list[str] | None) -> list[str] | None:
    import_modules(modules or ())
    return modules


def _grade_names(text: str | None) -> Mapping[str, str] | None:
    from srjt.data.grades import parse_grade_names

    if text is None:
        return None
    return parse_grade_names(text)


def html_file(path: Path | None) -> Path | None:
    """A page whose name has no suffix gets one, so that a browser opens it."""
    from srjt.files import is_stream

    if path is None or path.suffix or is_stream(path):
        return path
    return path.with_suffix(".html")


A_MODULE = "Import a Python module that registers your own methods. Repeatable."
Import = Annotated[
    list[str] | None, about(A_MODULE, "--import", metavar="MODULE", callback=_import, is_eager=True)
]
Preset = Annotated[
    str | None,
    about(
        "Start from the settings of this preset; other options override them. cpu is for machines"
        " without a GPU.",
        metavar="cpu|paper|limuc|dr|demo",
    ),
]
Config = Annotated[
    Path | None, about("YAML file of settings; other options override them.", metavar="FILE")
]
A_SETTING = (
    "Change a setting, such as weight_decay=0.001. Except in a study, this may be an option of the"
    " method: method_options.ramp_epochs=10. Repeatable."
)
Set = Annotated[list[str] | None, about(A_SETTING, "--set", metavar="NAME=VALUE")]
# the settings of a training
settings_of_a_run = functools.partial(
    Fields, TrainConfig, preset=Preset, imports=Import, config=Config, set_=Set
)
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
Force = Annotated[bool, about("Overwrite the file if it exists.", "--force")]
Quiet = Annotated[bool, about("Print only errors and warnings.", "--quiet", "-q")]
Device = Annotated[
    str | None,
    about(
        "Device to compute on: cpu, cuda or cuda:1. [default: a GPU if there is one]",
        panel=COMPUTING,
    ),
]
WithoutIds = Annotated[
    bool,
    about(
        "Leave ids, patients and paths out of the page, so that it can be sent to others. Images"
        " are kept.",
        "--without-ids",
    ),
]
Html = Annotated[
    Path | None,
    about("Also write an HTML page.", "--html", metavar="FILE", callback=html_file),
]
if TYPE_CHECKING:
    GradeNames = Mapping[str, str] | None  # what the callback returns
else:
    GradeNames = Annotated[
        str | None,
        about(
            'Names to show for all grades, as in "0=none,1=mild".',
            metavar="LIST",
            callback=_grade_names,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class Source(ReadOptions):
    """Where the samples are, how they are read, and what becomes of those that cannot be used."""

    source: Path = setting(
        Path(),
        "The data: a CSV, TSV, Excel or Parquet table, a folder of images (one folder per grade,"
        " LIMUC or Kaggle DR), a MedMNIST .npz file, or features (.npz, .npy).",
        metavar="SOURCE",
        argument=True,
    )
    on_bad_image: Any = setting(
        None,
        "Stop with an error if samples are unusable, or leave them out.",
        shown="error",
        metavar="error|skip",
        panel="",
    )
    skipped: Path = setting(
        Path("skipped.csv"),
        "CSV file that lists the unusable samples. An earlier list is replaced.",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        """Nothing: the options are checked when the source is read."""

    @property
    def reading_options(self) -> dict[str, Any]:
        """The options of reading that were given, or that are kept beside the source, by name."""
        return {name: value for name, value in self.given.items() if hasattr(ReadOptions, name)}

    @property
    def bad_images(self) -> Any:
        """What becomes of samples that cannot be used: "error" or "skip"."""
        return self.on_bad_image or "error"

    @property
    def skipping(self) -> bool:
        """Whether samples that cannot be used are left out."""
        return bool(self.on_bad_image == "skip")

    def with_reading_file(self) -> Source:
        """With the options that are kept beside the source, where none were typed; one line says
        which."""
        if self.source == Path():  # the command has no source, or names it otherwise
            return self
        kept = load_reading_file(self.source)
        new = {name: value for name, value in kept.items() if getattr(self, name) is None}
        if new:
            words = " ".join(map(shlex.quote, as_words(new)))
            say(f"Options from {reading_file(self.source)} are used: {words}", err=True, dim=True)
        return replace(self, **new)

    def of_tables(self, sources: Sequence[Path]) -> Source:
        """With the options that are kept beside the only table among the ``sources``, as far as a
        command has one."""
        from srjt.data.sources.table import is_table

        tables = [path for path in sources if path.is_file() and is_table(path)]
        if len(tables) != 1:
            return self
        return replace(self, source=tables[0]).with_reading_file()

    def read(self, **more: Any) -> srjt.data.Manifest:
        from srjt.data.sources import read_source  # what is left out is said once, by ``usable``

        try:
            return read_source(self.source, use_file=False, **{**self.reading_options, **more})
        except SrjtError as problem:
            if not load_reading_file(self.source):
                raise
            raise used(self.source, problem) from None

    def usable(self, reading: srjt.data.Manifest) -> srjt.data.Manifest:
        """The samples that can be used; the others are an error, or are listed in ``skipped``."""
        return srjt.data.drop_unusable(
            reading, on_bad_image=self.bad_images, listed_in=self.skipped
        )

    def existing(self, manifest: srjt.data.Manifest) -> srjt.data.Manifest:
        """The samples whose files exist, without reading them: what a training would use, unless
        some are damaged."""
        from srjt.files import why_not_a_file

        if manifest.arrays is not None:
            return manifest
        missing = {}
        for row, path in enumerate(manifest.paths):
            reason = why_not_a_file(path)
            if reason is not None:
                missing[row] = ("missing-image", reason)
        if not missing or len(missing) == len(manifest):
            return manifest
        ids = manifest.ids
        named = few([ids[row] for row in missing])
        if not self.skipping:
            say(
                "The training would stop, because it cannot find"
                f" {count_of(len(missing), 'image file')} ({named}). To leave out what is missing,"
                " add --on-bad-image skip.",
                err=True,
                fg="yellow",
            )
            return manifest
        say(f"Missing and left out: {count_of(len(missing), 'image file')} ({named}).", err=True)
        return manifest.leave_out(missing)

    def list_unreadable(
        self,
        unreadable: Sequence[tuple[str, str]],
        problems: Sequence[srjt.data.Problem],
        *,
        tell: bool,
    ) -> None:
        """Add images that could not be read, as (id, reason), to the list of unusable samples.

        tell: whether the user is still to be told.
        """
        from srjt.data.checks import image_problem

        if unreadable:
            more = [image_problem(sample, reason) for sample, reason in unreadable]
            srjt.data.write_problems([*problems, *more], self.skipped)
        if unreadable and tell:
            counted = count_of(len(unreadable), "image")
            named = few(sample for sample, _ in unreadable)
            say(f"{counted} could not be read ({named}): see {self.skipped}.", err=True)


def as_words(reading: Mapping[str, Any]) -> list[str]:
    """Options of reading as words of a command line."""
    words = []
    for name, value in reading.items():
        if value is None:
            continue
        several = isinstance(value, (list, tuple))
        if several and name in ("grades", "map_grades"):
            values = [",".join(value)]
        elif several:
            values = value
        else:
            values = [value]
        for one in values:
            words += [f"--{name.replace('_', '-')}", str(one)]
    return words


def named_options(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of the given options that have one of the names."""
    return {name: given[name] for name in names if name in given}


def samples_noun(manifest: srjt.data.Manifest) -> str:
    """What the samples are, in words."""
    return "rows of features" if manifest.are_features else "images"


@dataclass(frozen=True, kw_only=True)
class Splitting:
    """Which samples are held out."""

    fold: int | None = setting(
        None,
        "Fold to use, from 0 to the number of folds minus 1.",
        metavar="K",
        panel=EVALUATION,
    )
    folds: int = setting(5, "Number of folds.")
    split_seed: int = setting(0, "Random seed of the folds.")
    splits: Path | None = setting(
        None,
        "Use the folds in a file of srjt data split, or the same sides as this run.",
        metavar="FILE|RUN",
    )
    hold_out: str | None = setting(
        None,
        "Test on one value of a column and train on the others, as in site=north.",
        metavar="COLUMN=VALUE",
    )
    official_split: bool | None = setting(
        None, "Use the split column of the data.", shown="if there is one"
    )

    def __post_init__(self) -> None:
        if self.hold_out is not None and (self.fold, self.splits) != (None, None):
            raise SrjtError(
                "--hold-out cannot be combined with --fold or --splits.",
                code="conflict",
                option="hold_out",
            )
        if self.official_split and self.chosen:
            raise SrjtError(
                "--official-split cannot be combined with --fold, --splits or --hold-out.",
                code="conflict",
                option="official_split",
            )
        if self.splits is None and self.hold_out is None:
            check_fold(self.fold, self.folds)

    @property
    def chosen(self) -> bool:
        """Whether samples are held out by an option, not by a column of the data."""
        return (self.fold, self.splits, self.hold_out) != (None, None, None)

    def split(
        self, manifest: srjt.data.Manifest, *, skipping: bool, training: bool = False
    ) -> srjt.data.Split:
        """The sides. skipping: whether samples of a file of splits may be missing; training:
        another seed may do."""
        from srjt.training.sides import resolve_split

        fold = self.fold or 0
        if self.official_split:
            return srjt.data.official_split(manifest)
        if not self.chosen:
            if self.official_split is None:
                return resolve_split(None, manifest, skipped=skipping)
            return resolve_split("all", manifest, skipped=skipping)
        if self.hold_out is not None:
            return self._holding_out(self.hold_out, manifest)
        if self.splits is not None:
            parts = srjt.data.read_splits(self.splits, manifest, allow_missing=skipping)
        else:
            if manifest.duplicates is None:
                manifest = srjt.data.group_duplicates(manifest)
            parts = srjt.data.folds(manifest, folds=self.folds, seed=self.split_seed)
            if training:
                _warn_about_absent_grades(manifest, parts[fold], fold)
        check_fold(fold, len(parts))
        return parts[fold]

    def _holding_out(self, text: str, manifest: srjt.data.Manifest) -> srjt.data.Split:
        """text: column=value."""
        column, _, value = text.partition("=")
        parts = srjt.data.folds(manifest, folds=self.folds, seed=self.split_seed, hold_out=column)
        by_value = {part.held_out: part for part in parts}
        if not value:
            names = ", ".join(by_value)
            raise SrjtError(
                f"--hold-out needs a value of {column}, as in --hold-out {column}=VALUE. The"
                f" values are {names}.",
                code="missing_option",
                option="hold_out",
            )
        if value not in by_value:
            raise unknown_name(column, value, by_value)
        return by_value[value]


Sides = Annotated[Splitting, Fields(Splitting, without=("official_split",))]
ONE_SIDE = (
    "Keep nearly identical images on the same side of a split. Identical images"
    " always stay together."
)
NearDuplicates = Annotated[bool, about(ONE_SIDE, "--group-near-duplicates", panel=EVALUATION)]


def _warn_about_absent_grades(
    manifest: srjt.data.Manifest, split: srjt.data.Split, fold: int
) -> None:
    for side, rows in split.sides().items():
        counts = manifest.select(rows, images=False).class_counts
        absent = (counts == 0) & (manifest.class_counts > 0)
        if absent.any():
            grade = manifest.grades[absent.argmax()]
            warn(
                f"No sample of grade {grade} is on the {side} side of fold {fold}: try another"
                " --split-seed."
            )
            return


def check_fold(fold: int | None, folds: int) -> None:
    """Raise an error if there is no such fold, or if ``--folds`` was typed for ``--fold``."""
    if fold is None and folds < 3:
        raise SrjtError(
            f"--folds is the number of folds and must be at least 3; got {folds}. To choose one of"
            f" five folds, use --fold {max(folds, 0)}.",
            code="out_of_bounds",
            option="folds",
        )
    if fold is not None and not 0 <= fold < folds:
        raise SrjtError(
            f"There is no fold {fold}: the folds have the numbers 0 to {folds - 1}.",
            code="out_of_bounds",
            option="fold",
        )


# The settings of a training, from a file, from options and from ``--set``; checked before data are
# read.

LARGEST_MATRIX = 2**20  # bytes


def layered_settings(
    settings: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None
) -> TrainConfig:
    """The defaults, then the file (``config``), then the options, then ``--set`` (``set_``)."""
    options = dict(settings)
    file = options.pop("config", None)
    assignments = options.pop("set_", ())
    whole: dict[str, Any] = {}
    if file:
        whole |= load_config(file)
    whole |= options
    for name, value in parse_overrides(assignments).items():
        before = whole.get(name)
        if isinstance(before, dict) and isinstance(value, dict):  # such as method_options
            value = {**before, **value}
        whole[name] = value
    return TrainConfig.from_dict(defaults or {}).replace(**whole)  # a preset lies over the defaults


def read_matrix(path: Path) -> tuple[tuple[float, ...], ...]:
    """The transition matrix in a CSV file."""
    import numpy as np

    from srjt.files import read_limited
    from srjt.noise.matrices import check_matrix

    content = read_limited(path, limit=LARGEST_MATRIX)
    try:
        matrix = np.loadtxt(io.StringIO(content.decode()), delimiter=",", ndmin=2)
    except ValueError as problem:
        reason = str(problem).rstrip(".")
        raise SrjtError(
            f"{path} cannot be read as a matrix of numbers separated by commas: {reason}.",
            code="wrong_file",
            option="transition",
        ) from None
    return tuple(tuple(float(p) for p in row) for row in check_matrix(matrix))


def grouped(manifest: srjt.data.Manifest, *, near: bool) -> srjt.data.Manifest:
    """The samples with groups of identical or, if wanted, nearly identical images; a warning counts
    them."""
    with progress_bar("Decoding", True) as progress:
        return srjt.data.group_duplicates(manifest, near=near, progress=progress)
