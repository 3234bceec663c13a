"""The tables of paired tests: differences, intervals, corrected p-values, and the pooled comparison."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from reports.score_tables import planned, scores
from srjt.reports.tables.paired import paired_tables, pooled_table


def test_the_paired_table_shows_difference_interval_p_and_folds() -> None:
    mine = scores(
        ("jocor", "quasi:0.2", [0.50, 0.50, 0.50, 0.50, 0.50]),
        ("sord", "quasi:0.2", [0.60, 0.60, 0.60, 0.60]),
        ("cdr", "quasi:0.2", [0.51, 0.52, 0.51, 0.52, 0.51]),
        ("jocor+ours", "quasi:0.2", [0.52, 0.51, 0.53, 0.50, 0.54]),
    )
    [table] = paired_tables(mine, test_train_ratio=1 / 3, metrics=["accuracy"])
    first, second = ([cell.text for cell in row.cells] for row in table.rows)
    host = ["JoCor + Ours", "ε = 0.2", "Acc. ↑", "JoCor (host)", "+0.020", "−0.012", "+0.052"]
    assert first == [*host, "0.158", "0.317", "5"]  # Holm: twice the smaller of two, 0.1583
    assert second[3:5] == ["CDR (best baseline)", "+0.006"]
    assert second[8] == second[7]
    assert "test/train = 0.333" in table.caption
    assert "with one seed per fold they cannot be told apart" in table.caption
    assert "corrected for the 2 comparisons of this report" in table.caption
    runs = planned(mine, **{"jocor+ours-quasi:0.2-4-0": "running"})
    [partial] = paired_tables(mine, runs=runs, test_train_ratio=1 / 3, metrics=["accuracy"])
    assert [row.cells[-1].text for row in partial.rows] == ["4", "4"]
    assert partial.rows[1].cells[3].text == "Sord (best baseline)"


def test_one_line_when_the_host_is_the_best_baseline_and_dashes_without_a_test() -> None:
    mine = scores(("jocor", "none", [0.5]), ("jocor+ours", "none", [0.4]))
    [table] = paired_tables(mine, test_train_ratio=1 / 3, metrics=["accuracy"])
    [row] = table.rows
    assert [cell.text for cell in row.cells[3:]] == [
        "JoCor (host, best baseline)",
        "−0.100",
        "–",
        "–",
        "–",
        "–",
        "1",
    ]
    assert (
        "There is one fold, so there are no intervals. The best baseline and the best “+ Ours” are chosen by the same"
        in (table.caption)
    )
    assert paired_tables(mine[:1], test_train_ratio=1 / 3, metrics=["accuracy"]) == []


def test_two_folds_are_shown_as_they_are() -> None:
    mine = scores(("jocor", "none", [0.5, 0.5]), ("jocor+ours", "none", [0.4, 0.55]))
    [table] = paired_tables(mine, test_train_ratio=1 / 3, metrics=["accuracy"])
    [row] = table.rows
    assert [cell.text for cell in row.cells[4:]] == ["−0.025", "−0.100", "+0.050", "–", "–", "2"]
    assert {column.group for column in table.columns if column.name in ("low", "high")} == {"the two folds"}
    assert (
        "There are two folds, so there are no intervals: the smaller and the larger difference"
        in table.caption
    )


def test_holm_counts_the_comparisons_of_all_tables_and_clear_ones_are_bold() -> None:
    gain = [0.100, 0.101, 0.102, 0.103, 0.104]  # p far below 0.05
    mine = scores(
        ("jocor", "quasi:0.2", [0.5] * 5),
        ("jocor+ours", "quasi:0.2", [0.5 + g for g in gain]),
        ("jocor", "truncated:0.2", [0.5, 0.6, 0.5, 0.6, 0.5]),
        ("jocor+ours", "truncated:0.2", [0.52, 0.61, 0.49, 0.62, 0.50]),
    )
    quasi, truncated = paired_tables(mine, test_train_ratio=1 / 3, metrics=["accuracy"])
    [clear], [weak] = quasi.rows, truncated.rows
    assert clear.cells[8].value == pytest.approx(2 * clear.cells[7].value)
    assert weak.cells[8].value == pytest.approx(weak.cells[7].value)
    assert [cell.bold for cell in clear.cells] == [n in (4, 8) for n in range(10)]
    assert not any(cell.bold for cell in weak.cells)
    assert "corrected for the 2 comparisons of this report" in truncated.caption
    assert quasi.legend == {"bold": "p, Holm below 0.05"}


def test_pooling_averages_over_hosts_and_noises_within_a_fold() -> None:
    noises = {"quasi:0.2": 0.0, "truncated:0.2": 0.02, "quasi:0.4": 0.1}
    mine = scores(
        *((host, noise, [0.5, 0.6, 0.7]) for host in ("jocor", "codis") for noise in noises),
        *(
            (f"{host}+ours", noise, [0.5 + shift + low, 0.61 + shift + low, 0.72 + shift + low])
            for host, low in (("jocor", 0.0), ("codis", 0.04))
            for noise, shift in noises.items()
        ),
        ("codis+ours", "quasi:0.2", {(3, 0): 0.9}),  # a fold that the others lack
    )
    [table] = pooled_table(mine, test_train_ratio=1 / 3, metrics=["accuracy"])
    assert [[cell.text for cell in row.cells[:4]] for row in table.rows] == [
        ["ε = 0.2", "2 × 2", "Acc. ↑", "+0.040"],  # 0.01 of folds, 0.01 of noises, 0.02 of hosts
        ["ε = 0.4", "2", "Acc. ↑", "+0.130"],
        ["all", "2 × 3", "Acc. ↑", "+0.070"],
    ]
    # the folds' means are 0.03, 0.04 and 0.05: s = 0.01, t = 0.04 / (0.01 √(1/3 + 1/3)) with 2 degrees of freedom
    first = table.rows[0].cells
    assert first[6].value == pytest.approx(2 * stats.t.sf(4 / math.sqrt(2 / 3), 2))
    assert first[8].text == "3"
    assert "averaged within a fold over hosts and noises" in table.caption
    assert (
        pooled_table(
            mine[mine["method"].str.contains("jocor")].query("noise == 'quasi:0.2'"),
            test_train_ratio=1 / 3,
            metrics=["accuracy"],
        )
        == []
    )
