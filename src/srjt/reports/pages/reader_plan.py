"""The page of a plan of readings: ``srjt plan`` with the folder of ``srjt readers``."""

from __future__ import annotations

from collections.abc import Iterator

from srjt.errors import count_of
from srjt.readers.reader_plan import ReaderPlan
from srjt.reports.page import KeyNumber, Page, Section, page_of
from srjt.reports.pages.repeats import sentences, too_soon
from srjt.reports.table import between, data_table


def notes_of(plan: ReaderPlan) -> Iterator[str]:
    """What the numbers rest on."""
    if plan.reason:
        yield plan.reason


def warnings_of(plan: ReaderPlan) -> Iterator[str]:
    """What is wrong with the readings so far."""
    if plan.repeats is not None and plan.repeats.soon:
        yield too_soon(plan.repeats.soon, plan.repeats.items)


def second_of(plan: ReaderPlan) -> Iterator[str]:
    """What second readings tell, and how many are needed."""
    if plan.repeats is None:
        yield (
            f"No reader has read {plan.noun}s twice, so it is not known whether a second reading"
            " helps as much as a second reader."
        )
    else:
        yield from sentences(plan.repeats)
    yield (
        f"{plan.second:,} second readings, some weeks after the first ones, give the share of"
        f" grades that readers repeat within ± {plan.half_width:g}."
    )


@page_of.register(ReaderPlan)
def reader_plan_page(plan: ReaderPlan) -> Page:
    """How many items, readings and second readings."""
    widths = data_table(
        plan.table.rename(columns={"half_width": "± half-width", "items": f"{plan.noun}s"}),
        title="",
        caption=f"About four times as many {plan.noun}s halve the half-width.",
        formats={"± half-width": ".3g"},
        slug="plan",
    )
    sections = [Section("widths", "Other half-widths", tables=[widths], brief=True)]
    if len(plan.readings):
        shown = plan.readings[["readings", "wrong"]].rename(columns={"wrong": "wrong grades"})
        ends = plan.readings[["low", "high"]].to_numpy(float)
        shown["by shared errors"] = [between(low, high, ".0%") for low, high in ends]
        readings = data_table(
            shown,
            title=f"Readings of each {plan.noun}",
            caption=(
                "Expected share of wrong grades in the consensus of so many readings to come, by"
                " readers like these. By shared errors: from none to as many as one reader makes"
                f" alone; it does not contain how few {plan.noun}s were read so far."
            ),
            formats={"wrong grades": ".0%", "readings": ".0f"},
            slug="readings",
        )
        sections.append(Section("readings", "Readings", tables=[readings], brief=True))
    text = list(second_of(plan))
    low, high = plan.plausible
    sections.append(Section("second", "Second readings", text=text, brief=True))
    return Page(
        kind="Plan",
        title=(
            f"The agreement of two readers within ± {plan.half_width:g} needs"
            f" {count_of(plan.items, plan.noun)}"
        ),
        lead=(
            f"Judging from {count_of(plan.pilot, plan.noun)}, {low:,} to {high:,} may be needed. As"
            f" many readers as so far must read each {plan.noun}."
        ),
        warnings=list(warnings_of(plan)),
        remarks=list(notes_of(plan)),
        key_numbers=[KeyNumber.of("same grade", plan.agreement, ".0%", compared="so far")],
        sections=sections,
    )
