"""The page of the demo: what is wrong with the labels, who learns it, who is best, what is found, a range."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from srjt.data.checks import data_uri
from srjt.data.synthetic import redraw
from srjt.ordinal.intervals import Interval
from srjt.ordinal.metrics import METRICS
from srjt.reports.demo import (
    BINS,
    PAPER,
    RECIPE,
    TEST_SEEDS,
    AuditFacts,
    DemoSettings,
    LabelFacts,
    RangeFacts,
    SeedFacts,
)
from srjt.reports.figures.canvas import (
    GREY,
    INK,
    PALETTE,
    CaptionedFigure,
    Curve,
    chart,
    house_style,
    method_styles,
    new_figure,
)
from srjt.reports.page import Note, Page, Section, Tile
from srjt.reports.statistics import decimals
from srjt.reports.table import Column, Row, Table, TableCell
from srjt.studies.paired_tests import corrected_t_test

# What the numbers of the demo say, in sentences. Each one follows from the numbers alone: nobody wins by
# decree.

LEVEL = 0.95


class Pair(NamedTuple):
    """How much better one method is than another, on average over the seeds."""

    better: str
    worse: str
    by: Interval  # the interval is corrected for the number of pairs

    @property
    def clear(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.by.low > 0


class Ranking(NamedTuple):
    """Methods from the best to the worst mean, and all pairs of them."""

    order: tuple[str, ...]
    means: dict[str, Interval]
    pairs: list[Pair]
    seeds: int

    def pair(self, better: str, worse: str) -> Pair:
        return next(pair for pair in self.pairs if (pair.better, pair.worse) == (better, worse))


def mean_interval(values: Sequence[float], *, level: float = LEVEL) -> Interval:
    """The mean of independent values with Student's interval; nan for the ends if there are one or two."""
    found = corrected_t_test(values, test_train_ratio=0.0, confidence=level)
    mean = math.nan if found.difference is None else found.difference
    if found.low is None or found.high is None:
        same = found.std == 0.0  # equal values: nothing varies
        return Interval(mean, mean if same else math.nan, mean if same else math.nan)
    return Interval(mean, found.low, found.high)


def rank_methods(scores: Mapping[str, Sequence[float]], *, lower_is_better: bool) -> Ranking:
    """Order methods by their mean over the seeds. scores: method → (S,), the seeds in the same order for all."""
    sign = 1.0 if lower_is_better else -1.0
    order = tuple(sorted(scores, key=lambda name: sign * float(np.mean(scores[name]))))
    compared = list(combinations(order, 2))
    level = 1.0 - (1.0 - LEVEL) / max(1, len(compared))
    pairs = [
        Pair(
            better,
            worse,
            mean_interval(sign * (np.asarray(scores[worse]) - np.asarray(scores[better])), level=level),
        )
        for better, worse in compared
    ]
    means = {name: mean_interval(scores[name]) for name in order}
    return Ranking(order, means, pairs, len(scores[order[0]]))


def ranking_sentences(ranking: Ranking, *, metric: str = "MAE", extreme: str = "lowest") -> list[str]:
    """Who is best, against whom that is clear, and whether the rest is."""
    best, *others = ranking.order
    mean = f"{ranking.means[best].value:.3f}"
    if ranking.seeds == 1:
        return [
            f"{best} has the {extreme} {metric}, {mean}. One seed gives no interval: this may be chance, so run more "
            "seeds."
        ]
    clear = [name for name in others if ranking.pair(best, name).clear]
    unclear = [name for name in others if name not in clear]
    if not clear:
        sentences = [
            f"No method is clearly the best: {best} has the {extreme} mean {metric}, {mean}, but its advantage over "
            f"{_each(ranking, best, others)} may be chance."
        ]
    elif unclear:
        sentences = [
            f"{best} has the {extreme} {metric}, {mean}. It is clearly better than {_each(ranking, best, clear)}; its "
            f"advantage over {_each(ranking, best, unclear)} may be chance."
        ]
    else:
        sentences = [
            f"{best} has the {extreme} {metric}, {mean}: clearly better than {_each(ranking, best, others)}."
        ]
    for first, second in combinations(others, 2):
        pair = ranking.pair(first, second)
        how = "is clearly better than" if pair.clear else "has the better mean, but may not be better than"
        sentences.append(f"{first} {how} {second}: by {_by(pair)}.")
    return sentences


def _each(ranking: Ranking, best: str, others: Sequence[str]) -> str:
    return _names([f"{name} (by {_by(ranking.pair(best, name))})" for name in others])


def _by(pair: Pair) -> str:
    return f"{pair.by.value:.3f}, interval {decimals(pair.by.low)} to {decimals(pair.by.high)}"


def label_sentences(facts: LabelFacts) -> list[str]:
    """What is wrong with the labels."""
    if not facts.wrong:
        return [f"None of {facts.labels:,} training labels is wrong."]
    severe = facts.wrong - facts.too_mild
    sentences = [
        f"A simulated reader graded {facts.labels:,} training images. {facts.wrong:,} of these labels are wrong "
        f"({facts.wrong / facts.labels:.0%}), {facts.by_one / facts.wrong:.0%} of them by one grade: "
        f"{facts.too_mild:,} too mild, {severe:,} too severe."
    ]
    (near, wrong_near), (far, wrong_far) = facts.near, facts.far
    if near and far:
        close, away = wrong_near / near, wrong_far / far
        gather = ": the errors gather where two grades meet" if close > away else ""
        sentences.append(
            f"Of the images within a quarter of a grade of a boundary {close:.0%} have a wrong label, of the others "
            f"{away:.0%}{gather}."
        )
    return sentences


def repeated_sentences(repeated: Mapping[str, Sequence[float]], *, unseen: float | None) -> list[str]:
    """Who learnt the mistakes. repeated: method → (S,) share of the wrong labels at the end; unseen: that share for
    networks that never saw these labels."""
    ranking = rank_methods(repeated, lower_is_better=False)
    shares = ", ".join(f"{name} {ranking.means[name].value:.0%}" for name in ranking.order)
    sentences = [f"At the end the networks repeat, of the wrong labels that they were trained on: {shares}."]
    if unseen is None:
        return sentences
    sentences.append(
        f"Networks that were not trained on these labels repeat {unseen:.0%} of them: an image that misled the reader "
        "can mislead a network, too. More than that is learnt by heart."
    )
    means = ranking.means
    known = {name: "learnt" if _above(means[name], unseen) else "not" for name in ranking.order}
    for name in ranking.order:
        if known[name] == "not" and means[name].value > unseen:
            known[name] = "unclear"
    said = {
        "learnt": "{} learnt mistakes by heart.",
        "unclear": "Whether {} did is not clear: the difference may be chance.",
        "not": "{} did not.",
    }
    for state, sentence in said.items():
        if names := [name for name in ranking.order if known[name] == state]:
            sentences.append(sentence.format(_names(names)))
    return sentences


def _above(share: Interval, level: float) -> bool:
    """Whether a share is clearly above a level; one seed makes nothing clear."""
    return math.isfinite(share.low) and share.low > level


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def precision_at(wrong_by_rank: Sequence[bool], most: int) -> float:
    """The share of wrong labels among the ``most`` most doubtful ones."""
    return float(np.mean(np.asarray(wrong_by_rank[:most], dtype=np.float64)))


def audit_sentences(facts: AuditFacts, *, looked_at: int = 50) -> list[str]:
    """Which labels the audit finds."""
    most = min(looked_at, facts.labels)
    found, expected = sum(facts.wrong_by_rank[:most]), most * facts.wrong / facts.labels
    better = (
        f"as many labels at random would contain {expected:.0f}"
        if found > expected
        else f"no more than the {expected:.0f} that a random choice would find"
    )
    low, high = facts.rate_interval
    rate = f"{facts.rate:.0%} of the labels are wrong (95 % interval {low:.0%} to {high:.0%})"
    truth = f"In truth {facts.wrong / facts.labels:.0%} are."
    estimate = (
        f"The audit estimates that {rate}. {truth}"
        if facts.identifiable
        else f"How many labels are wrong the data do not determine; the audit’s guess is that {rate}. {truth}"
    )
    sentences = [f"Of the {most} most doubtful labels {found} are wrong; {better}.", estimate]
    right = sum(one.suggested == one.true for one in facts.worst if one.label != one.true)
    errors = sum(one.label != one.true for one in facts.worst)
    if errors:
        sentences.append(
            f"Below are the {len(facts.worst)} most doubtful ones: {errors} {'is' if errors == 1 else 'are'} wrong, "
            f"and for {right} of these the suggested grade is the true one."
        )
    return sentences


def range_sentences(facts: RangeFacts) -> list[str]:
    """What a range of grades says about one patient, and whether ranges keep their promise."""
    inside = sum(one.low <= one.true <= one.high for one in facts.images)
    images = len(facts.images)
    number = f"{images} image{'s' if images != 1 else ''}"
    how_many = "all" if inside == images else f"{inside} of {images}"
    patient = f"Patient {facts.patient} has {number}. The range contains the true grade of {how_many}."
    kept = (
        "as promised" if facts.reached >= facts.promised else "less than promised, on this many test patients"
    )
    overall = (
        f"Over all test images {facts.reached:.0%} of the ranges contain the true grade ({kept}: at least "
        f"{facts.promised:.0%}), and a range has {facts.width:.1f} of {facts.grades} grades on average."
    )
    return [patient, overall]


# The figures of the demo: where the labels are wrong, who is best, who learns the mistakes, what the audit
# finds.


def severity_figure(seeds: Sequence[SeedFacts]) -> CaptionedFigure:
    """The share of wrong labels by severity."""
    images, mild, severe = (
        np.sum([getattr(one.labels, name) for one in seeds], axis=0) for name in ("images", "mild", "severe")
    )
    mild, severe = mild / np.maximum(images, 1), severe / np.maximum(images, 1)
    return CaptionedFigure(
        name="demo-labels",
        figure=_draw_severity(mild, severe),
        caption="Share of wrong labels by true severity, all seeds together. Grades change at the vertical lines.",
        alt=f"Bars of the share of wrong labels by severity; the highest is {np.max(mild + severe):.0%}.",
    )


@house_style
def _draw_severity(mild: np.ndarray, severe: np.ndarray) -> Figure:
    figure = new_figure(5.4, 2.8)
    axes = figure.add_axes((0.1, 0.18, 0.87, 0.7))
    at = (np.arange(len(mild)) + 0.5) / BINS
    axes.bar(at, mild, width=0.8 / BINS, color=PALETTE["blue"], alpha=0.85)
    axes.bar(at, severe, bottom=mild, width=0.8 / BINS, color=PALETTE["vermillion"], alpha=0.85)
    for boundary in range(1, len(mild) // BINS):
        axes.axvline(boundary, color=GREY, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlabel="true severity; grade 0 from 0 to 1, grade 1 from 1 to 2, …", xlim=(0, len(mild) / BINS))
    axes.set_title("Share of wrong labels", pad=8)
    top = float(np.max(mild + severe, initial=0.05))
    axes.set_ylim(0, 1.25 * top)
    axes.text(0.02, 0.97, "■ too mild", color=PALETTE["blue"], transform=axes.transAxes, va="top")
    axes.text(0.2, 0.97, "■ too severe", color=PALETTE["vermillion"], transform=axes.transAxes, va="top")
    return figure


def ranking_figure(ranking: Ranking, values: Mapping[str, Sequence[float]]) -> CaptionedFigure:
    """Each method's MAE: a dot per seed, the mean and its interval."""
    return CaptionedFigure(
        name="demo-mae",
        figure=_draw_ranking(ranking, values),
        caption="MAE on the test images: dots are seeds, diamonds their means, bars 95 % intervals over seeds.",
        alt="Mean absolute error: "
        + ", ".join(f"{name} {ranking.means[name].value:.3f}" for name in ranking.order)
        + ".",
    )


@house_style
def _draw_ranking(ranking: Ranking, values: Mapping[str, Sequence[float]]) -> Figure:
    figure = new_figure(5.4, 0.75 + 0.42 * len(ranking.order))
    left = 0.15 + 0.075 * max(map(len, ranking.order))
    width, height = figure.get_size_inches()
    axes = figure.add_axes((left / width, 0.45 / height, 0.97 - left / width, 1 - 0.55 / height))
    styles = method_styles(sorted(ranking.order))
    for place, name in enumerate(ranking.order):
        colour = styles[name].colour
        mean, low, high = ranking.means[name]
        axes.scatter(
            values[name], [place + 0.2] * len(values[name]), s=12, color=colour, alpha=0.55, linewidth=0
        )
        if math.isfinite(low):
            axes.plot([low, high], [place, place], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot([mean], [place], marker="D", markersize=6, color=colour)
    axes.set_ylim(len(ranking.order) - 0.5, -0.5)
    axes.set_yticks(range(len(ranking.order)), ranking.order)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GREY, alpha=0.22, linewidth=0.6)
    axes.set_xlabel("MAE; less is better")
    return figure


def repeated_figure(
    curves: Mapping[str, Sequence[Sequence[float]]], *, unseen: float | None
) -> CaptionedFigure:
    """The share of wrong labels that the networks repeat, by epoch. curves: method → (S, E)."""
    drawn = []
    for name, rows in curves.items():
        values = np.asarray(rows, dtype=np.float64)
        spread = values.std(axis=0) if len(values) > 1 else None
        epochs = np.arange(1, values.shape[1] + 1, dtype=np.float64)
        drawn.append(Curve(name=name, x=epochs, y=values.mean(axis=0), spread=spread))
    reference = None if unseen is None else (unseen, "never seen")
    bands = "; bands: one standard deviation" if any(curve.spread is not None for curve in drawn) else ""
    return CaptionedFigure(
        name="demo-repeated",
        figure=chart(
            drawn,
            xlabel="epoch",
            title="Share of the wrong training labels that the networks repeat",
            styles=method_styles(sorted(curves)),
            reference=reference,
        ),
        caption=f"Mean over the seeds{bands}. A network repeats a label if its most likely grade is that label.",
        alt="At the end: " + ", ".join(f"{curve.name} {curve.y[-1]:.0%}" for curve in drawn) + ".",
    )


def precision_figure(facts: AuditFacts) -> CaptionedFigure:
    """Precision among the k most doubtful labels."""
    return CaptionedFigure(
        name="demo-audit",
        figure=_draw_precision(facts),
        caption="The share of wrong labels among the k most doubtful ones, beside that of a random choice.",
        alt=f"Precision {precision_at(facts.wrong_by_rank, 20):.0%} at 20 labels, "
        f"{precision_at(facts.wrong_by_rank, facts.wrong):.0%} at {facts.wrong}.",
    )


@house_style
def _draw_precision(facts: AuditFacts) -> Figure:
    figure = new_figure(5.4, 2.8)
    axes = figure.add_axes((0.1, 0.18, 0.87, 0.7))
    found = np.cumsum(facts.wrong_by_rank) / np.arange(1, facts.labels + 1)
    first = min(10, facts.labels)  # before, one label more or less is a jump
    axes.plot(np.arange(first, facts.labels + 1), found[first - 1 :], color=PALETTE["blue"], linewidth=1.8)
    chance = facts.wrong / facts.labels
    axes.axhline(chance, color=INK, linewidth=0.8)
    axes.annotate("random choice", (1, chance), xycoords=("axes fraction", "data"), xytext=(-2, -3), fontsize=8,
                  textcoords="offset points", ha="right", va="top")  # fmt: skip
    axes.set(xlabel="k, the number of labels looked at", ylim=(0, 1.03), xlim=(0, facts.labels))
    axes.set_title("Share of wrong labels among the k most doubtful", pad=8)
    axes.grid(axis="y", color=GREY, alpha=0.22, linewidth=0.6)
    return figure


# The page of the demo: what is wrong with the labels, who learns it, who is best, what is found, a range.

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
