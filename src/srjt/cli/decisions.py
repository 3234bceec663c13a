"""How commands show decisions, and the options about them that they share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from srjt.cli.messages import say
from srjt.errors import SrjtError
from srjt.reports.evaluation_words import SCORE_NAMES, abstention_words, decision_words, refer_rule

if TYPE_CHECKING:
    from srjt.console import Console
    from srjt.inference.abstain import Abstention
    from srjt.inference.decide import Decision
    from srjt.ordinal.intervals import Interval
    from srjt.training.trained import Trained

__all__ = ["named_run", "parse_threshold", "print_abstention", "print_decision"]


def named_run(run: Trained, names: str | None) -> Trained:
    """The run with the grade names that were given, or with its own."""
    from srjt.data.grade_names import check_grade_names, parse_grade_names

    if names is None:
        return run
    return replace(run, grade_names=check_grade_names(parse_grade_names(names), run.grades))


def parse_threshold(text: str | None) -> float | Literal["grade"] | None:
    """A probability, or "grade"."""
    if text is None:
        return None
    if text == "grade":
        return "grade"
    try:
        return float(text)
    except ValueError:
        raise SrjtError(f"A threshold is a probability from 0 to 1, or 'grade'; got {text!r}.") from None


def print_decision(console: Console, decision: Decision, names: Mapping[str, str]) -> None:
    """The operating point and the areas of a decision, as a table; then where the threshold comes from."""
    from rich.table import Table

    title = refer_rule(decision, names)
    table = Table("", "value", "95 % interval", title=title, title_justify="left")
    for name, interval in decision.operating_point.items():
        table.add_row(SCORE_NAMES[name], *_cells(interval))
    if decision.areas:
        table.add_section()
        for name, interval in decision.areas.items():
            table.add_row(SCORE_NAMES[name], *_cells(interval))
    console.print(table)
    say(decision_words(decision))


def print_abstention(console: Console, abstention: Abstention) -> None:
    """What remains if the least confident answers are left to a person."""
    from rich.table import Table

    title = f"Without the {abstention.share:.1%} least confident answers"
    table = Table("", "value", "95 % interval", title=title, title_justify="left")
    for name, interval in abstention.kept.items():
        table.add_row(SCORE_NAMES[name], *_cells(interval))
    console.print(table)
    say(abstention_words(abstention))


def _cells(interval: Interval) -> tuple[str, str]:
    value, low, high = interval
    known = f"{value:.3f}" if math.isfinite(value) else "–"
    return known, f"{low:.3f} – {high:.3f}" if math.isfinite(low) else "–"
