"""The sample of an audit whose labels are verified without being seen: drawn by doubt, or all
labels alike.

``verification.csv`` in the folder of the audit holds a sample that is drawn by doubt: every label
that may be drawn, in the order in which they are verified, with its doubt and the numbers that its
probability follows from (``srjt.noise.drawing``). It is written before the first label is shown and
never changes, so that a larger sample begins with the smaller one, and a repeated audit, whose
doubt is another one, does not draw anew. A folder without this file has a sample at random.

Whoever stops when an interval is short enough stops when chance made it short. So the interval is
looked at after a few numbers of labels that are fixed beforehand, and the looks share the error
probability of 5 % (Bonferroni): the intervals of all looks hold together with 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from srjt.auditing.blind_readings import (
    SEED,
    draw_sample,
    read_answers,
    read_verified_grades,
    with_verified_grades,
)
from srjt.auditing.folder import AuditFolder, read_summary
from srjt.auditing.review_log import Answer
from srjt.auditing.scores import WITHIN, verified_alone, verified_summary
from srjt.data.images.decode import BadImageError, read_image
from srjt.data.manifest import Manifest
from srjt.data.options import picked
from srjt.errors import Option, SrjtError, count_of
from srjt.files import as_csv, check_regular_file, write_atomically
from srjt.noise.drawing import Drawing, draw_by_doubt, labels_needed
from srjt.noise.matrices import Floats, Ints
from srjt.noise.verified import Share, Verified, labels_to_verify, verified_share
from srjt.ordinal import patient_codes

FILE = "verification.csv"
ADVICE = f"restore it, or move {FILE} and decisions.sqlite away to begin a new sample"


@dataclass(frozen=True, eq=False)
class Plan:
    """The labels that may be drawn, by the names of their samples, and the order in which they are
    verified."""

    ids: list[str]
    drawing: Drawing
    doubt: Floats  # of each label, when the sample was drawn

    @property
    def in_order(self) -> list[str]:
        return [self.ids[row] for row in self.drawing.order]

    def probability(self, answered: Sequence[str]) -> dict[str, float]:
        """With which each label of the sample was drawn. answered: the samples with an answer, in
        any order.

        Labels are answered in their order, so the sample reaches to the last answer. Whoever cannot
        tell a grade leaves a gap, as in a sample at random.
        """
        names = self.in_order
        drawn = _sample_size(names, set(answered))
        chances = self.drawing.probability(drawn)
        return {names[place]: float(chances[self.drawing.order[place]]) for place in range(drawn)}


def _sample_size(names: Sequence[str], answered: Container[str]) -> int:
    """The sample reaches to the last answer."""
    places = [place for place, name in enumerate(names, start=1) if name in answered]
    return max(places, default=0)


def read_plan(folder: Path) -> Plan | None:
    """The sample that is drawn by doubt; None if there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    check_regular_file(path)
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        doubt, size, place = (
            table[name].to_numpy().astype(np.float64) for name in ("doubt", "size", "place")
        )
        ids = table["id"].tolist()
        possible = (
            (size > 0.0)
            & (size < np.inf)
            & (place > 0.0)
            & (place < np.inf)
            & (doubt >= 0.0)
            & (doubt <= 1.0)
        )
        if (
            not len(ids)
            or not possible.all()
            or len(set(ids)) < len(ids)
            or (np.diff(place) < 0.0).any()
        ):
            raise ValueError("its rows are not those of a sample")
    except (OSError, ValueError, KeyError) as problem:
        raise SrjtError(
            f"{path} is damaged or not from srjt ({problem}): {ADVICE}.", code="damaged_file"
        ) from None
    return Plan(
        ids=ids, drawing=Drawing(order=np.arange(len(ids)), size=size, place=place), doubt=doubt
    )


def write_plan(audit: AuditFolder) -> Plan:
    """Draw the labels that nobody has verified, by doubt, and keep the order in the folder."""
    lines = sorted(np.flatnonzero(audit.verified < 0).tolist(), key=audit.ids.__getitem__)
    names = [audit.ids[row] for row in lines]
    doubt = np.clip(1.0 - audit.quality[lines], 0.0, 1.0)
    drawing = draw_by_doubt(doubt, seed=SEED)
    columns = {"id": names, "doubt": doubt, "size": drawing.size, "place": drawing.place}
    write_atomically(audit.folder / FILE, as_csv(pd.DataFrame(columns).iloc[drawing.order]))
    return Plan(ids=names, drawing=drawing, doubt=doubt)


def choose_plan(audit: AuditFolder, *, at_random: bool, begun: bool) -> Plan | None:
    """The sample that is drawn by doubt, a new one if none is begun; None: all labels are drawn
    alike.

    at_random: whether all labels are to be drawn alike. begun: whether labels are verified already.
    Networks that have learnt nothing doubt at random, so there is nothing to draw by.
    """
    plan = read_plan(audit.folder)
    if plan is not None and at_random:
        raise SrjtError(
            f"The sample of this audit ({FILE}) was drawn with more of the doubtful labels. Leave"
            " out ",
            Option("at_random"),
            ", or audit to another folder.",
            code="conflict",
        )
    if (
        plan is None
        and not at_random
        and not begun
        and audit.facts.judged
        and (audit.verified < 0).any()
    ):
        plan = write_plan(audit)
    if plan is not None:
        check_plan(plan, audit.ids, audit.verified)
    return plan


def check_plan(plan: Plan, ids: Sequence[str], verified: Ints | None) -> None:
    """Refuse a sample of other labels. verified: (N,) grades that are known without it, −1
    elsewhere."""
    unknown = np.array(ids, dtype=object)
    if verified is not None:
        unknown = unknown[verified < 0]
    if new := set(unknown).difference(plan.ids):
        raise SrjtError(
            f"The data have new samples, such as {min(new)}, which {FILE} could not draw. Audit to"
            f" another folder, or move {FILE} and decisions.sqlite away to begin a new sample.",
            code="data_changed",
        )


def sample_lines(audit: AuditFolder, size: int, plan: Plan | None) -> list[int]:
    """The lines of the first ``size`` labels that are verified, in their order."""
    if plan is None:
        return draw_sample(audit, size)
    return list(picked(audit.line_of, plan.in_order).values())[:size]


def read_probabilities(folder: Path) -> dict[str, float] | None:
    """With which each verified label was drawn, by id; None if all labels were drawn alike."""
    plan = read_plan(folder)
    if plan is None:
        return None
    return plan.probability([answer.id for answer in read_answers(folder, "verify")])


def with_verified_sample(manifest: Manifest, folder: Path) -> Manifest:
    """The samples with the grades that are verified in this folder, and with the probabilities of
    their draw.

    What the table says of a verified grade was not drawn here: it is known, with the probability 1.
    """
    plan = read_plan(folder)
    if plan is not None:
        # what cannot be read is not audited, and could not be drawn
        usable = manifest.select(_drawable(manifest, plan))
        check_plan(plan, usable.ids, usable.verified_labels)
    checked = with_verified_grades(manifest, read_verified_grades(folder))
    probability = read_probabilities(folder)
    verified = checked.verified_labels
    if probability is None or verified is None:
        return checked
    chances = np.where(verified >= 0, 1.0, np.nan)
    for row, name in enumerate(checked.ids):
        chances[row] = probability.get(name, chances[row])
    return replace(checked, table=checked.table.assign(verified_probability=chances))


def _drawable(manifest: Manifest, plan: Plan) -> Ints:
    """The rows of the sample's labels, and of others whose image can be read."""
    known = set(plan.ids)
    drawable = [
        manifest.arrays is not None or name in known or _is_readable(manifest.paths[row])
        for row, name in enumerate(manifest.ids)
    ]
    return np.flatnonzero(drawable)


def _is_readable(path: Path) -> bool:
    try:
        read_image(path)
    except BadImageError:
        return False
    return True


def drawn_by(manifest: Manifest, folder: Path) -> Floats | None:
    """(N,) the doubt by which the verified labels were drawn, so that the audit says of them what
    the review has said; None if they were not drawn by doubt in this folder."""
    plan = read_plan(folder)
    verified = manifest.verified_labels
    if plan is None or verified is None or manifest.verified_probability is None:
        return None
    check_plan(plan, manifest.ids, verified)
    place = pd.Index(plan.ids).get_indexer(pd.Index(manifest.ids))
    # what could not be drawn was known before
    known = (manifest.labels != verified).astype(np.float64)
    return np.where(place >= 0, plan.doubt[place], known)


# What the verified labels say, before the audit is repeated.

LOOKS = (50, 100, 200, 400)  # numbers of verified labels


def sample_share(
    audit: AuditFolder,
    answers: Sequence[Answer],
    plan: Plan | None,
    *,
    size: int | None = None,
    looks: int = 1,
) -> tuple[Share, int, int] | None:
    """The share of wrong labels by the sample, the verified labels and the wrong ones of them; None
    without any.

    size: of the sample, of which the first labels count alone; None: all. looks: at how many sizes
    it is looked at.
    """
    sample = sample_lines(audit, len(audit), plan)
    grades = {answer.id: answer.grade for answer in answers}
    drawn = _sample_size([audit.ids[row] for row in sample], grades)
    if size is not None:
        drawn = min(drawn, size)
    graded = [line for line in sample[:drawn] if grades.get(audit.ids[line]) in audit.grades]
    if not graded:
        return None
    lines = np.array(graded)
    names = [audit.ids[row] for row in graded]
    given = np.array(audit.grades, dtype=object)[audit.labels[lines]]
    wrong = (np.array([grades[name] for name in names], dtype=object) != given).astype(np.float64)
    doubt = np.zeros(len(graded))
    mean_doubt = 0.0
    chances = np.full(len(graded), drawn / len(sample))
    if plan is not None:
        rows = pd.Index(plan.ids).get_indexer(pd.Index(names))
        doubt = plan.doubt[rows]
        mean_doubt = float(plan.doubt.mean())
        chances = plan.drawing.probability(drawn)[rows]
    checked = Verified(rows=lines, true=np.zeros(len(lines), dtype=np.int64), probability=chances)
    share = verified_share(
        wrong,
        doubt,
        checked,
        mean_doubt=mean_doubt,
        samples=len(sample),
        owner=patient_codes(audit.patients, len(audit)),
        confidence=1.0 - 0.05 / looks,
    )
    return share, len(graded), int(wrong.sum())


@dataclass(frozen=True, kw_only=True)
class Look:
    """Where a sequence of looks stands: the last one, if there was one, and the size of the
    next."""

    size: int  # of the sample at the last look; 0: there was none
    share: Share | None
    reached: bool  # whether the interval is as short as wanted
    next_size: int | None  # None: no look is left


def planned_looks(audit: AuditFolder, plan: Plan | None) -> list[int]:
    """The numbers of verified labels after which the interval is computed."""
    return sorted({min(size, labels_to_draw(audit, plan)) for size in LOOKS})


def labels_to_draw(audit: AuditFolder, plan: Plan | None) -> int:
    """How many labels can be drawn."""
    return len(audit) if plan is None else len(plan.ids)


def next_look(
    audit: AuditFolder, answers: Sequence[Answer], plan: Plan | None, *, within: float
) -> Look:
    """The first look whose interval is at most ± ``within``, or the next one that the answers do
    not reach."""
    if not 0.0 < within < 0.5:
        raise SrjtError(
            Option("within"),
            " is the half-width of an interval, between 0 and 0.5, such as 0.05 or 5%; got"
            f" {within:g}.",
            code="out_of_bounds",
        )
    looks = planned_looks(audit, plan)
    answered = {answer.id for answer in answers}
    last = Look(size=0, share=None, reached=False, next_size=looks[0])
    for number, size in enumerate(looks):
        if any(audit.ids[row] not in answered for row in sample_lines(audit, size, plan)):
            break
        verified = sample_share(audit, answers, plan, size=size, looks=len(looks))
        if verified is None:
            break
        share, *_ = verified
        low, high = share.interval
        if (high - low) / 2.0 <= within:
            return Look(size=size, share=share, reached=True, next_size=None)
        following = looks[number + 1] if size < looks[-1] else None
        last = Look(size=size, share=share, reached=False, next_size=following)
    return last


def labels_needed_for_rate(audit: AuditFolder) -> str:
    """How many labels the rate needs, drawn by doubt and at random, as the page of the audit says;
    "" if it is known, or the folder has no summary."""
    if not (audit.folder / "summary.json").exists():  # a review does without
        return ""
    summary = read_summary(audit.folder)
    more = summary["verify_more"]
    if not more:
        return ""
    if at_random := summary.get("verify_random"):
        return (
            f"To know the rate within ±{WITHIN:.0%}, about {more:,} labels drawn by doubt are"
            f" needed, or {at_random:,} at random.{more_of_patients(summary)}"
        )
    labels = count_of(more, "more label" if summary.get("verified") else "label")
    return f"To know the rate within ±{WITHIN:.0%}, about {labels} are needed."


def labels_needed_for_looks(
    audit: AuditFolder, plan: Plan | None, look: Look, *, within: float
) -> str:
    """At which look the interval is expected to be short enough. look: the last one."""
    looks = planned_looks(audit, plan)
    confidence = 1.0 - 0.05 / len(looks)
    rate = 0.5  # the rate that needs most
    if look.share is not None:
        rate = look.share.rate
    elif audit.determined:
        rate = float(1.0 - audit.quality.mean())
    if plan is None:
        infinite = labels_to_verify(rate, within=within, confidence=confidence)
        needed = math.ceil(infinite / (1.0 + infinite / len(audit)))
    else:
        needed = labels_needed(plan.doubt, within=within, rate=rate, confidence=confidence)
    enough = next((f"{size:,}" for size in looks if size >= needed), f"more than {looks[-1]:,}")
    expected = f"For ±{100.0 * within:g}%, {enough} labels are expected to be needed."
    if look.share is not None:
        return expected
    *some, last = map(str, looks)
    sizes = f"{', '.join(some)} and {last}" if some else last
    return f"The interval is computed after {sizes} labels. {expected}"


def more_of_patients(summary: Mapping[str, Any]) -> str:
    """The condition of such a number, if images have patients."""
    if summary["patients"] is None:
        return ""
    return " More are needed if wrong labels are those of few patients."


def verified_so_far(audit: AuditFolder, answers: Sequence[Answer], plan: Plan | None = None) -> str:
    """How many of the verified labels are wrong, in one sentence; "" if nothing is verified."""
    if plan is not None:
        verified = sample_share(audit, answers, plan)
        if verified is None:
            return ""
        share, labels, wrong = verified
        low, high = share.interval
        return (
            f"Wrong among {count_of(labels, 'label')} verified by doubt: {wrong:,}. Weighted by the"
            f" probabilities of their draw, {share.rate:.0%} of all labels are wrong (95 %"
            f" interval: {low:.0%} to {high:.0%})."
        )
    wrong_labels = {}
    for answer in answers:
        line = audit.line_of.get(answer.id)
        if line is not None and answer.grade in audit.grades:
            wrong_labels[answer.id] = answer.grade != audit.grades[audit.labels[line]]
        else:
            wrong_labels.pop(answer.id, None)  # the last answer counts
    if not wrong_labels:
        return ""
    return verified_alone(verified_summary(np.array([*wrong_labels.values()], np.float64)))
