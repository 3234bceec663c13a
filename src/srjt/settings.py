"""Settings are frozen dataclasses: pydantic checks their values, and what does not fit is one
sentence of ours.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import reprlib
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from srjt.errors import Message, Option, SrjtError, unknown_name, warn
from srjt.text import printable, reason_of
from srjt.validation import check_of

Config = TypeVar("Config")
Result = TypeVar("Result")
P = ParamSpec("P")
Checked = tuple[dataclasses.Field[Any], Any, Callable[[Any], Any]]

# Names of an earlier version, which still work, with a warning; remove them after the next release.
FORMER_NAMES = {"optimise": "target_metric"}
LARGEST_CONFIG = 2**18  # bytes; the parser takes a second for so many
BY_OPTION = Message("name the modules on the command line, with ", Option("imports"), ".")
DEPTH = 6  # of nested lists and settings: a matrix inside method_options has 3
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}


def setting(default: Any, help: str = "", **metadata: Any) -> Any:
    """A dataclass field with what the command line and the error sentences need.

    help, metavar, flag: of the option on the command line; a field without help has none. It may
    be a ``Message`` that names other settings. more: what Python's documentation says after it.
    panel: of the help, for this field and those after it. shown: the default as the help shows it,
    where it is not the plain value. takes: the kind of value, in words, where the type alone does
    not tell. gt, ge: 0, if a number must be positive, or must not be negative; lt, le: what it is
    less than, or at most. listed: True if a single value may stand for a list of one; the list is
    not empty, and each value counts once.
    """
    about = {"help": help, **metadata}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=about)
    return dataclasses.field(default=default, metadata=about)


def shown_default(field: dataclasses.Field[Any]) -> str:
    """The default of a field in words; "" if there is none."""
    default = "" if field.default in (None, (), dataclasses.MISSING) else f"{field.default}"
    if isinstance(field.default, bool):
        default = "yes" if field.default else "no"
    return field.metadata.get("shown") or default


def documented(config: type[Config]) -> type[Config]:
    """Add what the fields say of themselves to the docstring of settings, as its section
    Parameters."""
    hints = get_type_hints(config)
    lines = ["Parameters", "----------"]
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        about = field.metadata
        kind = inspect.formatannotation(hints[field.name]).replace("typing.", "")
        default = f"Default: {shown_default(field)}." if shown_default(field) else ""
        text = " ".join(filter(None, (about.get("help"), about.get("more"), default)))
        wrapped = textwrap.fill(text.replace("`", "``"), 111, break_on_hyphens=False)
        lines += [f"{field.name} : {kind}", textwrap.indent(wrapped, "    ")]
    head, examples, rest = inspect.cleandoc(config.__doc__ or "").partition("Examples\n---")
    parts = [head.rstrip(), "", *lines]
    if examples:
        parts += ["", f"{examples}{rest}"]
    config.__doc__ = "\n".join(parts)
    if set(FORMER_NAMES.values()) & set(hints):
        config.__init__ = with_former_names(config.__init__)  # type: ignore[method-assign]
    return config


def current_names(
    values: Mapping[str, Any], *, names: Mapping[str, str] = FORMER_NAMES, warned: bool = True
) -> dict[str, Any]:
    """The same settings by the names of this version. warned: whether somebody typed them now, and
    learns what to type instead; False for stored files."""
    current = dict(values)
    for former, name in names.items():
        if former in current:
            current[name] = current.pop(former)
            if warned:
                about = Message(
                    Option(former),
                    " will be removed in the next release: use ",
                    Option(name),
                    " instead.",
                )
                warn(about, FutureWarning)
    return current


def with_former_names(
    function: Callable[P, Result], names: Mapping[str, str] = FORMER_NAMES
) -> Callable[P, Result]:
    """The function, which takes keywords by the names of an earlier version, too."""

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> Result:
        return function(*args, **current_names(named, names=names))

    return call


def check_types(config: Any) -> None:
    """Convert every field of a frozen dataclass to its declared type, or raise an error that names
    the field."""
    cls: type = type(config)
    for field, hint, check in _checked_fields(cls):
        required = required_type(hint)
        given = getattr(config, field.name)
        name = Option(field.name) if field.metadata.get("help") else field.name
        try:
            value = _plain(given)
            if field.metadata.get("listed") and isinstance(value, (str, int)):
                value = [value]
            origin: Any = get_origin(hint)
            accepts_bool = required in (bool, Any) or origin is Mapping
            if not accepts_bool and _holds_bool(value):
                raise TypeError("True is no number")
            value = check(value)
            if field.metadata.get("listed") and value is not None:
                value = tuple(dict.fromkeys(value))
                if not value:
                    raise ValueError("empty")
        except (TypeError, ValueError, OverflowError):
            if get_origin(required) is Literal:
                shown = given if isinstance(given, (str, bool)) else show(given)
                raise unknown_name(name, shown, get_args(required)) from None
            takes = field.metadata.get("takes") or _KINDS.get(required, "another kind of value")
            raise SrjtError(
                name, f" takes {takes}; got {show(given)}.", code="wrong_type", option=field.name
            ) from None
        if isinstance(value, (int, float)) and (problem := _out_of_bounds(value, field.metadata)):
            raise SrjtError(
                name, f" {problem}; got {show(value)}.", code="out_of_bounds", option=field.name
            )
        object.__setattr__(config, field.name, value)


def _out_of_bounds(value: float, bounds: Mapping[str, Any]) -> str:
    """What a number should be; "" if it is. Not a number is outside of every bound."""
    low = bounds.get("gt", bounds.get("ge", -math.inf))
    high = bounds.get("lt", bounds.get("le", math.inf))
    above = value > low or (value == low and "gt" not in bounds)
    below = value < high or (value == high and "lt" not in bounds)
    if above and below and not (math.isinf(value) and bounds.keys() & {"gt", "ge", "lt", "le"}):
        return ""
    if high == 1:
        opening = "(" if "gt" in bounds else "["
        closing = ")" if "lt" in bounds else "]"
        return f"lies in {opening}{low:g}, 1{closing}"
    if above and math.isfinite(high):
        return f"is at most {high:g}"
    if "gt" in bounds:
        return "must be positive"
    return "cannot be negative"


def from_names(config: type[Config], values: Mapping[str, Any], *, kind: str = "setting") -> Config:
    """Make settings from a mapping, as a file holds them; an unknown name is an error that suggests
    the nearest."""
    known = {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    if known.intersection(FORMER_NAMES.values()):
        values = current_names(values)
    for name in values:
        if name not in known:
            raise unknown_name(kind, str(name), known)
    return config(**values)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises ValueError, with the reason, for every text that is not
    valid YAML.

    Aliases are refused: a few lines of them can stand for more values than fit into memory.
    """
    import yaml

    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(
                    f"the alias *{event.anchor} is not supported: write its value again"
                )
        _refuse_repeated_keys(yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (
        Exception
    ) as problem:  # PyYAML lets KeyError and others through, for tags such as !!bool x
        raise ValueError(reason_of(problem)) from None


def _refuse_repeated_keys(node: Any) -> None:
    """Raise ValueError for a mapping with the same key twice, of which YAML would silently keep the
    last."""
    import yaml

    waiting = [] if node is None else [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, yaml.MappingNode):
            seen = set()
            for key, _ in part.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    raise ValueError(f"{show(key.value)} is set twice")
                seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
            waiting += [value for _, value in part.value]
        elif isinstance(part, yaml.SequenceNode):
            waiting += part.value


def _refuse_other_keys(values: Any, path: Path) -> None:
    """Raise an error for names of settings that are not text, such as 1 or ~."""
    if isinstance(values, dict):
        for name, value in values.items():
            if not isinstance(name, str):
                raise SrjtError(
                    f"{path} has the setting {show(name)}: names of settings are text.",
                    code="wrong_file",
                )
            _refuse_other_keys(value, path)


def load_config(path: Path) -> dict[str, Any]:
    """The settings of a YAML or JSON file, which somebody else may have sent: no code is executed
    because of it."""
    from srjt.files import read_limited  # slow to import, and not needed for a help page

    if not path.exists():
        raise SrjtError(f"There is no configuration file {path}.", code="missing_file")
    content = read_limited(path, limit=LARGEST_CONFIG)
    try:
        values = parse_yaml(content.decode())
    except ValueError as problem:  # also of bytes that are not UTF-8
        raise SrjtError(
            f"{path} is not valid YAML: {printable(reason_of(problem))}.", code="wrong_file"
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SrjtError(f"{path} must hold settings as 'name: value' lines.", code="wrong_file")
    _refuse_other_keys(values, path)
    for part in (values, values.get("train")):
        if isinstance(part, dict) and part.get("imports"):
            raise SrjtError(
                f"{path} has the setting imports, but a file must not run code: ",
                BY_OPTION,
                code="unsafe_file",
                option="imports",
            )
    return values


def parse_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """``["epochs=30", "method_options.per_class=true"]`` → nested settings; values are read as
    YAML."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise SrjtError(
                f"--set takes name=value, for example --set epochs=30; got {show(assignment)}.",
                code="wrong_syntax",
                option="set",
            )
        target = settings
        *parents, leaf = name.strip().split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise SrjtError(
                    f"--set {name}=…: {parent} is given both a value and parts of one.",
                    code="conflict",
                    option="set",
                )
        try:
            target[leaf] = parse_yaml(text)
        except ValueError:
            raise SrjtError(
                f"--set {name}=…: the value is not valid YAML: {show(text)}.",
                code="wrong_syntax",
                option="set",
            ) from None
    if settings.get("imports"):
        raise SrjtError(
            "--set imports=… would run code: ", BY_OPTION, code="unsafe_file", option="imports"
        )
    return settings


def show(value: Any) -> str:
    """A value as an error message shows it: short, whatever its size."""
    try:
        whole = isinstance(value, (str, float, bool)) and len(str(value)) <= 80
        return repr(value) if whole else _SHORT.repr(value)
    except ValueError:  # Python refuses to print very long whole numbers
        return "a number with too many digits"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


@functools.cache
def _checked_fields(config: type) -> list[Checked]:
    try:
        hints = get_type_hints(config, include_extras=True)
    except (
        NameError
    ):  # a method from outside may import names for its annotations under TYPE_CHECKING only
        return []
    checked = []
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        if field.init and hint is not Any:
            # strict: "yes" and 1 are not true; numbers may be texts, because YAML reads 1e-4 as one
            checked.append((field, hint, check_of(hint, strict=required_type(hint) is bool)))
    return checked


def _plain(value: Any, depth: int = 0) -> Any:
    """Arrays, tuples and paths as lists and texts: as they come back from a file."""
    if depth > DEPTH:
        raise ValueError("nested too deeply")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [_plain(part, depth + 1) for part in value]
    return value


def required_type(hint: Any) -> Any:
    """The type itself, of a type that may be None."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _holds_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list) and any(map(_holds_bool, value)))
