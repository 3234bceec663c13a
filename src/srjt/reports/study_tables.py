"""The tables of a study: the comparison and the ablation as in the paper, and paired tests, single
and pooled."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from srjt.errors import SrjtError, count_of, unknown_name
from srjt.noise.matrices import FAMILIES
from srjt.ordinal.intervals import holm
from srjt.ordinal.metrics import METRICS
from srjt.reports.table import (
    MISSING,
    Column,
    Row,
    Table,
    TableCell,
    data_table,
    metric_heading,
    p_value,
)
from srjt.studies.config import NoiseSpec, parse_noise
from srjt.studies.paper import Difference, paper_dataset, paper_differences, paper_value
from srjt.studies.results import (
    LOWER_IS_BETTER,
    StudyResults,
    compare_ours,
    display_name,
    host_of,
    paper_order,
    pool_ours,
    size_ratio,
)
from srjt.training.baselines import NAIVE

# Words of a study's tables, figures and pages: metrics, noises, and which runs form the paper's
# ablation.

PAPER_METRICS = ("accuracy", "mae", "macro_f1")
NOISE_NAMES = {
    **{kind: family.name for kind, family in FAMILIES.items()},
    "none": "labels as given",
}


def noise_name(noise: str) -> str:
    """ "quasi:0.2" → "Quasi-Gaussian noise, ε = 0.2"; "none@0.5" → "Labels as given, 50% of the
    patients"."""
    spec = parse_noise(noise)
    name = "corrected labels" if spec.corrected else NOISE_NAMES[spec.kind]
    return ", ".join([name[0].upper() + name[1:], *_noise_numbers(spec)])


def noise_label(noise: str) -> str:
    """A short label below the name of the noise: "ε = 0.2", "ε = 0.2, ρ = 0.1", "50% of the
    patients" or "Labels as given"."""
    return ", ".join(_noise_numbers(parse_noise(noise))) or noise_name(noise)


def _noise_numbers(spec: NoiseSpec) -> list[str]:
    """What there is of rate, ρ and share."""
    numbers = (("ε", spec.rate), ("ρ", spec.rho))
    parts = []
    for sign, number in numbers:
        if number is not None:
            parts.append(f"{sign} = {number:g}")
    if spec.share < 1:
        parts.append(f"{spec.share:.0%} of the patients")
    return parts


# The runs of a study that form the paper's ablation: hard or soft loss for selection and update,
# for every host.

LossUsage = tuple[str, str]  # loss for selection, loss for the update: hard or soft
MethodVariant = tuple[str, str]  # method, variant

# in the paper's order; the first is the host itself, the third is "+ours"
LOSS_USAGES: tuple[LossUsage, ...] = (
    ("hard", "hard"),
    ("soft", "soft"),
    ("hard", "soft"),
    ("soft", "hard"),
)


def ablation(sources: Iterable[MethodVariant]) -> dict[str, dict[LossUsage, MethodVariant]]:
    """Host, in the paper's order → (select, update), in the order of LOSS_USAGES → the method and
    variant with it.

    A method with "+ours", or with a variant that sets select or update, is a host. Other variants
    are ignored, and a method without variant takes precedence over an equal variant.
    """
    every = list(sources)
    usages: dict[str, dict[LossUsage, MethodVariant]] = {}
    plain_first = sorted(set(every), key=lambda source: (source[1] != "", source))
    for method, variant in plain_first:
        chosen = loss_usage(variant)
        host = host_of(method)
        if chosen or not variant:
            usage = {"select": "hard", "update": "hard"}
            if host:
                usage["update"] = "soft"
            usage |= chosen or {}
            of_host = usages.setdefault(host or method, {})
            of_host.setdefault((usage["select"], usage["update"]), (method, variant))
    hosts = []
    for method, variant in every:
        if host_of(method) or loss_usage(variant):
            hosts.append(host_of(method) or method)
    ordered = {}
    for host in paper_order(hosts):
        of_host = usages[host]
        ordered[host] = {usage: of_host[usage] for usage in LOSS_USAGES if usage in of_host}
    return ordered


def loss_usage(variant: str) -> dict[str, str] | None:
    """The options select and update of a variant ("select=soft,update=soft"); None for other
    variants."""
    options = dict(part.partition("=")[::2] for part in variant.split(",") if part)
    if not options or options.keys() - {"select", "update"}:
        return None
    return options


NAIVE_LABEL, NAIVE_MEANING = NAIVE.split(": ", 1)
NAIVE_ROW: MethodVariant = (NAIVE_LABEL, "")  # no method has this name


@dataclass(frozen=True, kw_only=True)
class CaptionFacts:
    """What the caption of a table of means is about."""

    folds: int
    seeds: int
    over: str  # what the means are over
    metrics: str
    networks: str
    naive: bool  # whether one grade for all has a row
    paper: bool  # whether there are the paper's numbers
    differences: str  # from the paper's settings


def caption_of(f: CaptionFacts) -> Iterator[str]:
    """The sentences of the caption of a table of means."""
    yield (
        f"Test {f.metrics}: averaged over the last ten epochs (all, if fewer){f.networks};"
        f" {f.over}."
    )
    if f.folds == 1 < f.seeds:
        yield "Seeds share their test patients: ± does not contain patients."
    if f.naive:
        yield f"{NAIVE_LABEL.capitalize()}: {NAIVE_MEANING}."
    if f.paper:
        yield "“paper”: the value that the paper prints (Takezaki et al., WACV 2025)."
    if f.paper and not f.differences:
        yield "All settings that it states are the same here."
    if f.paper and f.differences:
        yield f"Here differ from it: {f.differences}."


def paired_caption(
    *, pooled: bool, folds: int, seeds: int, ratio: float, count: str
) -> Iterator[str]:
    """The sentences of the caption of a table of paired tests. ratio: of test to training
    patients. count: of comparisons."""
    if pooled:
        yield "“+ Ours” minus its host, averaged within a fold over hosts and noises."
    if not pooled:
        yield "Mean difference over the folds that both methods have."
    if folds < 3:
        yield "Fewer than three folds have no interval."
    if folds > 2:
        yield (
            "95% interval and two-sided p-value by the corrected resampled t-test (Nadeau and"
            f" Bengio, 2003; test/train = {ratio:.3g}); p, Holm: corrected for the {count} of"
            " this table."
        )
    if folds > 2 and seeds == 1:
        yield (
            "One seed: the intervals do not contain what all folds share, such as the initial"
            " weights."
        )
    if not pooled and folds > 1:
        yield "The best of several methods is chosen for each fold by the other folds."
    if not pooled and folds == 1:
        yield "The best of several methods is chosen by the same results."


class MeanRow(NamedTuple):
    """A row of a table of means, without its numbers. Best and second best are marked within a
    block; a line is drawn where the family, a host with its "+ours", changes."""

    labels: tuple[str, ...]
    source: MethodVariant
    host: MethodVariant | None
    block: str
    family: str
    # method, select, update; the method is empty if the paper has no such row
    paper: tuple[str, str, str]


def study_tables(results: StudyResults, *, metrics: Sequence[str] = PAPER_METRICS) -> list[Table]:
    """All tables of a study, with the paper's values if the study uses the paper's preset, and
    naive scores."""
    tables = StudyTables(results, metrics)
    return [*tables.comparison(), *tables.ablation(), *tables.paired(), *tables.pooled()]


def test_train_ratio(results: StudyResults) -> float:
    """For paired tests, from the sizes of the sides in ``splits.csv``; without it, those of k folds
    with one part for test, one for validation and k − 2 for training."""
    splits = results.folder / "splits.csv"
    if not splits.exists():
        return 1.0 / max(1, int(results.facts.get("folds") or 5) - 2)
    try:
        return size_ratio(pd.read_csv(splits, dtype={"id": str}))
    except (OSError, ValueError, KeyError) as problem:
        raise SrjtError(
            f"{splits} is damaged or not from srjt ({problem}).", code="damaged_file"
        ) from None


def networks_phrase(facts: Mapping[str, Any]) -> str:
    """How the scores of a method's networks are combined, and of which epoch others are, for a
    caption."""
    config = facts["study"]["train"]
    combined = " and the networks"
    if config.get("convention") == "published-code":
        combined = ", predictions of the networks pooled"
    keeps = [config.get("keep")]
    for cell in facts.get("cells", []):
        if "keep=best" in str(cell.get("variant", "")).split(","):
            keeps.append("best")
    if "best" in keeps:
        combined += "; with early stopping of the epoch that was best on the validation side"
    return combined


def finished(results: StudyResults) -> pd.DataFrame:
    """The test scores of finished runs: the last ten epochs of other runs are earlier ones."""
    done = results.runs.loc[results.runs["status"] == "done", "key"]
    scores = results.scores
    return scores[(scores["split"] == "test") & scores["key"].isin(done)].dropna(subset=["value"])


def naive_values(results: StudyResults, noise: str, metric: str) -> pd.Series[float]:
    """The scores of one grade for all samples. Index: fold and seed."""
    naive = results.naive
    naive = naive[(naive["noise"] == noise) & (naive["metric"] == metric)]
    return naive.set_index(["fold", "seed"])["value"]


def comparable_means(
    values: Mapping[MethodVariant, pd.Series[float]], naive: pd.Series[float] | None = None
) -> dict[MethodVariant, float]:
    """The means of those with the same runs: of the largest set of runs, the most common one of
    that size.

    naive: the scores of one grade for all, which are compared too (``NAIVE_ROW``) if they are known
    of all these runs.
    """
    sets = Counter(frozenset(scores.index) for scores in values.values() if len(scores))
    common = max(sets, key=lambda runs: (len(runs), sets[runs]), default=frozenset())
    means = {}
    for who, scores in values.items():
        if len(scores) and frozenset(scores.index) == common:
            means[who] = _rounded(scores.mean())
    if naive is not None and means and common <= frozenset(naive.index):
        means[NAIVE_ROW] = _rounded(naive[naive.index.isin(common)].mean())
    return means


def paired_tests(results: StudyResults, metrics: Iterable[str]) -> pd.DataFrame:
    """``compare_ours`` of the finished runs, with one row instead of two if the host is the best
    baseline."""
    ratio = test_train_ratio(results)
    tests = compare_ours(finished(results), test_train_ratio=ratio, metrics=tuple(metrics))
    keys = ["noise", "metric", "method", "against"]
    tests["role"] = tests.groupby(keys, sort=False)["role"].transform(", ".join)
    return tests.drop_duplicates(keys)


@dataclass(frozen=True)
class StudyTables:
    """The tables of a study. Only finished runs count, and missing ones are marked."""

    results: StudyResults
    metrics: Sequence[str] = PAPER_METRICS

    def __post_init__(self) -> None:
        """A metric that no run has is an error with a suggestion."""
        scores = self.results.scores
        known = scores[scores["split"] == "test"].dropna(subset=["value"])
        available = set(known["metric"]) or set(METRICS)
        if not self.metrics:
            raise SrjtError(
                "A table needs a metric: accuracy, mae, macro_f1 or another metric of the study.",
                code="missing_option",
                option="metrics",
            )
        for metric in self.metrics:
            if metric not in available:
                raise unknown_name("metric", metric, available)

    @cached_property
    def values(self) -> dict[tuple[str, ...], pd.Series[float]]:
        """Method, variant, noise, metric → the values of the finished runs; index: fold and
        seed."""
        by_run = finished(self.results).set_index(["fold", "seed"])
        groups = by_run.groupby(["method", "variant", "noise", "metric"])["value"]
        return {tuple(map(str, key)): group for key, group in groups}

    @cached_property
    def planned(self) -> dict[tuple[str, ...], int]:
        """Method, variant, noise → the number of its runs."""
        groups = self.results.runs.groupby(["method", "variant", "noise"], sort=False)
        return {tuple(map(str, key)): len(group) for key, group in groups}

    @property
    def kinds(self) -> dict[str, list[str]]:
        """Kind of noise, in the paper's order → its noises from weak to strong."""
        kinds = {}
        weak_first = sorted(self.results.runs["noise"].unique(), key=_weight_of_noise)
        for kind in NOISE_NAMES:
            noises = [noise for noise in weak_first if parse_noise(noise).kind == kind]
            if noises:
                kinds[kind] = noises
        return kinds

    # Tables of means

    @cached_property
    def compared(self) -> list[MethodVariant]:
        """The methods of the comparison, in the paper's order, without the variants of the
        ablation."""
        order = paper_order(method for method, _, _ in self.planned)
        sources = set()
        for method, variant, _ in self.planned:
            if loss_usage(variant) is None:
                sources.add((order.index(method), variant))
        return [(order[place], variant) for place, variant in sorted(sources)]

    def comparison(self) -> list[Table]:
        """One table per kind of noise: methods in the paper's order, the rates side by side, naive
        scores last."""
        hosts = {host_of(method) for method, _ in self.compared}
        rows = []
        for method, variant in self.compared:
            host = host_of(method)
            of_host = None
            if host:
                of_host = (host, variant)
                if of_host not in self.compared:
                    of_host = (host, "")
            family = host or ""
            if not host and method in hosts:
                family = method
            row = MeanRow(
                labels=(display_name(method, variant),),
                source=(method, variant),
                host=of_host,
                block="",
                family=family,
                paper=("" if variant else method, "", ""),
            )
            rows.append(row)
        return [self._mean_table(rows, kind, "Comparison", ("method",)) for kind in self.kinds]

    def ablation(self) -> list[Table]:
        """Hard or soft loss for selection and update, for every host: one table per kind of noise.

        No table if no run selects by the soft loss: the comparison then has all rows.
        """
        sources = [(method, variant) for method, variant, _ in self.planned]
        rows = []
        for host, usages in ablation(sources).items():
            for (select, update), source in usages.items():
                ours = (select, update) == ("hard", "soft")
                row = MeanRow(
                    labels=(display_name(host), select, update),
                    source=source,
                    host=usages.get(("hard", "hard")) if ours else None,
                    block=host,
                    family=host,
                    paper=(host, select, update),
                )
                rows.append(row)
        soft = [row for row in rows if row.labels[1] == "soft"]
        labels = ("host", "selection", "updating")
        tables = []
        for kind, noises in self.kinds.items():
            if self._planned_among(soft, noises):
                tables.append(self._mean_table(rows, kind, "Selection and updating", labels))
        return tables

    def _planned_among(self, rows: Sequence[MeanRow], noises: Sequence[str]) -> list[MeanRow]:
        """The rows with a run under one of the noises."""
        planned = {(method, variant) for method, variant, noise in self.planned if noise in noises}
        return [row for row in rows if row.source in planned]

    def _mean_table(
        self, rows: Sequence[MeanRow], kind: str, what: str, labels: tuple[str, ...]
    ) -> Table:
        noises = self.kinds[kind]
        is_comparison = len(labels) == 1
        rows = self._planned_among(rows, noises)
        columns: dict[Column, list[TableCell]] = {}  # a cell per row, and that of one grade for all
        for place, label in enumerate(labels):
            cells = [TableCell(text=row.labels[place]) for row in rows]
            cells.append(TableCell(text="" if place else NAIVE_LABEL.capitalize()))
            columns[Column(name=label, label=label.capitalize())] = cells
        for noise, metric in itertools.product(noises, self.metrics):
            label = METRICS[metric].short_name
            column = Column(
                name=f"{noise} {metric}",
                label=label,
                group=noise_label(noise),
                better="lower" if metric in LOWER_IS_BETTER else "higher",
                kind="mean",
            )
            naive_scores = naive_values(self.results, noise, metric)
            if not is_comparison:
                naive_scores = naive_scores[:0]  # there is no such row
            columns[column] = self._mean_cells(rows, noise, metric, naive_scores)
            printed = [self._paper_cell(row, noise, metric) for row in rows]
            if _has_numbers(printed):
                beside = Column(
                    name=f"{column.name} paper",
                    label=f"{label}, paper",
                    group=column.group,
                    kind="quoted",
                )
                columns[beside] = [*printed, TableCell()]
        *lines, naive = zip(*columns.values(), strict=True)
        body: list[Row] = []
        family = rows[0].family if rows else ""
        for row, line in zip(rows, lines, strict=True):
            body.append(Row(cells=line, rule=row.family != family, ours=row.host is not None))
            family = row.family
        with_naive = is_comparison and _has_numbers(naive)
        if with_naive:
            body.append(Row(cells=naive, rule=True))
        quoted = any(column.kind == "quoted" for column in columns)
        return Table(
            slug=f"{'comparison' if is_comparison else 'ablation'}-{kind}",
            title=f"{what}, {NOISE_NAMES[kind]}",
            caption=self._caption(noises, naive=with_naive, paper=quoted),
            columns=tuple(columns),
            rows=tuple(body),
        )

    def _caption(self, noises: Sequence[str], *, naive: bool, paper: bool) -> str:
        """naive, paper: as in ``CaptionFacts``."""
        runs = self.results.runs[self.results.runs["noise"].isin(noises)]
        folds = runs["fold"].nunique()
        seeds = runs["seed"].nunique()
        over = "one fold and one seed"
        if folds * seeds > 1:
            over = (
                f"mean ± standard deviation (population, ddof = 0) over {count_of(folds, 'fold')}"
            )
        if seeds > 1:
            over += f" and {seeds} seeds"
        facts = CaptionFacts(
            folds=folds,
            seeds=seeds,
            over=over,
            metrics=", ".join(METRICS[metric].long_name for metric in self.metrics),
            networks=networks_phrase(self.results.facts),
            naive=naive,
            paper=paper,
            differences=self._paper_differences(),
        )
        return " ".join(caption_of(facts))

    def _mean_cells(
        self, rows: Sequence[MeanRow], noise: str, metric: str, naive: pd.Series[float]
    ) -> list[TableCell]:
        """One cell per row and one for one grade for all, which takes part in the best; each with
        its marks."""
        empty = pd.Series(dtype=np.float64)
        of_row = {row.source: self.values.get((*row.source, noise, metric), empty) for row in rows}
        cells = []
        for row in rows:
            values = of_row[row.source]
            partial = 0 < len(values) < self.planned.get((*row.source, noise), 0)
            host = None
            if row.host is not None:
                host = self.values.get((*row.host, noise, metric))
            bold = host is not None and _is_better(values, host, metric)
            block = {one.source: of_row[one.source] for one in rows if one.block == row.block}
            means = comparable_means(block, naive if len(naive) else None)
            mark = _mark(means.get(row.source), list(means.values()), metric)
            cells.append(replace(mean_cell(values), mark=mark, bold=bold, partial=partial))
        # a metric without a naive score; a dash would mean that no run has finished
        if not len(naive):
            return [*cells, TableCell()]
        means = comparable_means(of_row, naive)
        mark = _mark(means.get(NAIVE_ROW), list(means.values()), metric)
        return [*cells, replace(mean_cell(naive), mark=mark)]

    @cached_property
    def _paper_dataset(self) -> str | None:
        return paper_dataset(self.results.facts)

    def _paper_differences(self) -> str:
        """The settings that are not the paper's, for a caption."""
        if self._paper_dataset is None:
            return ""
        differences = paper_differences(self.results.facts, self._paper_dataset)
        return "; ".join(map(_difference, differences))

    def _paper_cell(self, row: MeanRow, noise: str, metric: str) -> TableCell:
        """The paper's value for a row, or an empty cell."""
        method, select, update = row.paper
        printed = paper_value(
            self._paper_dataset or "", noise, method, metric, select=select, update=update
        )
        if printed is None:
            return TableCell()
        return _number_cell(*printed)

    # Tables of tests

    def paired(self) -> list[Table]:
        """Every "+ours" against its host and the best baseline; none without "+ours"."""
        tests = paired_tests(self.results, self.metrics)
        if tests.empty:
            return []
        methods = paper_order(tests["method"])
        noises = list(itertools.chain(*self.kinds.values()))
        by_noise = tests["noise"].map(noises.index)
        by_method = tests["method"].map(methods.index)
        tests = tests.iloc[np.lexsort((by_noise, by_method))]
        against = []
        for names, role in zip(tests["against"], tests["role"], strict=True):
            shown = ", ".join(map(display_name, names.split(", ")))
            against.append(f"{shown} ({role})")
        labels = {
            "Method": tests["method"].map(display_name),
            "Noise": tests["noise"].map(noise_name),
            "Metric": tests["metric"].map(partial(metric_heading, short=True)),
            "Against": against,
        }
        return [self._test_table(tests, labels, "paired", "Paired comparison")]

    def pooled(self) -> list[Table]:
        """ "+ours" against host over hosts and noises, for each rate and for all; none with fewer
        than two pairs."""
        alike: dict[tuple[Any, ...], list[str]] = {}
        for noise in itertools.chain(*self.kinds.values()):  # from weak to strong
            alike.setdefault(_strength(noise), []).append(noise)
        groups = dict(zip(map(_pooled_name, alike.values()), alike.values(), strict=True))
        if len(groups) > 1:
            groups["all"] = list(itertools.chain(*alike.values()))
        tests = pool_ours(
            finished(self.results), groups, test_train_ratio=self.ratio, metrics=self.metrics
        )
        if tests.empty:
            return []
        products = tests["hosts"].astype(str) + " × " + tests["noises"].astype(str)
        labels = {
            "Noise": tests["group"],
            "Hosts × noises": products.str.removesuffix(" × 1"),
            "Metric": tests["metric"].map(partial(metric_heading, short=True)),
        }
        return [self._test_table(tests, labels, "pooled", "“+ Ours” against hosts, pooled")]

    @cached_property
    def ratio(self) -> float:
        return test_train_ratio(self.results)

    def _test_table(
        self, tests: pd.DataFrame, labels: Mapping[str, Any], slug: str, title: str
    ) -> Table:
        """labels: the first columns. A line is drawn where the first of them changes."""
        frame = pd.DataFrame(
            {
                **{name: list(column) for name, column in labels.items()},
                "Difference": tests["difference"].to_numpy(float),
                "from": tests["low"].to_numpy(float),
                "to": tests["high"].to_numpy(float),
                "p": tests["p_value"].to_numpy(float),
                "p, Holm": holm(tests["p_value"]),
                "Folds": tests["n"].to_numpy(int),
            }
        )
        caption = paired_caption(
            folds=self.results.runs["fold"].nunique(),
            seeds=self.results.runs["seed"].nunique(),
            pooled=slug == "pooled",
            ratio=self.ratio,
            count=count_of(int(tests["p_value"].notna().sum()), "comparison"),
        )
        return data_table(
            frame,
            title=title,
            slug=slug,
            caption=" ".join(caption),
            formats={
                "Difference": "+.3f",
                "from": "+.3f",
                "to": "+.3f",
                "p": p_value,
                "p, Holm": p_value,
            },
            groups={"from": "95% interval", "to": "95% interval"},
            rule_before=np.flatnonzero(~frame.iloc[:, 0].duplicated())[1:].tolist(),
        )


def _strength(noise: str) -> tuple[Any, ...]:
    """What noises that are pooled have in common: the rate, or, where only ρ is given, the noise
    itself."""
    spec = parse_noise(noise)
    if spec.rate is None:
        return (spec.share, spec.labels)
    return (spec.share, spec.rate)


def _pooled_name(noises: Sequence[str]) -> str:
    """ "Quasi-Gaussian and Truncated-Gaussian noise, ε = 0.2": the noises of a row, without ρ if
    they differ in it."""
    if len(noises) == 1:
        return noise_name(noises[0])
    names: dict[str, None] = {}
    for noise in noises:
        names[NOISE_NAMES[parse_noise(noise).kind].removesuffix(" noise")] = None
    rate = _noise_numbers(replace(parse_noise(noises[0]), rho=None))
    return ", ".join([" and ".join(names) + " noise", *rate])


def _weight_of_noise(noise: str) -> float:
    """From weak to strong."""
    spec = parse_noise(noise)
    return spec.rate or spec.rho or 0.0


def _has_numbers(cells: Iterable[TableCell]) -> bool:
    return any(cell.value is not None for cell in cells)


def mean_cell(values: pd.Series[float]) -> TableCell:
    """Mean ± standard deviation of the population of the values of runs."""
    if not len(values):
        return TableCell(text=MISSING, runs=0)
    std = None
    if len(values) > 1:
        std = _rounded(values.std(ddof=0))
    return _number_cell(_rounded(values.mean()), std, runs=len(values))


def _is_better(values: pd.Series[float], host: pd.Series[float], metric: str) -> bool:
    """Whether the mean is better than the host's, over the runs that both have."""
    gain = (values - host).dropna()
    if not len(gain):
        return False
    mean = _rounded(gain.mean())
    if metric in LOWER_IS_BETTER:
        return mean < 0
    return mean > 0


def _rounded(number: float) -> float:
    """The last bit of a sum differs between processors, and must not round half a digit or decide
    who is best."""
    return round(float(number), 9)


def _number_cell(mean: float, std: float | None, runs: int | None = None) -> TableCell:
    text = f"{mean:.3f}".replace("-", "−")
    if std is not None:
        text += f" ± {std:.3f}"
    return TableCell(text=text, value=mean, std=std, runs=runs)


def _mark(mean: float | None, means: Sequence[float], metric: str) -> Literal["", "best", "second"]:
    """The place of a mean, None if it is not comparable, among those of methods with the same
    runs."""
    if mean is None or len(means) < 2:
        return ""
    best, second = sorted(means, reverse=metric not in LOWER_IS_BETTER)[:2]
    if mean == best:
        return "best"
    if mean == second and len(means) > 2:
        return "second"
    return ""


def _difference(one: Difference) -> str:
    """ "epochs 20 (paper: 150)"."""
    return f"{one.name.replace('_', ' ')} {_setting(one.ours)} (paper: {_setting(one.paper)})"


def _setting(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_setting, value))
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
