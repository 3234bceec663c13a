"""The paper's tables as data: complete, as printed, and consistent with themselves."""

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from srjt import methods
from srjt.studies.config import StudyConfig
from srjt.studies.paper import (
    PUBLISHED_COUNTS,
    paper_dataset,
    paper_differences,
    paper_results,
    paper_value,
)
from srjt.studies.results import DISPLAY_NAMES, display_name, host_of, is_ours, paper_order
from srjt.training.config import load_preset

METRICS = ("accuracy", "mae", "macro_f1")


def test_every_cell_of_the_nine_tables_is_there_once() -> None:
    results = paper_results()
    noisy = itertools.product(("limuc", "private"), ("quasi", "truncated"), (0.2, 0.4))
    expected = {
        ("comparison", "dr", "none", 0.3, m, "", "", k) for m in DISPLAY_NAMES for k in METRICS
    }
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
def test_comparisons_as_printed(
    dataset: str, noise: str, method: str, metric: str, mean, std
) -> None:
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
    assert (
        paper_value(dataset, noise, "co-teaching", metric, select=usage[0], update=usage[1])
        == printed
    )


def test_the_ablation_repeats_the_comparison_but_for_one_digit() -> None:
    results = paper_results()
    settings = ["dataset", "noise", "rate", "metric"]
    deviating = []
    for method, update in (("co-teaching", "hard"), ("co-teaching+ours", "soft")):
        main = results.query(f"table == 'comparison' and method == '{method}'")
        ablation = results.query(
            f"table == 'ablation' and select == 'hard' and update == '{update}'"
        )
        both = pd.merge(main, ablation, on=settings)
        assert len(both) == 24
        assert (both["mean_x"] == both["mean_y"]).all()
        deviating += (
            both[both["std_x"] != both["std_y"]][[*settings, "std_x", "std_y"]].to_numpy().tolist()
        )
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
def test_what_the_paper_does_not_print_is_none(
    dataset: str, noise: str, method: str, metric: str
) -> None:
    assert paper_value(dataset, noise, method, metric) is None


def facts_of(preset: str, counts: tuple[int, ...], **changes: Any) -> dict[str, Any]:
    """What study.json has of a study with these counts; changes of settings, those of trainings in
    ``train``."""
    settings = load_preset(preset)
    train = {**settings["train"], **changes.pop("train", {})}
    patients = changes.pop("patients", 564)
    features = changes.pop("features", False)
    config = StudyConfig.from_dict({**settings, **changes, "train": train})
    return {
        "study": config.to_dict(),
        "class_counts": list(counts),
        "patients": patients,
        "features": features,
    }


KAGGLE = (25810, 2443, 5292, 873, 708)


def test_the_published_counts_are_those_of_the_text_and_of_kaggle() -> None:
    assert {name: sum(counts) for name, counts in PUBLISHED_COUNTS.items()} == {
        "limuc": 11276,
        "private": 10265,
        "dr": 35108,
    }
    assert sum(KAGGLE) == 35126
    assert [k - p for k, p in zip(KAGGLE, PUBLISHED_COUNTS["dr"], strict=True)] == [8, 5, 4, 1, 0]


def test_the_data_decide_whether_they_are_the_papers() -> None:
    limuc, dr = PUBLISHED_COUNTS["limuc"], PUBLISHED_COUNTS["dr"]
    assert paper_dataset(facts_of("limuc", limuc)) == "limuc"
    assert paper_dataset(facts_of("demo", limuc)) == "limuc"
    assert paper_dataset(facts_of("dr", dr)) == "dr"
    assert paper_dataset(facts_of("dr", KAGGLE)) == "dr"
    for counts in ((250, 125, 75, 50), limuc[::-1], (6104, 3053, 1254, 865), (*limuc, 0)):
        assert paper_dataset(facts_of("limuc", counts)) is None


def test_whoever_has_the_private_data_names_the_table() -> None:
    named = facts_of("limuc", PUBLISHED_COUNTS["private"], paper_table="private-uc")
    assert paper_dataset(named) == "private"
    assert paper_differences(named, "private") == []
    other = facts_of("limuc", (600, 200, 140, 20), paper_table="private-uc")
    assert paper_dataset(other) == "private"
    assert paper_differences(other, "private") == [
        ("images per grade", (600, 200, 140, 20), PUBLISHED_COUNTS["private"])
    ]


def test_the_presets_do_not_differ_from_the_paper() -> None:
    assert paper_differences(facts_of("limuc", PUBLISHED_COUNTS["limuc"]), "limuc") == []
    assert paper_differences(facts_of("dr", PUBLISHED_COUNTS["dr"]), "dr") == []
    kaggle = paper_differences(facts_of("dr", KAGGLE), "dr")
    assert kaggle == [("images per grade", KAGGLE, PUBLISHED_COUNTS["dr"])]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"train": {"network": "tiny"}}, [("network", "tiny", "resnet18")]),
        ({"train": {"epochs": 14}}, [("epochs", 14, 150)]),
        (
            {"train": {"image_size": 128, "crop": 112}},
            [("image_size", 128, 256), ("crop", 112, 224)],
        ),
        ({"train": {"batch_size": 32}}, [("batch_size", 32, 64)]),
        ({"train": {"optimizer": "adamw"}}, [("optimizer", "adamw", "adam")]),
        ({"train": {"schedule": "cosine"}}, [("schedule", "cosine", "steps")]),
        ({"train": {"learning_rate": 1e-3}}, [("learning_rate", 1e-3, 1e-4)]),
        ({"train": {"milestones": [10, 20, 30]}}, [("milestones", (10, 20, 30), (90, 120, 140))]),
        ({"train": {"weight_decay": 0.0}}, [("weight_decay", 0.0, 1e-4)]),
        ({"train": {"pretrained": False}}, [("pretrained", False, True)]),
        ({"train": {"flip": False}}, [("flip", False, True)]),
        ({"train": {"balance": 0.5}}, [("balance", 0.5, 0.0)]),
        ({"train": {"keep": "best"}}, [("keep", "best", "last")]),
        ({"train": {"convention": "original"}}, [("convention", "original", "paper")]),
        (
            {"train": {"convention": "published-code"}},
            [("convention", "published-code", "paper")],
        ),
        ({"train": {"resize": "pad"}}, [("resize", "pad", "squash")]),
        (
            {"transition": np.eye(4).tolist()},
            [("transition", "given", "of the noise")],
        ),
        ({"folds": 3}, [("folds", 3, 5)]),
        ({"only_folds": [0]}, [("only_folds", [0], None)]),
        ({"split_by": "stratified"}, [("split_by", "stratified", "random")]),
        ({"hold_out": "site"}, [("hold_out", "site", None)]),
        ({"seeds": [0, 1]}, [("seeds", 2, 1)]),
        ({"noise_rate": "auto"}, [("noise_rate", "auto", "told")]),
        (
            {"noises": ["quasi:0.2"]},
            [("ρ", "solved for the rate", "0.1, 0.2 (quasi), 0.15, 0.3 (truncated)")],
        ),
        ({"patients": None}, [("patients", None, "each on one side only")]),
    ],
)
def test_every_setting_that_differs_is_named(
    changes: dict[str, Any], named: list[tuple[Any, ...]]
) -> None:
    assert (
        paper_differences(facts_of("limuc", PUBLISHED_COUNTS["limuc"], **changes), "limuc") == named
    )


def test_features_and_a_rate_that_is_not_the_papers_are_named() -> None:
    facts = facts_of("limuc", PUBLISHED_COUNTS["limuc"], features=True, train={"network": "mlp"})
    assert {one.name for one in paper_differences(facts, "limuc")} >= {"samples", "network"}
    assert paper_differences(facts_of("dr", PUBLISHED_COUNTS["dr"], noise_rate=0.2), "dr") == [
        ("noise_rate", 0.2, 0.3)
    ]


def test_a_part_of_the_patients_or_corrected_labels_is_not_in_the_paper() -> None:
    assert paper_value("limuc", "quasi:0.2@0.5", "cdr", "accuracy") is None
    assert paper_value("dr", "none", "cdr", "accuracy") == (0.733, None)
    assert paper_value("dr", "corrected", "cdr", "accuracy") is None


def test_every_registered_method_of_the_paper_has_its_name() -> None:
    modules = {name: methods.lookup(name).method.__module__ for name in methods.plain_names()}
    assert {name for name in modules if modules[name].startswith("srjt.")} == set(DISPLAY_NAMES)


def test_names_and_order_and_a_recipe_that_is_ours_but_not_the_papers() -> None:
    ours = {"srjt": True, "jocor+ours": True, "jocor": False, "nobody's": False}
    assert {name: is_ours(name) for name in ours} == ours
    assert display_name("srjt") == "srjt"
    assert paper_order(["srjt", "codis+ours", "sord"]) == ["sord", "codis+ours", "srjt"]
    assert [host_of(name) for name in ("jocor+ours", "jocor")] == ["jocor", None]
    assert display_name("co-teaching+ours") == "Co-teaching + Ours"
    assert (
        display_name("mine+ours", "tau=0.2,co_lambda=0.3") == "mine + Ours (tau=0.2, co_lambda=0.3)"
    )
    given = [
        "mine+ours",
        "codis",
        "other",
        "co-teaching+ours",
        "mine",
        "standard",
        "codis",
        "lone+ours",
    ]
    assert paper_order(given) == [
        "standard", "co-teaching+ours", "codis", "other", "mine", "mine+ours", "lone+ours"
    ]  # fmt: skip
