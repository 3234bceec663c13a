"""The demo's page shows the numbers that came out, whoever wins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from srjt.reports.demo.experiment import METHODS, DemoSettings
from srjt.reports.demo.facts import (
    AuditFacts,
    DoubtfulLabel,
    LabelFacts,
    MethodFacts,
    RangeFacts,
    RangeOfImage,
    SeedFacts,
    WrongLabel,
    seed_facts_from,
)
from srjt.reports.pages.demo_page import demo_page, demo_ranking, demo_table
from srjt.reports.pages.html import render

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
