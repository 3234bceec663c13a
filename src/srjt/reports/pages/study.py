"""The page of a study: who is best, the tables, the figures, the noise, every run, how to reproduce it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd

from srjt.data.grades import Grades
from srjt.errors import count_of, duration
from srjt.noise.matrices import ILL_CONDITIONED
from srjt.ordinal import Purpose
from srjt.ordinal.metrics import METRICS
from srjt.reports import study_tables
from srjt.reports.figures import study as study_figures
from srjt.reports.page import KeyNumber, Page, Rule, Section, Verdict, page_of, said, sentences
from srjt.reports.sections import counts_table, listed, settings_section
from srjt.reports.table import MISSING, Table, TableCell, data_table, metric_heading
from srjt.studies.config import CORRECTED, better_labels, parse_noise
from srjt.studies.results import StudyResults, compare_ours, display_name
from srjt.training.folder import not_beaten

PLAIN = "plain training"
NAMED = 4  # methods or noises in a sentence
TRACEBACKS = 20
TRACEBACK = 6000  # characters; the end of a traceback has the error
STATUSES = {"done": "done", "running": "running", "failed": "failed", "left": "not started"}

BEST = "{f.best} mean {f.metric}: {f.leader}{f.won}"
VERDICT: list[Verdict[Any]] = [
    (lambda f: not f.runs, "No runs are planned", ""),
    (lambda f: not f.done, "No run has finished yet", "{f.composition}."),
    (lambda f: not f.test, "There are no test results", "The splits have no test side."),
    (lambda f: not f.leader, "{f.composition}", "Nothing is compared: fewer than two methods have the same "
     "runs."),
    (lambda f: f.gain, BEST, "The best mean is {f.gain} {f.side} that of plain training{f.doubt}."),
    (lambda f: True, BEST, "{f.composition}."),
]  # fmt: skip
# condition, template, the name of the details
WARNINGS: list[tuple[Callable[[Any], Any], str, str]] = [
    (lambda f: f.failed, "{f.failed:,} of {f.total} failed.", "tracebacks"),
    (lambda f: f.unfinished, "{f.unfinished:,} of {f.total} to finish; means are over the finished ones.", ""),
    (lambda f: f.singular, "Garg's loss inverts the noise matrix, which is nearly singular ({f.singular}): its results "
     "do not show how good the method is.", ""),
    (lambda f: f.not_better, "No better than one grade for all, by {f.metric}: {f.not_better}.", "all_not_better"),
    (lambda f: not f.patients, "Patients are unknown: samples of one patient may be in training and test data, which "
     "makes test results too good.", ""),
    (lambda f: f.folds == 1, "Only one of {f.planned_folds} folds is part of the study: there is no paired test.", ""),
]  # fmt: skip
NOISE: list[Rule[Any]] = [
    (lambda f: f.kinds - {"none"}, "Noise is injected into training and validation labels, never into test labels."),
    (lambda f: "none" in f.kinds, "“Labels as given”: nothing is injected."),
]  # fmt: skip
NOISE_COLUMNS = {  # those without a value are left out
    "rho": "ρ",
    "given_rate": "given to methods",
    "estimated_rate": "estimated",
    "used_rate": "used after estimating",
    "nominal_rate": "nominal",
    "realised_rate": "realised",
    "condition_number": "condition number",
}


def study_facts(results: StudyResults) -> SimpleNamespace:
    """What the rules know of a study: numbers, and lists that are empty where there is nothing to say."""
    runs, study, status = results.runs, results.facts, Counter(results.runs["status"])
    purpose: Purpose = study["study"]["train"].get("optimise") or "mae"
    metric, cells, not_better = METRICS[purpose], best_cells(results, purpose), _not_better(results, purpose)
    gains = sorted(abs((best.value or 0.0) - others[PLAIN]) for _, best, others in cells.values() if PLAIN in others)
    won = Counter(name for name, *_ in cells.values())
    most = max(won.values(), default=0)
    leaders = [name for name, count in won.items() if count == most]
    return SimpleNamespace(
        leader=", ".join(leaders),
        won=f" ({most} of {len(cells)} noises{' each' * (len(leaders) > 1)})" if most < len(cells) else "",
        runs=len(runs),
        done=status["done"],
        total=count_of(len(runs), "run"),
        failed=status["failed"],
        unfinished=status["left"] + status["running"],
        test="test" in set(results.scores["split"]),
        patients=study.get("patients") is not None,
        folds=runs["fold"].nunique(),
        planned_folds=int(study["folds"]),
        composition=_composition(results),
        best="Lowest" if metric.lower_is_better else "Highest",
        gain=" to ".join(dict.fromkeys(f"{gain:.3f}" for gain in gains[:1] + gains[-1:])),
        side="below" if metric.lower_is_better else "above",
        doubt="" if _tested(results, purpose, cells) else "; no paired test shows this difference",
        metric=metric.short_name if purpose == "mae" else metric.long_name,
        best_cells=cells,
        not_better=listed(not_better, NAMED),
        all_not_better=[("All of them", "\n".join(not_better))] if len(not_better) > NAMED else [],
        tracebacks=_tracebacks(runs[runs["status"] == "failed"]),
        singular=_singular(results) if "garg" in set(runs["method"]) else "",
        kinds={parse_noise(name).kind for name in study_figures.study_noises(results)},
    )


def _composition(results: StudyResults) -> str:
    """ "5 methods, 2 variants, 2 noises, 3 folds, 1 seed"."""
    runs = results.runs
    variants = (runs["method"] + ":" + runs["variant"]).where(runs["variant"] != "")
    numbers = runs.assign(variant=variants)[["method", "variant", "noise", "fold", "seed"]].nunique()
    return ", ".join(count_of(number, str(noun)) for noun, number in numbers.items() if number)


def best_cells(results: StudyResults, metric: str) -> dict[str, tuple[str, TableCell, dict[str, float]]]:
    """Noise → the method with the best mean, its cell, and the means of plain training and of one grade for all; no
    noise if only one method is compared."""
    scores = study_tables.finished(results.scores, results.runs)
    if metric not in set(scores.loc[scores["split"] == "test", "metric"]):
        return {}
    tables = study_tables.StudyTables(scores=results.scores, runs=results.runs, metrics=[metric], naive=results.naive)
    beside = {display_name("standard"): PLAIN, study_tables.NAIVE_LABEL.capitalize(): "one grade"}
    cells = {}
    for table in tables.comparison():
        rows = [row.cells for row in table.rows]
        for place, column in enumerate(table.columns):
            if best := [row for row in rows if row[place].mark == "best"]:
                means = {row[0].text: row[place].value for row in rows if row not in best}
                others = {label: mean for name, label in beside.items() if (mean := means.get(name)) is not None}
                names = " and ".join(row[0].text for row in best)
                cells[column.name.split(" ")[0]] = names, best[0][place], others
    return cells


def _tested(results: StudyResults, metric: str, cells: Mapping[str, tuple[str, Any, Any]]) -> bool:
    """Whether paired tests show that each of the best methods differs from plain training."""
    tests = compare_ours(
        study_tables.finished(results.scores, results.runs),
        test_train_ratio=study_tables.test_train_ratio(results),
        metrics=[metric] if cells else [],
    )
    low, high = (pd.to_numeric(tests[end]) for end in ("low", "high"))
    shown = tests[(tests["against"] == "standard") & (low * high > 0)]
    pairs = {(noise, display_name(method)) for noise, method in shown[["noise", "method"]].to_numpy()}
    return all((noise, name) in pairs for noise, (name, _, others) in cells.items() if PLAIN in others)


def _not_better(results: StudyResults, purpose: Purpose) -> list[str]:
    """Methods and noises whose mean on the test side does not beat the naive one on the same runs."""
    scores = study_tables.finished(results.scores, results.runs)
    scores = scores[(scores["split"] == "test") & (scores["metric"] == purpose)]
    both = scores.merge(results.naive, on=["noise", "fold", "seed", "metric"], suffixes=("", "_naive"))
    means = both.groupby(["noise", "method", "variant"], sort=False)[["value", "value_naive"]].mean()
    return [
        f"{display_name(method, variant)} {study_tables.noise_phrase(noise)} ({score:.3f}, naive {naive:.3f})"
        for (noise, method, variant), (score, naive) in zip(means.index, means.to_numpy(), strict=True)
        if not_beaten(float(score), float(naive), purpose=purpose)
    ]


def _tracebacks(failed: pd.DataFrame) -> list[tuple[str, str]]:
    shown = []
    for run in failed.head(TRACEBACKS).to_dict("records"):
        name, error = display_name(run["method"], run["variant"]), run["error"]
        cut = error if len(error) <= TRACEBACK else f"… {error[-TRACEBACK:]}"
        shown.append((f"{name}, {run['noise']}, fold {run['fold']}, seed {run['seed']}", cut))
    more = len(failed) - len(shown)
    return [*shown, *([("…", f"and {count_of(more, 'more run')}")] if more else [])]


def _singular(results: StudyResults) -> str:
    """The noises whose matrix is badly inverted; "" if there are none."""
    condition = results.noise["condition_number"].astype(float)
    worst = condition[condition > ILL_CONDITIONED].groupby(results.noise["noise"], sort=False).max()
    names = map(study_tables.noise_name, worst.index)
    return "; ".join(f"{name}: condition number {n:.0f}" for name, n in zip(names, worst, strict=True))


@page_of.register(StudyResults)
def study_page(
    results: StudyResults,
    *,
    metrics: Sequence[str] = study_tables.PAPER_METRICS,
    grade_names: Mapping[str, str] | None = None,
) -> Page:
    """The page of a study, finished or not. grade_names: instead of the study's own."""
    names = results.facts["study"]["grade_names"] if grade_names is None else grade_names
    shown = Grades(map(str, results.facts["grades"]), names).shown
    results = replace(results, facts={**results.facts, "grades": shown})
    facts, noises = study_facts(results), study_figures.study_noises(results)
    curves = (study_figures.score_curves(results, noise, metric="mae") for noise in noises)
    first = [*study_figures.mae_against_rate(results), *filter(None, curves)][:1]
    warnings = study_warnings(facts)
    return Page(
        kind=f"Study: {results.facts.get('name') or results.folder.name or 'Study'}",
        **said(facts, VERDICT, remarks=NOISE),
        key_numbers=_key_numbers(facts),
        figure=first[0] if first else None,
        warnings=list(warnings),
        details=warnings,
        sections=[
            *learning_curve_section(results, metric="mae"),
            *(_results(results, metrics) if facts.test else []),
            *_figures(results, but={figure.name for figure in first}),
            _noise(results),
            _runs(results),
            _data(results),
            _reproduce(results.facts),
        ],
    )


def _key_numbers(facts: SimpleNamespace) -> list[KeyNumber]:
    numbers = [KeyNumber("finished runs", f"{facts.done:,} of {facts.runs:,}", compared=facts.composition)]
    for noise, (name, best, others) in list(facts.best_cells.items())[:NAMED]:
        beside = "; ".join([name, *(f"{label}: {mean:.3f}" for label, mean in others.items())])
        label = f"{facts.metric}, {study_tables.noise_name(noise)}"
        mean, _, std = best.text.partition(" ± ")
        numbers.append(KeyNumber(label, mean, f"± {std}" if std else "", beside))
    return numbers


def study_warnings(facts: SimpleNamespace) -> dict[str, Sequence[tuple[str, str]]]:
    """What a reader must know first → its details."""
    return {
        template.format(f=facts): getattr(facts, details) if details else ()
        for holds, template, details in WARNINGS
        if holds(facts)
    }


# The learning curve of a study: would more images or better labels help more?


class Gain(NamedTuple):
    """Improvement of a metric: its mean, the least and the most over folds and seeds; nan if not known."""

    mean: float = math.nan
    least: float = math.nan
    most: float = math.nan

    def __str__(self) -> str:
        return "{:+.3f} ({:+.3f} to {:+.3f} over folds and seeds)".format(*self).replace("-", "−")


GAIN_VERDICT: list[Rule[Any]] = [
    (lambda f: not f.learnt, "What would help is not shown: the networks are no better than one grade for all "
     "samples."),
    (lambda f: math.isnan(f.better.mean), "Whether better labels would help more cannot be told: no noise was "
     "injected, and the data have no column true_grade or verified_grade."),
    (lambda f: f.better.least > f.doubling.most, "Better labels help more than more images."),
    (lambda f: f.doubling.least > f.better.most, "More images help more than better labels."),
    (lambda f: True, "Whether more images or better labels help more is not shown: the folds differ."),
]  # fmt: skip
GAINS: list[Rule[Any]] = [
    (lambda f: not math.isnan(f.doubling.mean), "Twice the training patients improve the {f.metric} of {f.method} by "
     "{f.doubling!s}. A further doubling usually gains less; it was not measured."),
    (lambda f: not math.isnan(f.better.mean), "{f.labels} improve it by {f.better!s}."),
]  # fmt: skip


def curve_facts(results: StudyResults, noise: str, method: tuple[str, str], *, metric: str) -> SimpleNamespace:
    """Of one method, by name and variant, and one noise without a share.

    doubling: all training patients instead of half of them; better: better labels, which ``labels`` names; learnt:
    whether the networks beat one grade for all.
    """
    scores = results.scores
    own = scores[(scores["split"] == "test") & (scores["metric"] == metric)]
    own = own[(own["method"] == method[0]) & (own["variant"] == method[1])]
    values = own.set_index(["noise", "fold", "seed"])["value"]
    sign = 1.0 if METRICS[metric].lower_is_better else -1.0

    def gain(before: str, after: str) -> Gain:
        if not {before, after} <= set(own["noise"]):
            return Gain()
        gains = (sign * (values[before] - values[after])).dropna()
        return Gain(float(gains.mean()), float(gains.min()), float(gains.max()))

    better = better_labels(parse_noise(noise))
    naive = results.naive[(results.naive["noise"] == noise) & (results.naive["metric"] == metric)]["value"]
    score = own.loc[own["noise"] == noise, "value"].mean()
    halved, true = "Labels with half of the noise", "True or verified grades as labels"
    return SimpleNamespace(
        metric=METRICS[metric].long_name,
        method=method[0],
        doubling=gain(f"{noise}@0.5", noise),
        better=gain(noise, better),
        labels=true if better == CORRECTED else halved,
        learnt=bool(naive.empty or sign * (naive.mean() - score) > 0),
    )


def learning_curve_section(results: StudyResults, *, metric: str) -> list[Section]:
    """Empty if the study has no shares of the training patients, or no scores yet."""
    scores = results.scores
    own = scores[(scores["split"] == "test") & (scores["metric"] == metric)]
    specs = map(parse_noise, own["noise"].unique())
    texts = []
    for noise in dict.fromkeys(spec.labels for spec in specs if spec.share < 1.0):
        methods = own.loc[own["noise"] == noise, ["method", "variant"]].drop_duplicates()
        for method in methods.itertuples(index=False, name=None):
            facts = curve_facts(results, noise, method, metric=metric)
            texts.append(" ".join([sentences(GAIN_VERDICT, facts)[0], *sentences(GAINS, facts)]))
    values = own.groupby(["method", "variant", "noise"], sort=False)["value"]
    table = values.agg(["mean", "std"]).reset_index().drop(columns="variant")
    table["noise"] = table["noise"].map(study_tables.noise_label)
    headings = {"noise": "training", "mean": metric_heading(metric), "std": "± over folds and seeds"}
    shown = data_table(table.rename(columns=headings), title="By training patients and noise", slug="learning-curve")
    section = Section("learning-curve", "More images or better labels?", text=texts, tables=[shown], brief=True)
    return [section] if texts else []


# The other sections.


def _results(results: StudyResults, metrics: Sequence[str]) -> list[Section]:
    kinds: dict[str, list[Table]] = {"comparison": [], "ablation": [], "pooled": [], "paired": []}
    for table in study_tables.study_tables(results, metrics=metrics):
        of_kind = kinds[table.slug.split("-")[0]]
        if of_kind and of_kind[-1].caption == table.caption:
            of_kind[-1] = replace(of_kind[-1], caption="")  # said once, below the last table
        of_kind.append(replace(table, title=table.title.split(": ", 1)[-1]))
    held_out, tests = f"Each {_column(results)} held out", [*kinds["pooled"], *kinds["paired"]]
    noises = study_figures.study_noises(results)
    figures = [figure for noise in noises for figure in study_figures.ablation_figures(results, noise)]
    sections = [
        Section("tables", "Results", tables=kinds["comparison"], brief=True),
        Section("held-out", held_out, tables=_held_out(results), brief=True),
        Section("ablation", "Selection and updating", tables=kinds["ablation"], figures=figures),
        Section("paired", "Paired tests", tables=tests, closed=True),
    ]
    return [section for section in sections if section.tables or section.figures]


def _column(results: StudyResults) -> str:
    """The column whose values are held out, in words."""
    return str(results.facts["study"].get("hold_out") or "value")


def _held_out(results: StudyResults) -> list[Table]:
    """For each noise a table: methods and one grade for all, by the site, or other value, that is the test side."""
    names = results.facts.get("held_out") or []
    if not names:
        return []
    purpose = str(results.facts["study"]["train"].get("optimise", "mae"))
    scores = study_tables.finished(results.scores, results.runs)
    scores = scores[(scores["split"] == "test") & (scores["metric"] == purpose)]
    tables: list[Table] = []
    for noise in study_figures.study_noises(results):
        of_noise = scores[scores["noise"] == noise]
        means = of_noise.groupby(["method", "variant", "fold"], sort=False)["value"].mean()
        naive = results.naive[(results.naive["noise"] == noise) & (results.naive["metric"] == purpose)]
        by_method = means.unstack("fold")
        rows = {display_name(*row): by_method.loc[row] for row in by_method.index.to_list()}
        if len(naive):
            rows[study_tables.NAIVE_LABEL.capitalize()] = naive.groupby("fold")["value"].mean()
        frame = pd.DataFrame(rows).T.reindex(columns=range(len(names)))
        frame = frame.set_axis(names, axis=1).rename_axis("method").reset_index()
        caption = f"Trained on the others; {count_of(len(results.facts['study']['seeds']), 'seed')}."
        title = f"Test {METRICS[purpose].long_name} {study_tables.noise_phrase(noise)}"
        tables.append(data_table(frame, title=title, caption=caption, slug=f"held-out-{len(tables)}"))
    return tables


def _figures(results: StudyResults, *, but: Collection[str]) -> list[Section]:
    """but: the names of figures that stand elsewhere."""
    parts = []
    for number, noise in enumerate(study_figures.study_noises(results)):
        shown = [figure for figure in study_figures.noise_figures(results, noise) if figure.name not in but]
        if shown:
            parts.append(Section(f"figures-{number}", study_tables.noise_name(noise), figures=shown))
    if further := [figure for figure in study_figures.mae_against_rate(results) if figure.name not in but]:
        parts.append(Section("figures-rate", "Error against noise rate", figures=further))
    return [Section("figures", "Figures", parts=parts)] if parts else []


def _noise(results: StudyResults) -> Section:
    """How much was injected, and which rate the runs used where they estimated one, if it is not the estimate."""
    noise = results.noise.reset_index(drop=True)
    runs = results.runs[results.runs["rate_source"] == "estimate"]
    used = runs.groupby(["noise", "fold", "seed"])["used_rate"].mean().rename("used_rate")
    noise = noise.join(used, on=["noise", "fold", "seed"])
    same = (noise["used_rate"] - pd.to_numeric(noise["estimated_rate"])).abs() <= 1e-9
    if not (noise["used_rate"].notna() & ~same).any():
        noise["used_rate"] = math.nan
    given = noise["matrix"].notna() & ~noise["matrix_estimated"].astype(bool)
    injected = noise["noise"].map(lambda name: parse_noise(name).kind != "none")
    # of labels as given, a matrix that was given, but not used, has none
    noise["condition_number"] = noise["condition_number"].where(injected | given)
    noises = study_figures.study_noises(results)
    frame = pd.DataFrame({"noise": map(study_tables.noise_name, noises)})
    for name, label in NOISE_COLUMNS.items():
        if noise[name].notna().any():
            frame[label] = [_spread(noise.loc[noise["noise"] == of, name], name) for of in noises]
    table = data_table(
        frame,
        title="Share of wrong labels among the training samples",
        slug="noise",
        caption="Nominal: expected from the matrix and the class mix; realised: after injection; means over folds "
        f"(smallest … largest). Above a condition number of {ILL_CONDITIONED:.0f}, methods that invert the matrix are "
        "unreliable.",
    )
    matrices = filter(None, (study_figures.noise_matrix(results, name) for name in noises))
    return Section("noise", "Noise", tables=[table], figures=list(matrices))


def _spread(values: pd.Series[float], name: str) -> str:
    """The mean, and the smallest and the largest if they differ: a mean would hide a fold that used none."""
    digits, values = 1 if name == "condition_number" else 3, pd.to_numeric(values).dropna()
    if not len(values):
        return MISSING
    mean, low, high = (f"{number:.{digits}f}" for number in (values.mean(), values.min(), values.max()))
    return mean if low == high else f"{mean} ({low} … {high})"


def _runs(results: StudyResults) -> Section:
    test = results.scores[results.scores["split"] == "test"].pivot_table(
        index="key", columns="metric", values="value", aggfunc="last"
    )
    runs, held_out = results.runs, dict(enumerate(results.facts.get("held_out") or []))
    seconds = pd.to_numeric(runs["seconds"]).astype(float)
    frame = runs[["method", "noise", "fold", "seed", "status"]].assign(minutes=seconds / 60)
    frame["method"] = [display_name(*row) for row in runs[["method", "variant"]].itertuples(index=False)]
    frame["status"] = frame["status"].replace(STATUSES)
    if held_out:
        frame.insert(3, "held out", frame["fold"].map(held_out))
    for metric in study_tables.PAPER_METRICS:
        of_runs = test.reindex(index=runs["key"], columns=[metric])[metric]
        frame[METRICS[metric].short_name] = of_runs.to_numpy(float)
    total, networks = float(seconds.sum()), study_tables.networks_phrase(results.facts)
    table = data_table(
        frame,
        title="Every run",
        slug="runs",
        caption=f"Test side, mean over the last ten epochs (all, if fewer){networks}; {duration(total)} of training "
        "in all.",
        formats={"minutes": lambda minutes: "< 0.1" if 0 < minutes < 0.05 else f"{minutes:.1f}"},
    )
    return Section("runs", "Runs", tables=[table], closed=True)


def _data(results: StudyResults) -> Section:
    study, patients = results.facts, results.facts.get("patients")
    counts = [int(count) for count in study["class_counts"]]
    folds, used = int(study["folds"]), results.runs["fold"].nunique()
    split = count_of(folds, "fold") + (f", {used} of them used" if 0 < used < folds else "")
    if study.get("held_out"):
        split += f", each with one {_column(results)} as its test side: {', '.join(study['held_out'])}"
    entries = {
        "source": str(study["study"]["source"] or MISSING),
        "samples": f"{sum(counts):,}",
        "patients": "unknown" if patients is None else f"{patients:,}",
        "split": split + ("" if patients is None else ", each patient on one side only"),
        "preset": study["study"]["preset"] or "",
    }
    facts = [(term, value) for term, value in entries.items() if value]
    return Section("data", "Data", facts=facts, tables=[counts_table(study["grades"], counts)])


def _reproduce(facts: dict[str, Any]) -> Section:
    entries = [
        ("versions", ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items())),
        ("seeds", ", ".join(map(str, facts["study"]["seeds"]))),
        ("hash of the splits", str(facts.get("splits_hash") or MISSING)),
    ]
    code, settings = str(facts.get("command") or ""), settings_section(facts["study"]["train"])
    return Section("reproduce", "Reproduce", code=code, facts=entries, parts=settings)
