"""The settings that editors complete are those that there are."""

from typing import Any, get_type_hints

import pytest

from srjt.inference.planning import Planning, PlanOptions
from srjt.studies.config import RESERVED, Execution, StudyConfig
from srjt.studies.keywords import StudySettings
from srjt.training.config import TrainConfig
from srjt.training.keywords import AuditSettings, TrainSettings

# What is accepted is more than what is kept.
CONVERTED = {"transition", "milestones", "imports", "keep_columns", "weights"}


@pytest.mark.parametrize(
    ("typed", "configs", "more", "without", "converted"),
    [
        (AuditSettings, [TrainConfig], {"preset"}, set(), CONVERTED),
        (
            StudySettings,
            [TrainConfig, StudyConfig, Execution],
            {"noise"},
            {"source", "preset", "train"} | (RESERVED - {"noise_rate", "transition"}),
            CONVERTED | {"methods", "noises", "only_folds", "seeds", "splits", "cache"},
        ),
        (PlanOptions, [Planning], set(), set(), set()),
    ],
)
def test_keyword_arguments_are_the_fields_of_the_settings(
    typed: Any, configs: list[Any], more: set[str], without: set[str], converted: set[str]
) -> None:
    of_arguments = get_type_hints(typed)
    of_fields: dict[str, Any] = {}
    for config in configs:
        of_fields |= get_type_hints(config)
    assert of_arguments.keys() - of_fields.keys() == more
    assert of_fields.keys() - of_arguments.keys() == without
    both = of_fields.keys() & of_arguments.keys()
    assert {name for name in both if of_arguments[name] != of_fields[name]} == converted


def test_a_training_has_the_network_as_an_argument_of_its_own() -> None:
    assert get_type_hints(AuditSettings).keys() - get_type_hints(TrainSettings) == {"network"}


def test_what_the_types_accept_is_converted() -> None:
    config = TrainConfig(
        transition=[[0.9, 0.1], [0.2, 0.8]],
        milestones=[1, 2],
        keep_columns=["site"],
        weights="there/weights.pth",
    )
    assert config.transition == ((0.9, 0.1), (0.2, 0.8))
    assert config.milestones == (1, 2)
    assert config.keep_columns == ("site",)
