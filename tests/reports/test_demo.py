"""The demo: what it finds, and its page."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from srjt.reports.demo import (
    METHODS,
    AuditFacts,
    DemoSettings,
    DoubtfulLabel,
    LabelFacts,
    MethodFacts,
    RangeFacts,
    RangeOfImage,
    SeedFacts,
    WrongLabel,
    seed_facts_from,
)
from srjt.reports.page import render
from srjt.reports.pages.demo import (
    audit_sentences,
    demo_page,
    demo_ranking,
    demo_table,
    label_sentences,
    mean_interval,
    precision_at,
    range_sentences,
    rank_methods,
    ranking_sentences,
    repeated_sentences,
)

# The demo's sentences: whatever the numbers are, they say what the numbers say.

STANDARD, PAPER, SRJT = "standard", "co-teaching+ours", "srjt"
WOBBLE = np.array([0.01, -0.01, 0.02, -0.02, 0.0])  # the seeds, which all methods share
NOISE = np.array([0.03, -0.03, -0.02, 0.02, 0.0])


def scores(standard: float, paper: float, srjt: float) -> dict[str, list[float]]:
    means = {STANDARD: standard, PAPER: paper, SRJT: srjt}
    own = {STANDARD: 0.1 * NOISE, PAPER: 0.1 * np.roll(NOISE, 1), SRJT: 0.1 * np.roll(NOISE, 2)}
    return {name: list(mean + WOBBLE + own[name]) for name, mean in means.items()}


def test_the_interval_is_student_s() -> None:
    values = [0.31, 0.28, 0.35, 0.30]
    found = mean_interval(values)
    expected = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.value == pytest.approx(np.mean(values))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert math.isnan(mean_interval([0.3]).low)
    assert mean_interval([0.3, 0.3]).low == pytest.approx(0.3)


@pytest.mark.parametrize("names", [(STANDARD, PAPER, SRJT), (SRJT, STANDARD, PAPER), (PAPER, SRJT, STANDARD)])
def test_the_best_is_who_has_the_lowest_mean(names: tuple[str, str, str]) -> None:
    """Whoever it is, and by the same words: the recipe is not favoured."""
    given = scores(**dict(zip(("standard", "paper", "srjt"), (0.3, 0.3, 0.3), strict=True)))
    given = {name: list(np.array(given[name]) + 0.1 * names.index(name)) for name in given}
    ranking = rank_methods(given, lower_is_better=True)
    assert ranking.order == names
    first, second = ranking_sentences(ranking)
    assert first.startswith(f"{names[0]} has the lowest MAE, 0.300: clearly better than {names[1]} (by 0.100")
    assert second.startswith(f"{names[1]} is clearly better than {names[2]}: by 0.100")


def test_differences_that_may_be_chance_are_called_so() -> None:
    close = {STANDARD: [0.30, 0.35, 0.31], PAPER: [0.33, 0.30, 0.34], SRJT: [0.31, 0.33, 0.31]}
    first, *others = ranking_sentences(rank_methods(close, lower_is_better=True))
    assert first.startswith(
        "No method is clearly the best: srjt has the lowest mean MAE, 0.317, but its advantage over "
    )
    assert first.endswith("may be chance.")
    assert all("may not be better than" in sentence for sentence in others)
    mixed = scores(0.4, 0.3, 0.299)
    first, second = ranking_sentences(rank_methods(mixed, lower_is_better=True))
    assert first.startswith("srjt has the lowest MAE, 0.299. It is clearly better than standard (by 0.101")
    assert "its advantage over co-teaching+ours (by 0.001, interval −0.0" in first
    assert second.startswith("co-teaching+ours is clearly better than standard")


def test_one_seed_proves_nothing() -> None:
    (sentence,) = ranking_sentences(rank_methods({STANDARD: [0.3], SRJT: [0.2]}, lower_is_better=True))
    assert sentence == (
        "srjt has the lowest MAE, 0.200. One seed gives no interval: this may be chance, so run more seeds."
    )


def test_pairs_are_corrected_for_their_number() -> None:
    given = scores(0.4, 0.35, 0.3)
    pair = rank_methods(given, lower_is_better=True).pair(SRJT, STANDARD)
    difference = np.array(given[STANDARD]) - np.array(given[SRJT])
    expected = ttest_1samp(difference, 0.0).confidence_interval(1 - 0.05 / 3)
    assert (pair.by.low, pair.by.high) == pytest.approx((expected.low, expected.high))


def test_who_learnt_the_mistakes() -> None:
    learnt = scores(0.9, 0.6, 0.35)
    said = repeated_sentences(learnt, unseen=0.4)
    assert "standard 90%, co-teaching+ours 60%, srjt 35%." in said[0]
    assert said[2:] == ["standard and co-teaching+ours learnt mistakes by heart.", "srjt did not."]
    everybody = repeated_sentences(learnt, unseen=0.1)
    assert everybody[2:] == ["standard, co-teaching+ours and srjt learnt mistakes by heart."]
    assert repeated_sentences(learnt, unseen=0.95)[2:] == ["standard, co-teaching+ours and srjt did not."]
    assert repeated_sentences(learnt, unseen=0.349)[2:] == [
        "standard and co-teaching+ours learnt mistakes by heart.",
        "Whether srjt did is not clear: the difference may be chance.",
    ]
    one_seed = repeated_sentences({STANDARD: [0.9], SRJT: [0.3]}, unseen=0.4)
    assert one_seed[2:] == [
        "Whether standard did is not clear: the difference may be chance.", "srjt did not.",
    ]  # fmt: skip
    assert len(repeated_sentences(learnt, unseen=None)) == 1


def labels(**changes: object) -> LabelFacts:
    given: dict[str, object] = {
        "labels": 600, "wrong": 180, "by_one": 171, "too_mild": 120, "near": (200, 100), "far": (400, 80),
        "images": [], "mild": [], "severe": [], "examples": [],
    }  # fmt: skip
    return LabelFacts(**{**given, **changes})  # type: ignore[arg-type]


def test_what_is_wrong_with_the_labels() -> None:
    first, second = label_sentences(labels())
    assert (
        "180 of these labels are wrong (30%), 95% of them by one grade: 120 too mild, 60 too severe." in first
    )
    assert second.endswith(
        "50% have a wrong label, of the others 20%: the errors gather where two grades meet."
    )
    assert label_sentences(labels(near=(200, 20), far=(400, 160)))[1].endswith("of the others 40%.")
    assert label_sentences(labels(wrong=0)) == ["None of 600 training labels is wrong."]


def audited(found: int, *, identifiable: bool = True) -> AuditFacts:
    worst = [DoubtfulLabel(row=0, label=1, suggested=2, true=true, quality=0.1) for true in (2, 2, 1, 0)]
    flags = [True] * found + [False] * (100 - found) + [True] * (60 - found) + [False] * (100 - 60 + found)
    return AuditFacts(
        labels=200, wrong=60, wrong_by_rank=flags, worst=worst, rate=0.28, rate_interval=(0.2, 0.4),
        identifiable=identifiable, unseen_repeated=0.3,
    )  # fmt: skip


def test_which_labels_the_audit_finds() -> None:
    first, second, third = audit_sentences(audited(40))
    assert first == "Of the 50 most doubtful labels 40 are wrong; as many labels at random would contain 15."
    assert second.startswith(
        "The audit estimates that 28% of the labels are wrong (95 % interval 20% to 40%)."
    )
    assert third == (
        "Below are the 4 most doubtful ones: 3 are wrong, and for 2 of these the suggested grade is the true one."
    )
    assert audit_sentences(audited(10))[0].endswith(
        "10 are wrong; no more than the 15 that a random choice would find."
    )
    assert "do not determine" in audit_sentences(audited(40, identifiable=False))[1]
    assert precision_at(audited(40).wrong_by_rank, 50) == pytest.approx(0.8)


def test_a_range_for_one_patient() -> None:
    images = [RangeOfImage(row=0, true=true, grade=1, low=1, high=2) for true in (1, 2, 3)]
    facts = RangeFacts(
        promised=0.9, reached=0.93, width=2.1, grades=4, patient="p007", images=images, promise="…"
    )
    patient, overall = range_sentences(facts)
    assert patient == ("Patient p007 has 3 images. The range contains the true grade of 2 of 3.")
    assert "93% of the ranges contain the true grade (as promised: at least 90%)" in overall
    short = RangeFacts(**{**vars(facts), "reached": 0.88, "images": images[:2]})
    patient, overall = range_sentences(short)
    assert patient.endswith("The range contains the true grade of all.")
    assert "less than promised" in overall


# The demo's page shows the numbers that came out, whoever wins.

SETTINGS = DemoSettings(images=200, test_images=200, epochs=3)


def facts(seed: int, maes: dict[str, float]) -> SeedFacts:
    """A seed with these MAEs; the audit and the ranges as for the first one."""
    shift = 0.004 * (seed % 3)
    return SeedFacts(
        seed=seed,
        labels=LabelFacts(
            labels=160, wrong=48, by_one=45, too_mild=30, near=(60, 30), far=(100, 18), images=[10] * 16,
            mild=[1] * 16, severe=[2] * 16, examples=[WrongLabel(row=3, label=0, true=1)],
        ),
        methods={
            name: MethodFacts(
                scores={"mae": mae + shift, "accuracy": 1 - mae, "macro_f1": 0.5, "qwk": 0.6},
                repeated=[0.4, 0.5, 0.6 + shift],
                corrected=0.3,
            )
            for name, mae in maes.items()
        },
        estimated_rate=0.25,
        determined=seed == 0,
        audit=AuditFacts(
            labels=200, wrong=60, wrong_by_rank=[True] * 60 + [False] * 140,
            worst=[DoubtfulLabel(row=5, label=1, suggested=2, true=2, quality=0.1)],
            rate=0.3, rate_interval=(0.2, 0.4), identifiable=True, unseen_repeated=0.35,
        ),
        ranges=RangeFacts(
            promised=0.9, reached=0.95, width=2.0, grades=4, patient="p003", promise="The promise.",
            images=[RangeOfImage(row=2, true=1, grade=1, low=0, high=1)],
        ),
    )  # fmt: skip


def page_of(seeds: list[SeedFacts]) -> str:
    return render(demo_page(seeds, SETTINGS, folder=Path("my demo"), command="srjt"))


@pytest.mark.parametrize("order", [METHODS, METHODS[::-1]])
def test_the_table_and_the_first_sentence_name_who_is_best(order: tuple[str, ...]) -> None:
    seeds = [facts(seed, {name: 0.3 + 0.05 * order.index(name) for name in METHODS}) for seed in range(4)]
    assert demo_ranking(seeds).order == order
    assert [row.cells[0].text for row in demo_table(seeds).rows] == list(order)
    page = page_of(seeds)
    lead = re.search(r'<p class="lead">(.*?)</p>', page, flags=re.DOTALL)
    assert lead is not None
    assert lead[1].strip().startswith(f"{order[0]} has the lowest MAE")
    place = ("first", "second", "third", "fourth")[order.index("srjt")]
    assert f"comes {place} of 4 by MAE" in page
    assert "corrected for 6 comparisons" in page


def test_the_page_shows_the_pictures_and_the_numbers() -> None:
    page = page_of([facts(seed, dict.fromkeys(METHODS, 0.3)) for seed in range(3)])
    assert page.count("<img ") == 3
    assert page.count("<svg ") == 4
    assert "48 of these labels are wrong (30%)" in page
    assert "Of the 50 most doubtful labels 50 are wrong" in page
    assert "srjt review &#39;my demo/audit&#39;" in page
    assert "the data determine the rate for 1 of 3 seeds" in page
    assert "1 → 2" in page
    assert "0 to 1" in page


def test_one_seed_has_no_intervals() -> None:
    page = page_of([facts(0, {"standard": 0.3, "co-teaching+ours": 0.4, "srjt": 0.35})])
    assert "One seed gives no interval" in page
    assert "±" not in page
    assert "Bonferroni" not in page
    assert "nan" not in re.sub(
        r"<svg.*?</svg>|<script.*?</script>|<style.*?</style>|data:[^\"]*", "", page, flags=re.DOTALL
    )


def test_facts_survive_their_file() -> None:
    import json

    one = facts(2, dict.fromkeys(METHODS, 0.3))
    assert seed_facts_from(json.loads(json.dumps(one.to_dict()))) == one
