"""What pages say of the aspects of answers (``srjt.inference.aspects``), each in one file of this
folder.

A file registers functions for the type of what its aspect judged: ``sections_of`` and
``key_numbers_of`` for the page of an evaluation, ``warnings_of`` and ``lead_of`` if there is
something to say at its top, ``add_to_grades`` for columns of its table of grades; for the type of
the aspect itself ``predicted_numbers``, and ``how_words`` for what it settled, for the page of
predictions; and ``file_facts``, for checklists.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, singledispatch
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from srjt.inference.evaluate import Evaluation
from srjt.inference.predict import Predictions
from srjt.reports.page import KeyNumber, Section

# a checklist's name → its items, as checklists.csv numbers them
Items = Mapping[str, Sequence[str]]
Facts = Iterator[tuple[str, str]]  # name of a fact, sentence
Part = TypeVar("Part")


@singledispatch
def sections_of(judged: object, evaluation: Evaluation) -> Sequence[Section]:
    """Sections of the page of an evaluation."""
    return ()


@singledispatch
def key_numbers_of(judged: object, evaluation: Evaluation) -> Sequence[KeyNumber]:
    """Numbers on the first screen of the page of an evaluation."""
    return ()


@singledispatch
def warnings_of(judged: object, evaluation: Evaluation) -> Sequence[str]:
    """Sentences that a reader of the scores must not miss."""
    return ()


@singledispatch
def lead_of(judged: object, evaluation: Evaluation) -> str:
    """A further sentence for the top of the page."""
    return ""


@singledispatch
def add_to_grades(judged: object, evaluation: Evaluation, table: pd.DataFrame) -> str:
    """Add columns to the table of grades, which has a row per grade; return what its caption says
    of them."""
    return ""


@singledispatch
def predicted_numbers(aspect: object, predictions: Predictions) -> Sequence[KeyNumber]:
    """Numbers on the first screen of the page of predictions."""
    return ()


_HOW_WORDS: dict[str, Callable[[Any], str]] = {}


def how_words(name: str) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Register how a value of ``attrs["how"]`` of predictions is written, as a decorator of a
    function; "" leaves it out. Without one the value is written as it is."""

    def enter(say: Callable[[Any], str]) -> Callable[[Any], str]:
        _HOW_WORDS[name] = say
        return say

    return enter


class FileFacts(NamedTuple):
    """How the file of ``srjt evaluate --out`` answers items of checklists."""

    say: Callable[[Any, str], Facts]
    items: Items


_FILE_FACTS: dict[str, FileFacts] = {}


def file_facts(name: str, *, items: Items | None = None) -> Callable[..., Any]:
    """Register what the values of an aspect in a file say, as a decorator of a function.

    The function gets these values and how many answers they are about, in words, and yields names
    of facts with their sentences. items: that a fact answers, beside those that checklists.csv
    names.
    """

    def enter(say: Callable[[Any, str], Facts]) -> Callable[[Any, str], Facts]:
        _FILE_FACTS[name] = FileFacts(say, items or {})
        return say

    return enter


# All aspects of one result.


@cache
def _import_folder() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def _gathered(
    of_aspect: Callable[[Any, Evaluation], Sequence[Part]], evaluation: Evaluation
) -> list[Part]:
    """What a function returns for each aspect of an evaluation, in their order."""
    _import_folder()
    parts: list[Part] = []
    for judged in evaluation.aspects.values():
        parts += of_aspect(judged, evaluation)
    return parts


def aspect_sections(evaluation: Evaluation) -> list[Section]:
    """Sections of the aspects of an evaluation, in their order."""
    return _gathered(sections_of, evaluation)


def aspect_key_numbers(evaluation: Evaluation) -> list[KeyNumber]:
    """Key numbers of the aspects of an evaluation, in their order."""
    return _gathered(key_numbers_of, evaluation)


def aspect_warnings(evaluation: Evaluation) -> list[str]:
    """Warnings of the aspects of an evaluation, in their order."""
    return _gathered(warnings_of, evaluation)


def aspect_grade_columns(evaluation: Evaluation, table: pd.DataFrame) -> str:
    """Add the columns of all aspects to the table of grades; return its caption."""
    _import_folder()
    captions = [add_to_grades(judged, evaluation, table) for judged in evaluation.aspects.values()]
    return " ".join(filter(None, captions))


def aspect_lead(evaluation: Evaluation) -> str:
    """Sentences of the aspects for the top of the page, each after a space."""
    _import_folder()
    lead = ""
    for judged in evaluation.aspects.values():
        if sentence := lead_of(judged, evaluation):
            lead += f" {sentence}"
    return lead


def aspect_predicted_numbers(predictions: Predictions) -> list[KeyNumber]:
    """Key numbers of the aspects of predictions, in their order."""
    _import_folder()
    numbers: list[KeyNumber] = []
    for aspect in predictions.answering.aspects():
        numbers += predicted_numbers(aspect, predictions)
    return numbers


def how_in_words(predictions: Predictions) -> dict[str, str]:
    """How predictions came about: what was done → how, in words."""
    _import_folder()
    words = {}
    for name, value in predictions.attrs["how"].items():
        if text := _HOW_WORDS.get(name, str)(value):
            words[name] = text
    return words


def facts_of_file(file: Mapping[str, Any], answers: str) -> Facts:
    """What the file of an evaluation says of every aspect. answers: how many there are."""
    _import_folder()
    for name, registered in _FILE_FACTS.items():
        if file.get(name):
            yield from registered.say(file[name], answers)


def facts_of_item(checklist: str, item: str) -> list[str]:
    """Names of aspects' facts that answer an item, beside those that checklists.csv names."""
    _import_folder()
    names = []
    for name, registered in _FILE_FACTS.items():
        if item in registered.items.get(checklist, ()):
            names.append(name)
    return names


def counted_yes(predictions: Predictions, column: str) -> int | None:
    """How many answers an aspect has marked; None if the column is not its own."""
    if column not in predictions.attrs["how"]:  # a column of the source may have the same name
        return None
    return int((predictions[column] == "yes").sum())


def marked_number(predictions: Predictions, column: str, label: str) -> list[KeyNumber]:
    """The number of marked answers and their share, with the rule; none if nothing was marked."""
    count = counted_yes(predictions, column)
    if count is None:
        return []
    share = f"{count / max(len(predictions), 1):.0%}"
    return [KeyNumber(label, f"{count:,}", share, how_in_words(predictions)[column])]
