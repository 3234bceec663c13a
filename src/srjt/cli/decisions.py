"""How commands show decisions, and the options about them that they share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from srjt.errors import SrjtError

if TYPE_CHECKING:
    from rich.console import Console

    from srjt.inference.decide import Abstention, Decision
    from srjt.inference.evaluation import Evaluation
    from srjt.ordinal.intervals import Interval
    from srjt.training.trained import Trained

__all__ = ["named_run", "parse_threshold", "print_abstention", "print_decision", "what_was_judged"]

ROWS = {
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "positive_predictive_value": "positive predictive value",
    "negative_predictive_value": "negative predictive value",
    "roc_area": "area under the ROC curve",
    "average_precision": "average precision",
    "accuracy": "share of right answers",
}


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


def what_was_judged(found: Evaluation, what: str) -> str:
    """One sentence: how many samples, and by which labels they are judged. what: "images", "rows of features"."""
    seen = f", {found.views} views of each" if found.views > 1 else ""
    if not found.per:
        return f"{found.samples:,} {what}{seen}, judged by their {found.judged_by}."
    how = {"highest": "the highest grade", "mean": "the mean", "learned": "a learned pooling"}[found.pool]
    sentence = (
        f"{found.images:,} {what}{seen}, pooled per {' and '.join(found.per)} to {found.samples:,} answers by {how}, "
        f"judged by the highest of their {found.judged_by}."
    )
    if found.learned_pooling is not None:
        exponent, weight = found.learned_pooling
        sentence += f" Fitted on the validation side: exponent {exponent:.2g}, weight {weight:.2g}."
        sentence += f" {found.pooling_labels}"
    if found.judged_by != "true grades":
        sentence += " The highest of several labels is too high where labels are wrong."
    if found.unknown_units:
        sentence += f" {found.unknown_units:,} have no {' or '.join(found.per)} and are judged alone."
    return sentence


def print_decision(console: Console, decision: Decision, names: Mapping[str, str]) -> None:
    """The operating point and the areas of a decision, as a table; then where the threshold comes from."""
    from rich.table import Table

    from srjt.data.grade_names import display_grade

    grade = display_grade(decision.refer_from, names)
    rule = (
        f"predicted grade ≥ {grade}"
        if decision.threshold is None
        else f"p(grade ≥ {grade}) ≥ {decision.threshold:.3g}"
    )
    table = Table("", "value", "95 % interval", title=f"Refer if {rule}", title_justify="left")
    for name, interval in decision.operating_point.items():
        table.add_row(ROWS[name], *_cells(interval))
    if decision.areas:
        table.add_section()
        for name, interval in decision.areas.items():
            table.add_row(ROWS[name], *_cells(interval))
    console.print(table)
    console.print(
        f"{decision.referred:,} of {decision.samples:,} are referred; {decision.positives:,} should be. "
        f"{decision.found}",
        highlight=False,
    )
    if not decision.areas:
        every = "Every" if decision.positives else "No"
        console.print(f"{every} sample has that grade or more: there are no curves to draw.", style="yellow")


def print_abstention(console: Console, abstention: Abstention) -> None:
    """What remains if the least confident answers are left to a person."""
    from rich.table import Table

    title = f"Without the {abstention.share:.1%} least confident answers"
    table = Table("", "value", "95 % interval", title=title, title_justify="left")
    for name, interval in abstention.kept.items():
        table.add_row(ROWS[name], *_cells(interval))
    console.print(table)
    errors = (
        ""
        if math.isnan(abstention.errors_left)
        else f"{abstention.errors_left:.0%} of all wrong answers are among those left to a person. "
    )
    console.print(f"{errors}{abstention.found}", highlight=False)


def _cells(interval: Interval) -> tuple[str, str]:
    value, low, high = interval
    known = f"{value:.3f}" if math.isfinite(value) else "–"
    return known, f"{low:.3f} – {high:.3f}" if math.isfinite(low) else "–"
