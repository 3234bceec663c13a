"""Warn when the selection hardly keeps any samples of a grade.

On imbalanced data the common grade is learnt first and has the smallest losses, so that methods
which keep samples of small loss can come to keep one grade only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from srjt.errors import Message, Option
from srjt.methods.base import Method
from srjt.training.checkpoint import MetricRow

PATIENCE = 3  # epochs in a row
RARELY = 0.1  # of the share that is kept overall


def rarely_kept_grades(rows: Sequence[MetricRow], grades: Sequence[str]) -> list[set[str]]:
    """In each epoch, the grades that the selection of a network hardly kept. One network's
    selection is what the other learns from, so a grade that either hardly keeps counts."""
    shares = {f"kept[{c}]": grade for c, grade in enumerate(grades)}
    kept = {row.epoch: row.value for row in rows if row.metric == "kept"}
    rare: dict[int, set[str]] = {epoch: set() for epoch in sorted(kept)}
    for row in rows:
        if row.metric in shares and row.epoch in kept and row.value < RARELY * kept[row.epoch]:
            rare[row.epoch].add(shares[row.metric])
    return list(rare.values())


def rarely_kept_advice(method: type[Method]) -> list[Message]:
    """What may help such grades, among what the method has."""
    options = {f.name for f in fields(method)} - method.unused_options()
    advice = []
    if "ramp_epochs" in options:
        slower = Option("method_options", {"ramp_epochs": 10})
        advice.append(Message("a slower ramp (", slower, ")"))
    if "per_class" in options:
        advice.append(Message(Option("method_options", {"per_class": True})))
    if "noise_rate" in method.needs:
        advice.append(Message("a smaller ", Option("noise_rate")))
    return advice


def rarely_kept_warning(
    rows: Sequence[MetricRow], grades: Sequence[str], *, advice: Sequence[str] = ()
) -> Message | None:
    """A warning in the first epoch that ends ``PATIENCE`` epochs in which a grade was hardly
    selected; else None.

    rows: of all epochs so far. advice: what the user can try, from ``rarely_kept_advice``.
    """
    rare = rarely_kept_grades(rows, grades)
    lasting = []
    for end in range(PATIENCE, len(rare) + 1):
        lasting.append(set.intersection(*rare[end - PATIENCE : end]))
    if not lasting or not lasting[-1] or any(lasting[:-1]):
        return None
    named = ", ".join(grade for grade in grades if grade in lasting[-1])
    return Message(
        f"The selection is starving grade {named}: for {PATIENCE} epochs hardly any of its samples"
        " were selected as clean, so the networks are unlearning it.",
        to_try(advice),
    )


def to_try(advice: Sequence[str]) -> Message:
    """ " Try a, b or c."; empty if there is nothing to try."""
    if not advice:
        return Message()
    *others, last = advice
    listed = [Message.joined(others, ", ")] if others else []
    return Message(" Try ", Message.joined([*listed, last], " or "), ".")
