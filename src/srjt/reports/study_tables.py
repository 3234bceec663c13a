"""The tables of a study: the comparison and the ablation as in the paper, and paired tests, single and pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from srjt.ordinal.intervals import holm
from srjt.reports.statistics import (
    METRIC_NAMES,
    PAPER_METRICS,
    CollectedValues,
    RowSpec,
    ablation,
    by_kind,
    collect_values,
    decimals,
    finished,
    loss_usage,
    metric_cells,
    metric_column,
    metric_label,
    noise_label,
    paper_cell,
    table_title,
)
from srjt.reports.table import MISSING, Column, Row, Table, TableCell
from srjt.studies.paired_tests import LOWER_IS_BETTER, compare_ours, pool_ours
from srjt.studies.results import OURS, display_name, host_of, paper_dataset, paper_order

if TYPE_CHECKING:
    from srjt.studies.results import StudyResults

# The paired tests of "+ours" as tables: each comparison, and hosts and noises pooled.


def paired_tables(
    scores: pd.DataFrame,
    *,
    test_train_ratio: float,
    runs: pd.DataFrame | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
    confidence: float = 0.95,
) -> list[Table]:
    """Every "+ours" against its host and the best baseline, one table per kind of noise; none without "+ours".

    p-values are corrected for the number of comparisons in all tables together.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    tests = compare_ours(
        finished(scores, runs),
        test_train_ratio=test_train_ratio,
        metrics=metrics,
        split=split,
        confidence=confidence,
    ).to_dict("records")
    tests = _merge_roles(tests)
    for test, corrected in zip(tests, _holm(tests), strict=True):
        test["p_holm"] = corrected
    tables = []
    for kind, noises in by_kind(study).items():
        rows: list[Row] = []
        for method in paper_order(str(test["method"]) for test in tests):
            of_method = [
                test
                for noise in noises
                for test in tests
                if (test["method"], test["noise"]) == (method, noise)
            ]
            for number, test in enumerate(of_method):
                cells = _paired_cells(test, confidence, two=_folds(study) == 2)
                rows.append(Row(cells=cells, rule=bool(rows) and number == 0))
        if rows:
            tables.append(
                Table(
                    slug=f"paired-{kind}",
                    title=table_title("Paired comparison", kind, data),
                    caption="Mean difference over the folds that both methods have, "
                    f"{_how(test_train_ratio, confidence)} {_contains(study)} {_choice(study)} p, Holm: corrected for "
                    f"the {_count(tests)} of this report; “{MISSING}”: too few different folds for a test.",
                    columns=_paired_columns(confidence, two=_folds(study) == 2),
                    rows=tuple(rows),
                    bold_means=f"p, Holm below {1 - confidence:.2g}",
                )
            )
    return tables


def pooled_table(
    scores: pd.DataFrame,
    *,
    test_train_ratio: float,
    runs: pd.DataFrame | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
    confidence: float = 0.95,
) -> list[Table]:
    """ "+ours" against host over hosts and noises, for each rate and for all; none with fewer than two pairs."""
    study = collect_values(scores, runs, metrics=metrics, split=split)
    groups: dict[str, list[str]] = {}
    for noise in (noise for noises in by_kind(study).values() for noise in noises):  # from weak to strong
        groups.setdefault(noise_label(noise), []).append(noise)
    if len(groups) > 1:
        groups["all"] = list(study.noises)
    tests = pool_ours(
        finished(scores, runs),
        groups,
        test_train_ratio=test_train_ratio,
        metrics=metrics,
        split=split,
        confidence=confidence,
    ).to_dict("records")
    if not tests:
        return []
    rows: list[Row] = []
    for test, corrected in zip(tests, _holm(tests), strict=True):
        cells = (
            TableCell(text=str(test["group"])),
            TableCell(
                text=f"{test['hosts']} × {test['noises']}" if test["noises"] > 1 else str(test["hosts"])
            ),
            TableCell(text=_metric(str(test["metric"]))),
            *_test_cells({**test, "p_holm": corrected}, confidence, two=_folds(study) == 2),
        )
        rows.append(Row(cells=cells, rule=bool(rows) and test["metric"] == metrics[0]))
    return [
        Table(
            slug="pooled",
            title=f"{data}: “+ Ours” against hosts, pooled" if data else "“+ Ours” against hosts, pooled",
            caption="“+ Ours” minus its host, averaged within a fold over hosts and noises, then over the folds that "
            f"all pairs have, {_how(test_train_ratio, confidence)} {_contains(study)} p, Holm: corrected for the "
            f"{_count(tests)} of this table; “{MISSING}”: too few different folds for a test.",
            columns=(
                Column(name="noise", label="Noise"),
                Column(name="hosts", label="Hosts × noises"),
                Column(name="metric", label="Metric"),
                *_test_columns(confidence, two=_folds(study) == 2),
            ),
            rows=tuple(rows),
            bold_means=f"p, Holm below {1 - confidence:.2g}",
        )
    ]


def _holm(tests: Sequence[Mapping[Any, Any]]) -> list[float | None]:
    return [_known(p) for p in holm([test["p_value"] for test in tests])]


def _count(tests: Sequence[Mapping[Any, Any]]) -> str:
    number = sum(_known(test["p_value"]) is not None for test in tests)
    return f"{number} comparison{'s' * (number != 1)}"


def _how(test_train_ratio: float, confidence: float) -> str:
    return (
        f"with its {confidence:.0%} interval and two-sided p-value by the corrected resampled t-test (Nadeau and "
        f"Bengio, 2003; test/train = {test_train_ratio:.3g})."
    )


def _folds(study: CollectedValues) -> int:
    return len({fold for runs in study.planned.values() for fold, _ in runs})


def _contains(study: CollectedValues) -> str:
    """What an interval over folds contains."""
    runs = set().union(*study.planned.values())
    if _folds(study) == 1:
        return "There is one fold, so there are no intervals."
    if _folds(study) == 2:
        return (
            "There are two folds, so there are no intervals: the smaller and the larger difference are shown."
        )
    several = len({seed for _, seed in runs}) > 1
    seeds = (
        "seeds are averaged within a fold" if several else "with one seed per fold they cannot be told apart"
    )
    return f"Each fold has its own test patients and its own trainings, and intervals contain both; {seeds}."


def _choice(study: CollectedValues) -> str:
    """By which results the best of several methods is chosen."""
    one_fold = _folds(study) == 1
    chosen = (
        "by the same results" if one_fold else "for each fold by the other folds, whose patients are others"
    )
    return f"The best baseline and the best “+ Ours” are chosen {chosen}."


def _merge_roles(tests: Sequence[Mapping[Any, Any]]) -> list[dict[Any, Any]]:
    """One row instead of two if the host is the best baseline."""
    merged: dict[tuple[Any, ...], dict[Any, Any]] = {}
    for test in tests:
        key = (test["noise"], test["metric"], test["method"], test["against"])
        if key in merged:
            merged[key]["role"] += f", {test['role']}"
        else:
            merged[key] = dict(test)
    return list(merged.values())


def _paired_columns(confidence: float, *, two: bool) -> tuple[Column, ...]:
    return (
        Column(name="method", label="Method"),
        Column(name="noise", label="Noise"),
        Column(name="metric", label="Metric"),
        Column(name="against", label="Against"),
        *_test_columns(confidence, two=two),
    )


def _test_columns(confidence: float, *, two: bool) -> tuple[Column, ...]:
    interval = "the two folds" if two else f"{confidence:.0%} interval"
    return (
        Column(name="difference", label="Difference", kind="number"),
        Column(name="low", label="from", group=interval, kind="number"),
        Column(name="high", label="to", group=interval, kind="number"),
        Column(name="p", label="p", kind="number"),
        Column(name="p_holm", label="p, Holm", kind="number"),
        Column(name="folds", label="Folds", kind="number"),
    )


def _paired_cells(test: Mapping[Any, Any], confidence: float, *, two: bool) -> tuple[TableCell, ...]:
    opponents = ", ".join(display_name(name) for name in str(test["against"]).split(", "))
    return (
        TableCell(text=display_name(str(test["method"]))),
        TableCell(text=noise_label(str(test["noise"]))),
        TableCell(text=_metric(str(test["metric"]))),
        TableCell(text=f"{opponents} ({test['role']})"),
        *_test_cells(test, confidence, two=two),
    )


def _test_cells(test: Mapping[Any, Any], confidence: float, *, two: bool) -> tuple[TableCell, ...]:
    difference, low, high, p, corrected = (
        _known(test[name]) for name in ("difference", "low", "high", "p_value", "p_holm")
    )
    clear = corrected is not None and corrected < 1 - confidence
    return (
        replace(_signed(difference), bold=clear),
        *(_both(test) if two and test["n"] == 2 else (_signed(low), _signed(high))),
        _p_value(p),
        replace(_p_value(corrected), bold=clear),
        TableCell(text=str(test["n"]), value=float(test["n"])),
    )


def _both(test: Mapping[Any, Any]) -> tuple[TableCell, TableCell]:
    """The smaller and the larger of two folds' differences, in place of an interval: mean ∓ std / √2."""
    mean, half = float(test["difference"]), float(test["std"]) / 2**0.5
    return _signed(mean - half), _signed(mean + half)


def _metric(metric: str) -> str:
    return f"{metric_label(metric)} {'↓' if metric in LOWER_IS_BETTER else '↑'}"


def _p_value(p: float | None) -> TableCell:
    return TableCell(text=MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}", value=p)


def _signed(number: float | None) -> TableCell:
    return TableCell(text=MISSING if number is None else decimals(number, signed=True), value=number)


def _known(number: Any) -> float | None:
    return None if number is None or pd.isna(number) else float(number)


# The tables of a study: the comparison and the ablation as in the paper, and paired tests, single and pooled.
#
# scores: method, variant, noise, fold, seed, split, metric, value; one value per run. With ``runs`` (one
# row per planned run, with key and status) only finished runs count, and missing runs are marked.

NETWORKS = " and the networks"


def study_tables(
    results: StudyResults,
    *,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    test_train_ratio: float | None = None,
) -> list[Table]:
    """All tables of a study, with the paper's values if the study uses the paper's preset.

    test_train_ratio: for the paired test. Default: that of k folds with one part for test, one for validation and
    k − 2 for training.
    """
    if test_train_ratio is None:
        test_train_ratio = 1.0 / max(1, int(results.facts.get("folds") or 5) - 2)
    name, paper = str(results.facts.get("name") or ""), paper_dataset(results.facts)
    scores, runs, networks = results.scores, results.runs, networks_phrase(results.facts)
    return [
        *comparison_tables(
            scores, runs=runs, paper=paper, metrics=metrics, split=split, data=name, networks=networks
        ),
        *ablation_tables(
            scores, runs=runs, paper=paper, metrics=metrics, split=split, data=name, networks=networks
        ),
        *paired_tables(
            scores, test_train_ratio=test_train_ratio, runs=runs, metrics=metrics, split=split, data=name
        ),
        *pooled_table(
            scores, test_train_ratio=test_train_ratio, runs=runs, metrics=metrics, split=split, data=name
        ),
    ]


def networks_phrase(facts: Mapping[str, Any]) -> str:
    """How the scores of a method's networks are combined, and of which epoch others are, for a caption."""
    config = facts.get("config", {})
    combined = NETWORKS
    if config.get("convention") == "published-code":
        combined = ", predictions of the networks pooled"
    variants = [str(cell.get("variant", "")).split(",") for cell in facts.get("cells", [])]
    if config.get("keep") == "best" or any("keep=best" in variant for variant in variants):
        combined += "; with early stopping of the epoch that was best on the validation side"
    return combined


def comparison_tables(
    scores: pd.DataFrame,
    *,
    runs: pd.DataFrame | None = None,
    paper: str | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
    networks: str = NETWORKS,
) -> list[Table]:
    """One table per kind of noise: methods in the paper's order, the rates side by side.

    paper: "limuc", "private" or "dr" adds columns with the paper's values. data: a name for the titles.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    sources = {(method, variant) for method, variant, _ in study.planned if loss_usage(variant) is None}
    order = paper_order(method for method, _, _ in study.planned)
    rows: list[RowSpec] = []
    for method, variant in sorted(sources, key=lambda source: (order.index(source[0]), source[1])):
        host = host_of(method)
        rows.append(
            RowSpec(
                labels=(display_name(method, variant),),
                source=(method, variant),
                host=(host, variant if (host, variant) in sources else "") if host else None,
                block="",
                rule=bool(rows) and _starts_group(method, order) and not variant,
                paper=(method, "", "") if not variant else None,
            )
        )
    return [
        _table(study, rows, noises, slug=f"comparison-{kind}", what="Comparison", kind=kind, scope="in a column",
               labels=("method",), paper=paper, metrics=metrics, split=split, data=data, networks=networks)
        for kind, noises in by_kind(study).items()
    ]  # fmt: skip


def ablation_tables(
    scores: pd.DataFrame,
    *,
    runs: pd.DataFrame | None = None,
    paper: str | None = None,
    metrics: Sequence[str] = PAPER_METRICS,
    split: str = "test",
    data: str = "",
    networks: str = NETWORKS,
) -> list[Table]:
    """Hard or soft loss for selection and update, for every host: one table per kind of noise.

    No table if no run selects by the soft loss: the comparison then has all rows.
    """
    study = collect_values(scores, runs, metrics=metrics, split=split)
    rows: list[RowSpec] = []
    for host, found in ablation((method, variant) for method, variant, _ in study.planned).items():
        for number, ((select, update), source) in enumerate(found.items()):
            rows.append(
                RowSpec(
                    labels=(display_name(host), select, update),
                    source=source,
                    host=found.get(("hard", "hard")) if (select, update) == ("hard", "soft") else None,
                    block=host,
                    rule=bool(rows) and number == 0,
                    paper=(host, select, update),
                )
            )
    soft = {row.source for row in rows if row.labels[1] == "soft"}
    return [
        _table(study, rows, noises, slug=f"ablation-{kind}", what="Selection and updating", kind=kind,
               scope="of a host in a column", labels=("host", "selection", "updating"), paper=paper,
               metrics=metrics, split=split, data=data, networks=networks)
        for kind, noises in by_kind(study).items()
        if any((*source, noise) in study.planned for source in soft for noise in noises)
    ]  # fmt: skip


def _starts_group(method: str, order: list[str]) -> bool:
    """Whether there is a line above the row: before and after a host with its "+ours"."""

    def group(name: str) -> str:
        host = host_of(name) or name
        return host if host + OURS in order else ""

    place = order.index(method)
    return place > 0 and group(order[place - 1]) != group(method)


def _table(
    study: CollectedValues,
    specs: Sequence[RowSpec],
    noises: Sequence[str],
    *,
    slug: str,
    what: str,
    kind: str,
    scope: str,
    labels: tuple[str, ...],
    paper: str | None,
    metrics: Sequence[str],
    split: str,
    data: str,
    networks: str,
) -> Table:
    specs = [spec for spec in specs if any((*spec.source, noise) in study.planned for noise in noises)]
    columns = [Column(name=label, label=label.capitalize()) for label in labels]
    body = [[TableCell(text=label) for label in spec.labels] for spec in specs]
    with_paper = False
    for noise in noises:
        for metric in metrics:
            columns.append(metric_column(noise, metric))
            for cells, cell in zip(body, metric_cells(study, specs, noise=noise, metric=metric), strict=True):
                cells.append(cell)
            printed = [paper_cell(paper, spec, noise=noise, metric=metric) for spec in specs]
            if any(cell.value is not None for cell in printed):
                with_paper = True
                columns.append(metric_column(noise, metric, paper=True))
                for cells, cell in zip(body, printed, strict=True):
                    cells.append(cell)
    rows = [
        Row(cells=tuple(cells), rule=spec.rule and bool(number), ours=spec.host is not None)
        for number, (spec, cells) in enumerate(zip(specs, body, strict=True))
    ]
    caption = _caption(
        study,
        noises,
        metrics=metrics,
        split=split,
        scope=scope if len(rows) > 1 else "",
        with_paper=with_paper,
        networks=networks,
    )
    return Table(
        slug=slug,
        title=table_title(what, kind, data),
        caption=caption,
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _spread(folds: int) -> str:
    """What a standard deviation contains."""
    if folds == 1:
        return "Seeds differ in their training and share their test patients: ± does not contain patients."
    return "Each fold has its own test patients and its own training: ± contains both."


def _caption(
    study: CollectedValues,
    noises: Sequence[str],
    *,
    metrics: Sequence[str],
    split: str,
    scope: str,
    with_paper: bool,
    networks: str,
) -> str:
    names = [METRIC_NAMES.get(metric, ("", metric))[1] for metric in metrics]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    runs = set().union(*(found for (_, _, noise), found in study.planned.items() if noise in noises))
    folds, seeds = len({fold for fold, _ in runs}), len({seed for _, seed in runs})
    over = f"{folds} fold{'s' * (folds != 1)}" + (f" and {seeds} seeds" if seeds > 1 else "")
    text = f"{split.capitalize()} {listed}, averaged over the last ten epochs (all, if fewer){networks}"
    text += (
        f"; mean ± standard deviation (population, ddof = 0) over {over}. {_spread(folds)}"
        if len(runs) > 1
        else "; one fold and one seed."
    )
    if scope:
        text += f" Best and second best {scope} are marked among methods with the same runs."
    if with_paper:
        text += " “paper”: the value that the paper prints for this setting (Takezaki et al., WACV 2025)."
    return text
