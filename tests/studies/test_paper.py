"""The paper's tables as data: complete, as printed, and consistent with themselves."""

import itertools

import pandas as pd
import pytest

from srjt import methods
from srjt.studies import results as paper
from srjt.studies.results import DISPLAY_NAMES, display_name, is_ours, paper_order, paper_results, paper_value

METRICS = ("accuracy", "mae", "macro_f1")


def test_every_cell_of_the_nine_tables_is_there_once() -> None:
    results = paper_results()
    noisy = itertools.product(("limuc", "private"), ("quasi", "truncated"), (0.2, 0.4))
    expected = {("comparison", "dr", "none", 0.3, m, "", "", k) for m in DISPLAY_NAMES for k in METRICS}
    for (dataset, noise, rate), metric in itertools.product(noisy, METRICS):
        expected |= {("comparison", dataset, noise, rate, m, "", "", metric) for m in DISPLAY_NAMES}
        for select, update in (("hard", "hard"), ("soft", "soft"), ("hard", "soft")):
            expected.add(("ablation", dataset, noise, rate, "co-teaching", select, update, metric))
    found = list(results.drop(columns=["mean", "std"]).itertuples(index=False, name=None))
    assert len(found) == len(set(found)) == 450
    assert set(found) == expected
    assert results["mean"].between(0, 1).all()
    assert results["std"].isna().equals(results["dataset"] == "dr")


# Copied by hand: the corners of every table, and cells in the middle.
@pytest.mark.parametrize(
    ("dataset", "noise", "method", "metric", "mean", "std"),
    [
        ("limuc", "quasi:0.2", "standard", "accuracy", 0.673, 0.013),
        ("limuc", "quasi:0.4", "standard", "macro_f1", 0.463, 0.019),
        ("limuc", "quasi:0.2", "jocor+ours", "accuracy", 0.733, 0.007),
        ("limuc", "quasi:0.4", "jocor", "macro_f1", 0.536, 0.077),
        ("limuc", "quasi:0.4", "codis+ours", "macro_f1", 0.573, 0.012),
        ("private", "quasi:0.2", "garg", "mae", 0.311, 0.022),
        ("private", "quasi:0.4", "jocor+ours", "mae", 0.242, 0.015),
        ("private", "quasi:0.4", "codis+ours", "macro_f1", 0.549, 0.034),
        ("private", "truncated:0.2", "standard", "accuracy", 0.760, 0.010),
        ("private", "truncated:0.4", "garg", "macro_f1", 0.233, 0.010),
        ("private", "truncated:0.4", "codis+ours", "macro_f1", 0.531, 0.028),
        ("limuc", "truncated:0.2", "garg", "mae", 0.433, 0.146),
        ("limuc", "truncated:0.4", "sord", "macro_f1", 0.564, 0.024),
        ("limuc", "truncated:0.4", "codis+ours", "mae", 0.342, 0.015),
        ("dr", "none", "standard", "accuracy", 0.731, None),
        ("dr", "none", "co-teaching", "mae", 0.746, None),
        ("dr", "none", "codis+ours", "macro_f1", 0.384, None),
    ],
)
def test_comparisons_as_printed(dataset: str, noise: str, method: str, metric: str, mean, std) -> None:
    assert paper_value(dataset, noise, method, metric) == (mean, std)


@pytest.mark.parametrize(
    ("dataset", "noise", "usage", "metric", "printed"),
    [
        ("limuc", "quasi:0.2", ("soft", "soft"), "mae", (0.293, 0.011)),
        ("private", "quasi:0.4", ("soft", "soft"), "accuracy", (0.757, 0.023)),
        ("limuc", "truncated:0.4", ("soft", "soft"), "macro_f1", (0.489, 0.021)),
        ("private", "truncated:0.4", ("hard", "soft"), "mae", (0.282, 0.033)),
    ],
)
def test_ablations_as_printed(dataset: str, noise: str, usage, metric: str, printed) -> None:
    assert paper_value(dataset, noise, "co-teaching", metric, select=usage[0], update=usage[1]) == printed


def test_the_ablation_repeats_the_comparison_but_for_one_digit() -> None:
    results = paper_results()
    settings = ["dataset", "noise", "rate", "metric"]
    deviating = []
    for method, update in (("co-teaching", "hard"), ("co-teaching+ours", "soft")):
        main = results.query(f"table == 'comparison' and method == '{method}'")
        ablation = results.query(f"table == 'ablation' and select == 'hard' and update == '{update}'")
        both = pd.merge(main, ablation, on=settings)
        assert len(both) == 24
        assert (both["mean_x"] == both["mean_y"]).all()
        deviating += both[both["std_x"] != both["std_y"]][[*settings, "std_x", "std_y"]].to_numpy().tolist()
    assert deviating == [["private", "quasi", 0.4, "macro_f1", 0.031, 0.036]]


def test_noise_by_the_papers_rho_is_the_papers_rate() -> None:
    printed = paper_value("limuc", "truncated:0.4", "cdr", "accuracy")
    assert printed == (0.571, 0.027)
    assert paper_value("limuc", "truncated:rho=0.3", "cdr", "accuracy") == printed
    assert paper_value("limuc", "truncated:rho=0.3,rate=0.4", "cdr", "accuracy") == printed


@pytest.mark.parametrize(
    ("dataset", "noise", "method", "metric"),
    [
        ("limuc", "quasi:0.3", "cdr", "accuracy"),  # a rate that the paper has not
        ("limuc", "quasi:rho=0.1,rate=0.4", "cdr", "accuracy"),  # the paper's ρ with another rate
        ("limuc", "none", "cdr", "accuracy"),
        ("limuc", "quasi:0.2", "mine", "accuracy"),
    ],
)
def test_what_the_paper_does_not_print_is_none(dataset: str, noise: str, method: str, metric: str) -> None:
    assert paper_value(dataset, noise, method, metric) is None


def test_only_the_papers_presets_are_its_setting() -> None:
    presets = ("limuc", "dr", "demo", "paper", None)
    datasets = [paper.paper_dataset({"study": {"preset": preset}}) for preset in presets]
    assert datasets == ["limuc", "dr", None, None, None]


def test_every_registered_method_of_the_paper_has_its_name() -> None:
    modules = {name: methods.lookup(name).method.__module__ for name in methods.plain_names()}
    assert {name for name in modules if modules[name].startswith("srjt.")} == set(DISPLAY_NAMES)


def test_names_and_order_and_a_recipe_that_is_ours_but_not_the_papers() -> None:
    ours = {"srjt": True, "jocor+ours": True, "jocor": False, "nobody's": False}
    assert {name: is_ours(name) for name in ours} == ours
    assert display_name("srjt") == "srjt"
    assert paper_order(["srjt", "codis+ours", "sord"]) == ["sord", "codis+ours", "srjt"]
    assert [paper.host_of(name) for name in ("jocor+ours", "jocor")] == ["jocor", None]
    assert display_name("co-teaching+ours") == "Co-teaching + Ours"
    assert display_name("mine+ours", "tau=0.2,co_lambda=0.3") == "mine + Ours (tau=0.2, co_lambda=0.3)"
    given = ["mine+ours", "codis", "other", "co-teaching+ours", "mine", "standard", "codis", "lone+ours"]
    assert paper_order(given) == [
        "standard", "co-teaching+ours", "codis", "other", "mine", "mine+ours", "lone+ours"
    ]  # fmt: skip
