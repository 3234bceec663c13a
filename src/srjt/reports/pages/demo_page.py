"""The page of the demo: what is wrong with the labels, who learns it, who is best, what is found, a range."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from srjt.data.synthetic import redraw
from srjt.ordinal.metrics import METRICS
from srjt.reports.demo.experiment import PAPER, RECIPE, TEST_SEEDS, DemoSettings
from srjt.reports.demo.facts import AuditFacts, RangeFacts, SeedFacts
from srjt.reports.demo.findings import (
    Ranking,
    audit_sentences,
    label_sentences,
    mean_interval,
    precision_at,
    range_sentences,
    rank_methods,
    ranking_sentences,
    repeated_sentences,
)
from srjt.reports.figures.demo_figures import (
    precision_figure,
    ranking_figure,
    repeated_figure,
    severity_figure,
)
from srjt.reports.pages.html import Note, Page, Section, Tile, data_uri
from srjt.reports.tables.statistics import decimals
from srjt.reports.tables.table import Column, Row, Table, TableCell

__all__ = ["demo_page", "demo_ranking", "demo_table", "told"]

PIXELS = 128  # of an example
SHOWN = ("mae", "accuracy", "macro_f1")
AT = (20, 50, 100, 200)  # labels looked at


def demo_page(seeds: Sequence[SeedFacts], settings: DemoSettings, *, folder: Path, command: str) -> Page:
    """The page; the first of ``seeds`` has the audit and the ranges. folder: of the demo; command: how to call srjt."""
    first, ranking = seeds[0], demo_ranking(seeds)
    assert first.audit is not None
    assert first.ranges is not None
    return Page(
        kind="Demo",
        title="Labels that err as readers do",
        lead=ranking_sentences(ranking)[0],
        notes=[
            Note(
                text="The images are drawn by a program, so that the truth is known. The order of the methods on your "
                "data may be another one: srjt study compares them there."
            )
        ],
        sections=[
            _labels(seeds, settings),
            _result(seeds, settings, ranking),
            _repeated(seeds),
            _audit(first.audit, settings, seed=first.seed, folder=folder, command=command),
            _ranges(first.ranges, settings, seed=first.seed),
            _next(seeds, settings, command),
        ],
    )


def demo_ranking(seeds: Sequence[SeedFacts]) -> Ranking:
    """The methods by their MAE, which the software optimises unless it is told otherwise."""
    return rank_methods(_values(seeds, "mae"), lower_is_better=True)


def _values(seeds: Sequence[SeedFacts], metric: str) -> dict[str, list[float]]:
    return {name: [one.methods[name].scores[metric] for one in seeds] for name in seeds[0].methods}


def _pictures(rows: Sequence[int], settings: DemoSettings, *, seed: int, test: bool = False) -> list[str]:
    images, patients = settings.images, settings.patients
    if test:
        images, patients, seed = settings.test_images, settings.test_patients, TEST_SEEDS + seed
    drawn = redraw(rows, images=images, patients=patients, size=PIXELS, seed=seed)
    return [data_uri(Image.fromarray(one)) for one in drawn]


def _labels(seeds: Sequence[SeedFacts], settings: DemoSettings) -> Section:
    first = seeds[0]
    examples = first.labels.examples
    pictures = _pictures([one.row for one in examples], settings, seed=first.seed)
    text = label_sentences(first.labels)
    if examples:
        text.append("Some of the wrong labels, each with the true grade:")
    return Section(
        slug="labels",
        heading="What is wrong with the labels",
        text=text,
        tiles=[
            Tile(picture=picture, title=f"label {one.label}", number=f"true {one.true}")
            for picture, one in zip(pictures, examples, strict=True)
        ],
        figures=[severity_figure(seeds)],
    )


def told() -> str:
    """Who knows what."""
    return (
        f"{PAPER} is the paper’s method and is told the true share of wrong labels. The others are told nothing; "
        f"{RECIPE} estimates which grades are confused."
    )


def _result(seeds: Sequence[SeedFacts], settings: DemoSettings, ranking: Ranking) -> Section:
    place = ranking.order.index(RECIPE) + 1
    ordinal = ("first", "second", "third", "fourth")[place - 1]
    many = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    corrected = (
        f" The intervals of differences are 95 % intervals over seeds, corrected for {len(ranking.pairs)} comparisons "
        "(Bonferroni)."
        if len(seeds) > 1
        else ""
    )
    return Section(
        slug="result",
        heading="Who is best on true grades",
        text=[
            " ".join(ranking_sentences(ranking)),
            f"{RECIPE}, which srjt train uses by default, comes {ordinal} of {len(ranking.order)} by MAE. {told()}",
            f"Each of {many} draws other patients, other reading errors and other networks, and tests on "
            f"{settings.test_images:,} images of yet other patients, with true grades.{corrected}",
        ],
        figures=[ranking_figure(ranking, _values(seeds, "mae"))],
        tables=[demo_table(seeds)],
    )


def demo_table(seeds: Sequence[SeedFacts]) -> Table:
    """A row per method, the best MAE first: the mean of each metric with its interval over seeds."""
    ranking = demo_ranking(seeds)
    columns = [Column(name="method", label="method")]
    for metric in SHOWN:
        better = METRICS[metric]
        columns.append(
            Column(
                name=metric,
                label=better.short_name,
                better="lower" if better.lower_is_better else "higher",
                kind="number",
            )
        )
    columns.append(Column(name="repeated", label="wrong labels repeated", better="lower", kind="number"))
    rows = []
    for name in ranking.order:
        values = [_values(seeds, metric)[name] for metric in SHOWN]
        values.append([one.methods[name].repeated[-1] for one in seeds])
        rows.append(Row(cells=(TableCell(text=name), *map(_cell, values)), ours=name == RECIPE))
    spread = "mean ± half of its 95 % interval over seeds" if len(seeds) > 1 else "one seed"
    return Table(
        slug="demo",
        title=f"Test images, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}, best MAE first",
        caption=f"{spread[0].upper()}{spread[1:]}. Grades as srjt evaluate gives them: for the least MAE.",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _cell(values: Sequence[float]) -> TableCell:
    found = mean_interval(values)
    half = f" ± {decimals(found.high - found.value)}" if len(values) > 1 else ""
    return TableCell(text=f"{decimals(found.value)}{half}", value=found.value)


def _repeated(seeds: Sequence[SeedFacts]) -> Section:
    unseen = seeds[0].audit.unseen_repeated if seeds[0].audit else None
    methods = list(seeds[0].methods)
    ends = {name: [one.methods[name].repeated[-1] for one in seeds] for name in methods}
    corrected = ", ".join(
        f"{name} {mean_interval([one.methods[name].corrected for one in seeds]).value:.0%}"
        for name in methods
    )
    return Section(
        slug="mistakes",
        heading="Who learnt the mistakes",
        text=[
            " ".join(repeated_sentences(ends, unseen=unseen)),
            f"For the images behind these labels they say the true grade in: {corrected}.",
        ],
        figures=[
            repeated_figure(
                {name: [one.methods[name].repeated for one in seeds] for name in methods}, unseen=unseen
            )
        ],
    )


def _audit(facts: AuditFacts, settings: DemoSettings, *, seed: int, folder: Path, command: str) -> Section:
    pictures = _pictures([one.row for one in facts.worst], settings, seed=seed)
    tiles = [
        Tile(
            picture=picture,
            title=str(one.label) if one.suggested in (None, one.label) else f"{one.label} → {one.suggested}",
            number=f"true {one.true}",
            share=one.quality,
            right=one.label == one.true,
        )
        for picture, one in zip(pictures, facts.worst, strict=True)
    ]
    steps = [most for most in AT if most < facts.labels]
    rows = [
        Row(
            cells=(
                TableCell(text=str(most), value=most),
                TableCell(text=str(sum(facts.wrong_by_rank[:most])), value=sum(facts.wrong_by_rank[:most])),
                TableCell(
                    text=f"{precision_at(facts.wrong_by_rank, most):.0%}",
                    value=precision_at(facts.wrong_by_rank, most),
                ),
                TableCell(
                    text=f"{most * facts.wrong / facts.labels:.0f}", value=most * facts.wrong / facts.labels
                ),
            )
        )
        for most in steps
    ]
    return Section(
        slug="audit",
        heading="Which labels the audit finds",
        text=[
            f"srjt audit ranks {facts.labels:,} labels. It does not know the true "
            "grades; every label is judged by networks that were not trained on its patient.",
            " ".join(audit_sentences(facts)),
            "“A → B” is a label A for which B is more probable; the bar is the probability that the label is right. "
            "To decide about them in the browser:",
        ],
        code=f"{command} review {shlex.quote(str(folder / 'audit'))}",
        tiles=tiles,
        tables=[
            Table(
                slug="precision",
                title="Wrong labels among the most doubtful",
                caption="",
                columns=(
                    Column(name="looked_at", label="labels looked at", kind="number"),
                    Column(name="wrong", label="wrong", kind="number"),
                    Column(name="precision", label="precision", better="higher", kind="number"),
                    Column(name="by_chance", label="by chance", kind="number"),
                ),
                rows=tuple(rows),
            )
        ],
        figures=[precision_figure(facts)],
    )


def _ranges(facts: RangeFacts, settings: DemoSettings, *, seed: int) -> Section:
    pictures = _pictures([one.row for one in facts.images], settings, seed=seed, test=True)
    return Section(
        slug="ranges",
        heading="A range for one patient",
        text=[
            f"A single grade hides how sure it is. With --coverage {facts.promised:g} {RECIPE} gives a range of grades "
            "to each image.",
            " ".join(range_sentences(facts)),
            facts.promise,
        ],
        large_tiles=[
            Tile(
                picture=picture,
                title=f"grade {one.grade}, {_range(one.low, one.high)}",
                number=f"true {one.true}",
            )
            for picture, one in zip(pictures, facts.images, strict=True)
        ],
    )


def _range(low: int, high: int) -> str:
    return f"only {low}" if low == high else f"{low} to {high}"


def _next(seeds: Sequence[SeedFacts], settings: DemoSettings, command: str) -> Section:
    determined = sum(one.determined for one in seeds)
    rates = mean_interval([one.estimated_rate for one in seeds])
    truth = mean_interval([one.labels.wrong / one.labels.labels for one in seeds])
    return Section(
        slug="next",
        heading="On your own data",
        code=f"{command} data inspect labels.csv\n{command} train labels.csv --fold 0 --out runs/mine\n"
        f"{command} audit labels.csv --out audit",
        facts=[
            (
                "images per seed",
                f"{settings.images:,} of {settings.patients:,} patients, {settings.size} pixels",
            ),
            ("training", f"tiny network, {settings.epochs} epochs, {seeds[0].labels.labels:,} of the images"),
            ("seeds", ", ".join(str(one.seed) for one in seeds)),
            ("wrong labels", f"{truth.value:.0%} on average"),
            (
                f"estimated by {RECIPE}",
                f"{rates.value:.0%} on average; the data determine the rate for {determined} of {len(seeds)} seeds",
            ),
        ],
    )
