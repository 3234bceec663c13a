"""What the facts about several readers say, in sentences; each follows from the facts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from srjt.data.grade_names import display_grade
from srjt.data.sources.reading_notes import NO_READER
from srjt.errors import count_of
from srjt.readers.variants import ENOUGH as ENOUGH_ITEMS
from srjt.readers.worklist import NEW_READER
from srjt.reports.pages.reader_cells import range_text

__all__ = ["consensus_sentences", "findings", "lead", "next_sentence", "nothing_learnt"]

FEW = 10  # readings: of a reader with fewer little is known
ENOUGH = 5  # readings: with as many, always the same grade is remarkable
NAMED = 3  # readers in one sentence


def nothing_learnt(facts: Mapping[str, Any]) -> bool:
    """Whether nothing tells how readers err: one reading of each item, no trusted grade and no network. What the model
    says of readers and certainties then comes from its defaults alone."""
    alone = facts["reference"] is None and facts["probabilities"] is None
    return bool(alone and facts["consensus"]["single"] == facts["items"])


def lead(facts: Mapping[str, Any]) -> str:
    """The first sentence of the page."""
    names = [reader["name"] for reader in facts["readers"]]
    by = "" if names == [NO_READER] else f" by {count_of(len(names), 'reader')}"
    text = f"{count_of(facts['number_of_readings'], 'reading')} of {count_of(facts['items'], facts['noun'])}{by}."
    found = facts["agreement"]
    if found is not None and found.get("exact") is not None:
        exact, within = found["exact"]["value"], found["within_one"]["value"]
        text += (
            f" Two readers who read the same {facts['noun']} give it the same grade in {exact:.0%} of all cases, and "
            f"grades that differ by at most one in {within:.0%}."
        )
    return text


def findings(facts: Mapping[str, Any]) -> list[str]:
    """What a person should know before using the consensus."""
    sentences = [
        _not_determined(facts),
        _no_overlap(facts),
        _left_out(facts),
        _contradicted(facts),
        _always_the_same(facts),
        _higher(facts),
        _drifting(facts),
        _again(facts),
        _few(facts),
    ]
    return [sentence for sentence in sentences if sentence]


def consensus_sentences(facts: Mapping[str, Any]) -> list[str]:
    """What is known of the consensus."""
    found, noun = facts["consensus"], facts["noun"]
    if nothing_learnt(facts):
        return [f"The consensus of each {noun} is its reading."] if found.get("changed") == 0 else []
    wrong, between = found["expected_wrong"], range_text(found["wrong_readings_interval"], "{:.0%}")
    sentences = [
        f"About {found['wrong_readings']:.0%} of the readings (95 % interval: {between}) and {wrong:,.0f} of "
        f"{count_of(facts['items'], 'consensus grade')} ({wrong / facts['items']:.0%}) are expected to be wrong, by "
        "the model’s own probabilities."
    ]
    if found["uncertain"]:
        sentences.append(
            f"{count_of(found['uncertain'], noun)} {_are(found['uncertain'])} less than 60 % certain."
        )
    if found["single"]:
        single = "All" if found["single"] == facts["items"] else f"{found['single']:,} of {facts['items']:,}"
        sentences.append(f"{single} {noun}s have one reading only.")
    return [*sentences, str(found["assumption"])]


def next_sentence(facts: Mapping[str, Any]) -> str:
    """What the list of further readings is; why it is empty."""
    noun, wanted = facts["noun"], facts["next"]
    trusted = 0 if facts["reference"] is None else facts["reference"]["items"]
    if not wanted and trusted == facts["items"]:
        return f"Nothing to read next: every {noun} has a trusted grade."
    if not wanted:
        return "Nothing to read next: the table names no readers who could be asked."
    if any(row["reader"] != NEW_READER for row in wanted):
        return "Next, one more reading of these gains most:"
    which = f"{noun} without a trusted grade" if trusted else noun
    return (
        f"Every reader has read every {which}. Ask a new reader: one more reading of these by a reader who reads like "
        "the average of the others gains most:"
    )


def _not_determined(facts: Mapping[str, Any]) -> str:
    if facts["consensus"]["determined"]:
        return ""
    if nothing_learnt(facts):
        return (
            f"Each {facts['noun']} has one reading only, so nothing can be learnt about the readers. Let a second "
            f"reader read {ENOUGH_ITEMS} {facts['noun']}s or more, or add a column of trusted grades (reference); "
            "srjt audit looks for wrong labels with networks instead."
        )
    return f"{facts['consensus']['reason']} The certainties below rest on how often readers usually err."


def _no_overlap(facts: Mapping[str, Any]) -> str:
    if len(facts["readers"]) < 2 or facts["agreement"] is not None:
        return ""
    return (
        f"No {facts['noun']} was read by two readers: what differs between readers may as well differ between their "
        f"{facts['noun']}s."
    )


def _left_out(facts: Mapping[str, Any]) -> str:
    kinds = Counter(problem["kind"] for problem in facts["problems"])
    if not kinds:
        return ""
    counted = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return f"The table has problems ({counted}): they are listed below."


def _contradicted(facts: Mapping[str, Any]) -> str:
    known = facts["reference"]
    if known is None:
        return ""
    return (
        f"{count_of(known['items'], facts['noun'])} {'has' if known['items'] == 1 else 'have'} a trusted grade: "
        f"{known['readings_equal']:.0%} of {count_of(known['readings'], 'reading')} agree with it, and "
        f"{known['consensus_equal']:.0%} of the consensus grades that are computed without it (mean absolute error "
        f"{known['readings_error']:.2f} and {known['consensus_error']:.2f} grades)."
    )


def _always_the_same(facts: Mapping[str, Any]) -> str:
    grades = [display_grade(grade, facts["grade_names"]) for grade in facts["grades"]]
    same = [
        (reader["name"], grades[max(range(len(grades)), key=reader["by_grade"].__getitem__)])
        for reader in facts["readers"]
        if reader["readings"] >= ENOUGH and max(reader["by_grade"]) == reader["readings"]
    ]
    if not same:
        return ""
    named = "; ".join(f"{name} ({grade})" for name, grade in same[:NAMED])
    more = f"; and {len(same) - NAMED:,} more" if len(same) > NAMED else ""
    subject = "One reader always gives" if len(same) == 1 else f"{len(same):,} readers always give"
    return f"{subject} the same grade: {named}{more}. Such readings say nothing about an image."


def _higher(facts: Mapping[str, Any]) -> str:
    clear = [
        r
        for r in facts["readers"]
        if _excludes_zero(r["bias"], r["bias_interval"]) and abs(r["bias"]) >= 0.05 and r["readings"] >= FEW
    ]
    if len(facts["readers"]) < 2 or facts["bias_beside"] != "others" or not clear:
        return ""
    most = sorted(clear, key=lambda reader: -abs(reader["bias"]))[:NAMED]
    said = ", ".join(
        f"{r['name']} {abs(r['bias']):.2f} {'higher' if r['bias'] > 0 else 'lower'}" for r in most
    )
    others = len(clear) - len(most)
    more = f"; further readers whose interval excludes 0: {others:,}" if others else ""
    return f"Who grades higher or lower than the others who read the same {facts['noun']}s: {said}{more}."


def _excludes_zero(value: float | None, interval: Sequence[float | None]) -> bool:
    """Without an interval every draw gives the value itself."""
    low, high = (value if end is None else end for end in interval)
    return low is not None and high is not None and (low > 0 or high < 0)


def _again(facts: Mapping[str, Any]) -> str:
    again = [(r["repeated_items"], r["repeated"]) for r in facts["readers"] if r["repeated_items"]]
    if not again:
        return ""
    number = sum(count for count, _ in again)
    share = sum(count * same for count, same in again) / number
    if [reader["name"] for reader in facts["readers"]] == [NO_READER]:  # a crowd: nobody reads twice
        return f"Of two readings of the same {facts['noun']}, {share:.0%} have the same grade."
    return f"Read again by the same reader: {count_of(number, facts['noun'])}, with the same grade in {share:.0%}."


def _drifting(facts: Mapping[str, Any]) -> str:
    clear = [
        r
        for r in facts["readers"]
        if _excludes_zero(r["drift"], r["drift_interval"]) and r["readings"] >= FEW
    ]
    if not clear:
        return ""
    most = sorted(clear, key=lambda reader: -abs(reader["drift"]))[:NAMED]
    said = ", ".join(f"{r['name']} {r['drift']:+.2f}".replace("-", "−") for r in most)
    return f"Grades that change over time beside the other readers’, in grades per year: {said}."


def _few(facts: Mapping[str, Any]) -> str:
    few = sum(reader["readings"] < FEW for reader in facts["readers"])
    if not few or len(facts["readers"]) < 2 or nothing_learnt(facts):
        return ""
    which = "All readers" if few == len(facts["readers"]) else f"{few:,} of {len(facts['readers']):,} readers"
    verb = "has" if few == 1 and few < len(facts["readers"]) else "have"
    return f"{which} {verb} fewer than {FEW} readings: what is said of them follows mostly from the average reader."


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
