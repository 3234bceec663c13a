"""The page of a study: who is best, the tables, the figures, the noise, every run, how to reproduce
it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from srjt.data.grades import Grades
from srjt.errors import count_of, duration
from srjt.noise.matrices import ILL_CONDITIONED
from srjt.ordinal import Purpose, baseline
from srjt.ordinal.baseline import Gain
from srjt.ordinal.intervals import holm
from srjt.ordinal.metrics import METRICS
from srjt.reports import study_tables
from srjt.reports.figures import study as study_figures
from srjt.reports.figures.canvas import CaptionedFigure
from srjt.reports.page import (
    KeyNumber,
    Page,
    Section,
    page_of,
)
from srjt.reports.sections import counts_table, settings_section
from srjt.reports.table import MISSING, Table, between, data_table, p_in_words
from srjt.settings import current_names
from srjt.studies.config import CORRECTED, better_labels, parse_noise
from srjt.studies.results import (
    PairedTest,
    StudyResults,
    corrected_t_test,
    display_name,
    gains_over_one_grade,
    problem_lines,
)

NAMED = 4  # noises with a key number


@dataclass(frozen=True, kw_only=True)
class StudyFacts:
    """What the sentences are about; "" where there is nothing to say."""

    runs: int
    done: int
    total: str
    failed: int
    unfinished: int
    composition: str  # "5 methods, 2 noises"
    test: bool  # whether there are test results
    patients: bool
    folds: int
    planned_folds: int
    metric: str
    best: str  # "Lowest", "Highest"
    side: str  # on which a better mean is: "below", "above"
    leader: str  # the methods with the most best means
    won: str  # how many
    gain: str  # of the best means over plain training
    doubt: str
    unshown: str
    none_better: bool  # no method is better than one grade for all
    not_better: str  # methods that are not, under some noise
    somewhere: str
    best_means: Mapping[str, Best]  # by noise
    garg: bool
    condition: float  # number of the noise matrices, the largest
    kinds: frozenset[str]  # of noise
    networks: str  # of the methods, where these differ


def verdict_of(f: StudyFacts) -> tuple[str, str]:
    """Title and lead of the page."""
    if not f.runs:
        return "No runs are planned", ""
    if not f.done:
        return "No run has finished yet", f"{f.composition}."
    if not f.test:
        return "There are no test results", "The splits have no test side."
    if f.none_better:
        return f"No method is better than one grade for all, by {f.metric}", f"{f.composition}."
    if not f.leader:
        lead = f"Nothing is compared: fewer than two methods have the same runs.{f.unshown}"
        return f.composition, lead
    title = f"{f.best} mean {f.metric}: {f.leader}{f.won}"
    if f.gain:
        lead = f"The best mean is {f.gain} {f.side} that of plain training{f.doubt}.{f.unshown}"
        return title, lead
    return title, f"{f.composition}.{f.unshown}"


def warnings_of(f: StudyFacts) -> Iterator[str]:
    """What makes the results less than they seem."""
    if f.failed:
        yield f"{f.failed:,} of {f.total} failed."
    if f.unfinished:
        yield f"{f.unfinished:,} of {f.total} to finish; means are over the finished ones."
    if f.garg and f.condition > ILL_CONDITIONED:
        yield (
            "Garg's loss inverts the noise matrix, which is nearly singular (condition number up"
            f" to {f.condition:.0f}): its results do not show how good the method is."
        )
    if f.not_better and not f.none_better:
        yield f"No better than one grade for all, by {f.metric}{f.somewhere}: {f.not_better}."
    if f.networks:
        yield (
            f"The methods have different networks ({f.networks}), so a difference may be due to"
            " these."
        )
    if not f.patients:
        yield (
            "Patients are unknown: samples of one patient may be in training and test data, which"
            " makes test results too good."
        )
    if f.folds == 1:
        yield f"Only one of {f.planned_folds} folds is part of the study: there is no paired test."


def remarks_of(f: StudyFacts) -> Iterator[str]:
    """How the noise was made."""
    if f.kinds - {"none"}:
        yield "Noise is injected into training and validation labels, never into test labels."


NOISE_COLUMNS = {  # those without a value are left out
    "nominal_rate": "nominal",
    "realised_rate": "realised",
    "estimated": "estimated",
    "interval": "estimate, 95 % interval",
    "used": "used by the runs",
    "condition_number": "condition number",
}
NOISE_CAPTIONS = {
    "realised": "Nominal: expected from the matrix and the class mix; realised: after injection.",
    "estimate, 95 % interval": (
        "The interval is the widest over folds; without an estimate beside it, the "
        "labels do not determine the rate."
    ),
    "condition number": (
        f"Above a condition number of {ILL_CONDITIONED:.0f}, inverting the matrix is unreliable."
    ),
}


class Best(NamedTuple):
    """The best method of a noise, by its mean; and that of plain training, if it is another one."""

    names: str
    text: str  # mean ± standard deviation
    mean: float
    plain: float | None
    naive: float | None  # the mean of one grade for all
    verdict: baseline.Verdict  # whether it is better than that

    @property
    def winner(self) -> str:
        """One grade for all takes part."""
        if self.verdict == "not better":
            return study_tables.NAIVE_LABEL
        return self.names


def _target_metric(facts: Mapping[str, Any]) -> Purpose:
    train = current_names(facts["study"]["train"], warned=False)
    return train.get("target_metric") or "mae"


def study_facts(results: StudyResults) -> StudyFacts:
    """What the sentences are about."""
    runs = results.runs
    study = results.facts
    status = Counter(runs["status"])
    purpose = _target_metric(study)
    gains = _gains(results, purpose)
    metric = METRICS[purpose]
    folds = runs["fold"].nunique()
    best = best_means(results, purpose, gains)
    ahead = {noise: mean for noise, mean in best.items() if mean.verdict != "not better"}
    winners = Counter(mean.winner for mean in best.values())
    most = max(winners.values(), default=0)
    leaders = [name for name, count in winners.items() if count == most]
    won = ""
    if most < len(best):
        each = " each" if len(leaders) > 1 else ""
        won = f" ({most} of {len(best)} noises{each})"
    verdicts = set()
    for (_, variant, _), gain in gains.items():
        if study_tables.loss_usage(variant) is None:
            verdicts.add(gain.verdict)
    unshown = ""
    if "unclear" in verdicts and "better" not in verdicts:
        unshown = " No paired test shows"
        if folds < 3:
            unshown = " Fewer than three folds cannot show"
        unshown += f" that a method is better than {study_tables.NAIVE_LABEL}."
    doubt = "; no paired test shows this difference"
    if _tested(results, purpose, ahead):
        doubt = ""
    return StudyFacts(
        none_better=verdicts == {"not better"},
        unshown=unshown,
        leader=", ".join(leaders),
        won=won,
        runs=len(runs),
        done=status["done"],
        total=count_of(len(runs), "run"),
        failed=status["failed"],
        unfinished=status["left"] + status["running"],
        test="test" in set(results.scores["split"]),
        patients=study.get("patients") is not None,
        folds=folds,
        planned_folds=int(study["folds"]),
        composition=_composition(results),
        best="Lowest" if metric.lower_is_better else "Highest",
        gain=_gain_over_plain(ahead.values()),
        side="below" if metric.lower_is_better else "above",
        doubt=doubt,
        metric=metric.short_name if purpose == "mae" else metric.long_name,
        best_means=best,
        not_better=_not_better(gains),
        somewhere=", under some noise" if runs["noise"].nunique() > 1 else "",
        garg="garg" in set(runs["method"]),
        condition=results.noise["condition_number"].astype(float).max(),
        kinds=frozenset(parse_noise(name).kind for name in study_figures.study_noises(results)),
        networks=_networks(runs),
    )


def _networks(runs: pd.DataFrame) -> str:
    """ "odds: srjt and standard; mlp: sord": the methods by network; "" where all have the same."""
    begun = runs[runs["network"] != ""]
    by_network = begun.groupby("network", sort=False)["method"].unique()
    if len({frozenset(names) for names in by_network}) < 2:
        return ""
    return "; ".join(
        f"{network}: {' and '.join(dict.fromkeys(map(display_name, names)))}"
        for network, names in by_network.items()
    )


def _gain_over_plain(best: Iterable[Best]) -> str:
    """ "0.012 to 0.034": the smallest and the largest; "" where plain training is the best."""
    gains = sorted(abs(mean.mean - mean.plain) for mean in best if mean.plain is not None)
    smallest_and_largest = [f"{gain:.3f}" for gain in gains[:1] + gains[-1:]]
    return " to ".join(dict.fromkeys(smallest_and_largest))


def _composition(results: StudyResults) -> str:
    """ "5 methods, 2 variants, 2 noises, 3 folds, 1 seed"."""
    runs = results.runs
    variants = (runs["method"] + ":" + runs["variant"]).where(runs["variant"] != "")
    numbers = runs.assign(variant=variants)[
        ["method", "variant", "noise", "fold", "seed"]
    ].nunique()
    return ", ".join(count_of(number, str(noun)) for noun, number in numbers.items() if number)


def _gains(results: StudyResults, purpose: Purpose) -> dict[tuple[str, str, str], Gain]:
    """Method, variant and noise → what it gains over one grade for all."""
    scores = study_tables.finished(results)
    ratio = study_tables.test_train_ratio(results)
    return gains_over_one_grade(scores, results.naive, metric=purpose, test_train_ratio=ratio)


def best_means(
    results: StudyResults, metric: str, gains: Mapping[tuple[str, str, str], Gain] | None = None
) -> dict[str, Best]:
    """Noise → the best mean of the methods with the same runs; no noise with fewer than two of
    them.

    gains: over one grade for all; without them, that is not known.
    """
    tables = study_tables.StudyTables(results)
    best_of = {}
    choose = min if METRICS[metric].lower_is_better else max
    plain = ("standard", "")
    for noise in itertools.chain(*tables.kinds.values()):
        values = {}
        for source in tables.compared:
            scores = tables.values.get((*source, noise, metric))
            if scores is not None:
                values[source] = scores
        means = study_tables.comparable_means(values)
        if len(means) < 2:
            continue
        best = [source for source, mean in means.items() if mean == choose(means.values())]
        gain = (gains or {}).get((*best[0], noise))
        verdict: baseline.Verdict = "unknown"
        if gain is not None:
            verdict = gain.verdict
        naive = study_tables.naive_values(results, noise, metric)
        best_of[noise] = Best(
            names=" and ".join(itertools.starmap(display_name, best)),
            text=study_tables.mean_cell(values[best[0]]).text,
            mean=means[best[0]],
            plain=None if plain in best else means.get(plain),
            naive=float(naive.mean()) if len(naive) else None,
            verdict=verdict,
        )
    return best_of


def _tested(results: StudyResults, metric: str, best: Mapping[str, Best]) -> bool:
    """Whether paired tests show that each of the best methods differs from plain training, after
    Holm's correction over the tests of the page."""
    if not best:
        return True
    tests = study_tables.paired_tests(results, dict.fromkeys((*study_tables.PAPER_METRICS, metric)))
    of_plain = (tests["against"] == "standard") & (tests["metric"] == metric)
    shown = tests[of_plain & (holm(tests["p_value"]) <= 0.05)]
    pairs = set(zip(shown["noise"], shown["method"].map(display_name), strict=True))
    for noise, mean in best.items():
        if mean.plain is not None and (noise, mean.names) not in pairs:
            return False
    return True


def _not_better(gains: Mapping[tuple[str, str, str], Gain]) -> str:
    """Methods whose mean on the test side does not beat the naive one on the same runs, under some
    noise."""
    worse: dict[str, None] = {}
    for (method, variant, _), gain in gains.items():
        if gain.verdict == "not better":
            worse[display_name(method, variant)] = None
    return "; ".join(worse)


def study_verdict(results: StudyResults) -> str:
    """Title and lead of the page as sentences, for a terminal."""
    return ". ".join(filter(None, verdict_of(study_facts(results))))


@page_of.register(StudyResults)
def study_page(
    results: StudyResults, *, metrics: Sequence[str] = study_tables.PAPER_METRICS
) -> Page:
    """The page of a study, finished or not."""
    shown = Grades(map(str, results.facts["grades"]), results.facts["study"]["grade_names"]).shown
    results = replace(results, facts={**results.facts, "grades": shown})
    facts = study_facts(results)
    title, lead = verdict_of(facts)
    noises = study_figures.study_noises(results)
    curves = (study_figures.score_curves(results, noise, metric="mae") for noise in noises)
    figures = [*study_figures.mae_against_rate(results), *filter(None, curves), None]
    first = figures[0]
    errors = []
    if facts.failed:
        lines = "\n".join(problem_lines(results))
        errors.append(("Errors; the tracebacks are in errors/", lines))
    return Page(
        kind=f"Study: {results.facts.get('name') or results.folder.name or 'Study'}",
        title=title,
        lead=lead,
        warnings=list(warnings_of(facts)),
        remarks=list(remarks_of(facts)),
        key_numbers=_key_numbers(facts),
        figure=first,
        details=errors,
        sections=[
            *learning_curve_section(results, metric="mae"),
            *_results(results, metrics, facts),
            *_figures(results, but=first),
            _noise(results),
            _runs(results),
            _data(results),
            _reproduce(results.facts),
        ],
    )


def _key_numbers(facts: StudyFacts) -> list[KeyNumber]:
    compared = ""
    if facts.leader and facts.gain and not facts.none_better:  # else the lead has it
        compared = facts.composition
    numbers = [KeyNumber("finished runs", f"{facts.done:,} of {facts.runs:,}", compared=compared)]
    for noise, best in list(facts.best_means.items())[:NAMED]:
        label = f"{facts.metric}, {study_tables.noise_name(noise)}"
        mean, plus_minus, std = best.text.partition(" ± ")
        if best.winner == study_tables.NAIVE_LABEL:
            compared = f"{best.winner}; best method: {best.names}, {best.text}"
            numbers.append(KeyNumber(label, f"{best.naive:.3f}", "", compared))
            continue
        compared = best.names
        if best.plain is not None:
            compared += f"; plain training: {best.plain:.3f}"
        if best.naive is not None:
            compared += f"; one grade: {best.naive:.3f}"
        numbers.append(KeyNumber(label, mean, f"{plus_minus}{std}".strip(), compared))
    return numbers


# The learning curve of a study: would more images or better labels help more?


def gain_verdict(*, learnt: bool, better: float, test: PairedTest) -> str:
    """Whether more images or better labels would help more.

    learnt: whether the networks beat one grade for all, by a paired test over folds. better: the
    mean gain by better labels, nan if not known. test: of the gain by better labels minus that by
    more images, paired within the folds.
    """
    if not learnt:
        return (
            "what would help is not shown, because the networks are not shown to be better than"
            " one grade for all samples."
        )
    if math.isnan(better):
        return (
            "whether better labels would help more cannot be told, because no noise was injected"
            " and the data have no column true_grade or verified_grade."
        )
    if test.p_value is None:
        return (
            "whether more images or better labels help more is not shown: a test needs three folds"
            " or more."
        )
    paired = f"(paired test, {p_in_words(test.p_value)})"
    if (test.low or 0) > 0:
        return f"better labels help more than more images {paired}."
    if (test.high or 0) < 0:
        return f"more images help more than better labels {paired}."
    return (
        "whether more images or better labels help more is not shown: the gains differ by no more"
        f" than chance {paired}."
    )


def learning_curve_section(results: StudyResults, *, metric: Purpose) -> list[Section]:
    """What all training patients gain over half of them, and what better labels gain, for each
    method and noise.

    Empty if the study has no shares of the training patients, or no scores yet.
    """
    sign = -1.0 if METRICS[metric].lower_is_better else 1.0
    scores = results.scores
    scores = scores[(scores["split"] == "test") & (scores["metric"] == metric)]
    index = ["method", "variant", "fold", "seed"]
    wide = scores.pivot_table(index=index, columns="noise", values="value", sort=False)
    ratio = study_tables.test_train_ratio(results)
    over_one_grade: dict[tuple[str, str, str], Gain] = {}
    if len(results.naive):
        over_one_grade = gains_over_one_grade(
            scores, results.naive, metric=metric, test_train_ratio=ratio
        )
    texts = []
    rows = []
    specs = map(parse_noise, wide.columns.astype(str))
    for noise in dict.fromkeys(spec.labels for spec in specs if spec.share < 1.0):
        cleaner = better_labels(parse_noise(noise))
        changes = (
            "twice the patients",
            "true or verified grades" if cleaner == CORRECTED else "half of the noise",
        )
        arms = sign * wide.reindex(columns=[f"{noise}@0.5", noise, cleaner])
        whole = arms.iloc[:, 1]
        gains = arms.diff(axis=1).iloc[:, 1:].set_axis(changes, axis=1)
        for source in whole.dropna().reset_index(["fold", "seed"]).index.unique():
            name = display_name(*source)
            extent = gains.loc[source].agg(["mean", "min", "max"]).T
            helps = gain_verdict(
                learnt=_may_have_learnt(over_one_grade.get((*source, noise))),
                better=extent["mean"].iloc[1],
                test=_test_of_gains(gains.loc[source], test_train_ratio=ratio),
            )
            texts.append(f"{name}, {study_tables.noise_name(noise)}: {helps}")
            for change in extent.itertuples():
                rows.append((name, study_tables.noise_label(noise), *change))
    if not texts:
        return []
    table = data_table(
        pd.DataFrame(
            rows, columns=["method", "training", "change", "improvement", "smallest", "largest"]
        ),
        title=f"Improvement of {METRICS[metric].long_name}",
        slug="learning-curve",
        caption=(
            "Mean, smallest and largest over folds and seeds. A further doubling usually gains"
            " less; it was not measured."
        ),
        formats=dict.fromkeys(("improvement", "smallest", "largest"), "+.3f"),
    )
    heading = "More images or better labels?"
    return [Section("learning-curve", heading, text=texts, tables=[table], brief=True)]


def _may_have_learnt(gain: Gain | None) -> bool:
    """Whether a paired test shows that a method is better than one grade for all; True where there
    is no test."""
    if gain is None or gain.verdict == "unknown":
        return True
    return gain.verdict == "better" or (gain.verdict == "unclear" and math.isnan(gain.low))


def _test_of_gains(gains: pd.DataFrame, *, test_train_ratio: float) -> PairedTest:
    """The gain by better labels minus that by more images. gains: (fold, seed) in rows, by more and
    by better."""
    differences = (gains.iloc[:, 1] - gains.iloc[:, 0]).unstack("seed").dropna(how="all")
    return corrected_t_test(differences, test_train_ratio=test_train_ratio)


# The other sections.


def _results(results: StudyResults, metrics: Sequence[str], facts: StudyFacts) -> list[Section]:
    if not facts.test:
        return []
    tables = study_tables.StudyTables(results, metrics)
    held_out = f"Each {_column(results)} held out"
    tests = [*tables.pooled(), *tables.paired()]
    sections = [
        Section("tables", "Results", tables=_said_once(tables.comparison()), brief=True),
        Section("held-out", held_out, tables=_held_out(results), brief=True),
        Section("ablation", "Selection and updating", tables=_said_once(tables.ablation())),
        Section("paired", "Paired tests", tables=tests, closed=True),
    ]
    return [section for section in sections if section.tables]


def _said_once(tables: Sequence[Table]) -> list[Table]:
    """The caption of several tables below the last of them."""
    shown = list(tables)
    for place, table in enumerate(tables[:-1]):
        if table.caption == tables[-1].caption:
            shown[place] = replace(table, caption="")
    return shown


def _column(results: StudyResults) -> str:
    """The column whose values are held out, in words."""
    return str(results.facts["study"].get("hold_out") or "value")


def _held_out(results: StudyResults) -> list[Table]:
    """Methods and one grade for all, by the site, or other value, that is the test side."""
    names = results.facts.get("held_out") or []
    noises = study_figures.study_noises(results)
    if not names:
        return []
    purpose = _target_metric(results.facts)
    naive = results.naive.assign(method=study_tables.NAIVE_LABEL.capitalize(), variant="")
    scores = pd.concat([study_tables.finished(results), naive])
    scores["method"] = list(map(display_name, scores["method"], scores["variant"]))
    scores = scores[scores["metric"] == purpose]
    by_fold = scores.pivot_table(
        index=["noise", "method"], columns="fold", values="value", sort=False
    )
    frame = pd.concat([by_fold.loc[[noise]] for noise in noises if noise in by_fold.index])
    new_noise = ~frame.index.get_level_values("noise").duplicated()
    frame = frame.rename(index=study_tables.noise_name, level="noise")
    frame = frame.reindex(columns=range(len(names))).set_axis(names, axis=1)
    seeds = count_of(len(results.facts["study"]["seeds"]), "seed")
    table = data_table(
        frame.reset_index(allow_duplicates=True),
        title=f"Test {METRICS[purpose].long_name}",
        caption=f"Trained on the others; {seeds}.",
        slug="held-out",
        rule_before=np.flatnonzero(new_noise)[1:].tolist(),
    )
    return [table]


def _figures(results: StudyResults, *, but: CaptionedFigure | None) -> list[Section]:
    """but: the figure that stands elsewhere."""
    parts: list[Section] = []

    def add(slug: str, heading: str, figures: Sequence[CaptionedFigure]) -> None:
        shown = [figure for figure in figures if but is None or figure.name != but.name]
        if shown:
            parts.append(Section(slug, heading, figures=shown))

    for number, noise in enumerate(study_figures.study_noises(results)):
        figures = study_figures.noise_figures(results, noise)
        add(f"figures-{number}", study_tables.noise_name(noise), figures)
    add("figures-rate", "Error against noise rate", study_figures.mae_against_rate(results))
    if not parts:
        return []
    return [Section("figures", "Figures", parts=parts)]


def _noise(results: StudyResults) -> Section:
    """How much was injected, and the rates that runs used which estimate them."""
    noises = study_figures.study_noises(results)
    rates = ["nominal_rate", "realised_rate", "condition_number"]
    estimating = results.runs[results.runs["rate_source"] == "estimate"]
    frame = (
        results.noise[rates].astype(float).groupby(results.noise["noise"]).mean().reindex(noises)
    )
    for noise, rates_used in estimating.groupby("noise")["used_rate"]:
        low = rates_used.min()
        high = rates_used.max()
        if math.isfinite(low):
            frame.loc[noise, "used"] = f"{low:.3f}"
        if high > low:
            frame.loc[noise, "used"] = between(low, high)
    for noise, rows in results.noise.groupby("noise"):
        low = rows["estimated_low"].min()
        if math.isfinite(low):
            frame.loc[noise, "interval"] = between(low, rows["estimated_high"].max())
        # a number only where the labels determine it, in every fold
        if rows["determined"].all():
            frame.loc[noise, "estimated"] = rows["estimated_rate"].astype(float).mean()
    frame = frame.reindex(columns=[*NOISE_COLUMNS]).dropna(axis=1, how="all")
    frame = frame.rename(index=study_tables.noise_name, columns=NOISE_COLUMNS)
    captions = [text for name, text in NOISE_CAPTIONS.items() if name in frame]
    table = data_table(
        frame.rename_axis("noise").reset_index(),
        title="Share of wrong labels among the training samples",
        slug="noise",
        caption=" ".join(["Means over folds.", *captions]),
        formats={"condition number": ".1f"},
    )
    matrices = [study_figures.noise_matrix(results, name) for name in noises]
    return Section("noise", "Noise", tables=[table], figures=list(filter(None, matrices)))


def _runs(results: StudyResults) -> Section:
    test = results.scores[results.scores["split"] == "test"].pivot_table(
        index="key", columns="metric", values="value", aggfunc="last"
    )
    runs = results.runs
    held_out = dict(enumerate(results.facts.get("held_out") or []))
    seconds = pd.to_numeric(runs["seconds"]).astype(float)
    frame = runs[["method", "noise", "fold", "seed", "status"]].assign(minutes=seconds / 60)
    frame["method"] = list(map(display_name, runs["method"], runs["variant"]))
    frame["status"] = frame["status"].replace("left", "not started")
    if held_out:
        frame.insert(3, "held out", frame["fold"].map(held_out))
    for metric in study_tables.PAPER_METRICS:
        of_runs = test.reindex(index=runs["key"], columns=[metric])[metric]
        frame[METRICS[metric].short_name] = of_runs.to_numpy(float)
    total = duration(float(seconds.sum()))
    networks = study_tables.networks_phrase(results.facts)
    table = data_table(
        frame,
        title="Every run",
        slug="runs",
        caption=(
            f"Test side, mean over the last ten epochs (all, if fewer){networks}; {total} of"
            " training in all."
        ),
        formats={"minutes": _minutes},
    )
    return Section("runs", "Runs", tables=[table], closed=True)


def _minutes(minutes: float) -> str:
    if 0 < minutes < 0.05:
        return "< 0.1"
    return f"{minutes:.1f}"


def _data(results: StudyResults) -> Section:
    study = results.facts
    patients = study.get("patients")
    counts = list(map(int, study["class_counts"]))
    folds = int(study["folds"])
    used = results.runs["fold"].nunique()
    split = count_of(folds, "fold")
    if 0 < used < folds:
        split += f", {used} of them used"
    if study.get("held_out"):
        named = ", ".join(study["held_out"])
        split += f", each with one {_column(results)} as its test side: {named}"
    known_patients = "unknown"
    if patients is not None:
        known_patients = f"{patients:,}"
        split += ", each patient on one side only"
    entries = {
        "source": str(study["study"]["source"] or MISSING),
        "samples": f"{sum(counts):,}",
        "patients": known_patients,
        "split": split,
        "preset": study["study"]["preset"] or "",
        "noise rate": str(study["study"]["noise_rate"] or ""),
    }
    facts = [(term, value) for term, value in entries.items() if value]
    return Section("data", "Data", facts=facts, tables=[counts_table(study["grades"], counts)])


def _reproduce(facts: dict[str, Any]) -> Section:
    versions = facts.get("versions", {}).items()
    entries = [
        ("versions", ", ".join(f"{name} {version}" for name, version in versions)),
        ("seeds", ", ".join(map(str, facts["study"]["seeds"]))),
        ("hash of the splits", str(facts.get("splits_hash") or MISSING)),
    ]
    code = str(facts.get("command") or "")
    settings = settings_section(facts["study"]["train"])
    return Section("reproduce", "Reproduce", code=code, facts=entries, parts=settings)
