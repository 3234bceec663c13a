"""Settings: the paper's by default, layered, checked, and the same after a round trip."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from refusals import refuses
from srjt import methods
from srjt.cli.options import layered_settings
from srjt.errors import SrjtError
from srjt.settings import load_config, parse_overrides
from srjt.training.config import PRESETS, ResolvedConfig, TrainConfig, load_preset, reopened


def test_defaults_are_the_papers() -> None:
    config = TrainConfig().for_data(features=False, samples=10_000)
    assert (config.image_size, config.crop, config.flip) == (256, 224, True)
    assert (config.network, config.pretrained) == ("resnet18", True)
    assert (config.method, config.convention) == ("srjt", "paper")  # the method alone is ours


@pytest.mark.parametrize("network", ["resnet18", "timm:vit_small_patch16_224"])
def test_the_papers_methods_learn_as_in_the_paper(network: str) -> None:
    for method in methods.plain_names():
        config = TrainConfig(method=method, network=network).for_data(
            features=False, samples=10_000
        )
        assert (config.noise_rate, config.balance, config.method_options) == (None, 0.0, {})
        assert (config.optimizer, config.schedule, config.warmup_epochs) == ("adam", "steps", 0)
        assert (config.learning_rate, config.weight_decay, config.gamma) == (1e-4, 1e-4, 0.1)
        assert config.effective_milestones == (90, 120, 140)
        rates = [config.learning.rate_at(epoch) for epoch in (1, 90, 91, 120, 121, 140, 141, 150)]
        assert rates == pytest.approx([1e-4, 1e-4, 1e-5, 1e-5, 1e-6, 1e-6, 1e-7, 1e-7])


@pytest.mark.parametrize(
    ("network", "rate"),
    [("resnet18", 1e-3), ("timm:convnext_tiny", 1e-3), ("timm:vit_small_patch16_224", 1e-4)],
)
def test_srjt_learns_images_faster(network: str, rate: float) -> None:
    config = TrainConfig(network=network).for_data(features=False, samples=10_000)
    assert (config.optimizer, config.schedule, config.warmup_epochs) == ("adamw", "cosine", 1)
    assert (config.learning_rate, config.weight_decay) == (rate, 0.05)


@pytest.mark.parametrize(
    ("images", "epochs", "batch_size"),
    [
        (2, 40, 16),
        (639, 40, 16),
        (640, 40, 32),
        (1_279, 40, 32),
        (1_280, 40, 64),
        (2_000, 30, 64),
        (10**6, 20, 64),
    ],
)
def test_the_length_of_the_recipe_follows_the_number_of_images(
    images: int, epochs: int, batch_size: int
) -> None:
    config = TrainConfig().for_data(features=False, samples=images)
    assert (config.epochs, config.batch_size) == (epochs, batch_size)
    assert TrainConfig(epochs=7).for_data(features=False, samples=images).batch_size == batch_size
    assert TrainConfig(batch_size=8).for_data(features=False, samples=images).epochs == epochs
    # the paper's length: of its methods, of its optimiser, of heads
    for paper, features in (
        (TrainConfig(method="standard"), False),
        (TrainConfig.from_dict({"preset": "paper"}), False),
        (TrainConfig(milestones=(90, 120)), False),
        (TrainConfig(network="mlp"), True),
    ):
        chosen = paper.for_data(features=features, samples=images)
        assert (chosen.epochs, chosen.batch_size) == (150, 64)


def test_the_learning_rate_along_a_cosine() -> None:
    """0.3 in the warm-up, all of it after that, half of it (and half of 1 %) in the middle, 1 % in
    the end."""
    config = TrainConfig(epochs=22, learning_rate=1.0).for_data(features=False, samples=10_000)
    rates = [config.learning.rate_at(epoch) for epoch in (1, 2, 12, 22)]
    assert rates == pytest.approx([0.3, 1.0, 0.505, 0.01])
    slow = config.replace(warmup_epochs=7)
    assert [slow.learning.rate_at(epoch) for epoch in (1, 2, 7, 8)] == pytest.approx(
        [0.3, 0.4, 0.9, 1.0]
    )
    assert [config.replace(epochs=2).learning.rate_at(epoch) for epoch in (1, 2)] == pytest.approx(
        [0.3, 1.0]
    )


def test_what_is_given_about_the_optimisation_stays() -> None:
    given = TrainConfig(optimizer="adam", schedule="steps", learning_rate=1e-4, warmup_epochs=0)
    config = given.for_data(features=False, samples=10_000)
    assert (config.optimizer, config.schedule, config.learning_rate, config.warmup_epochs) == (
        "adam", "steps", 1e-4, 0,
    )  # fmt: skip
    assert config.weight_decay == 1e-4  # of adam: 0.05 as L2 regularisation would stop the learning
    assert (
        TrainConfig(milestones=(10, 20)).for_data(features=False, samples=10_000).schedule
        == "steps"
    )
    with refuses("conflict", "milestones", says="'steps'"):
        TrainConfig(schedule="cosine", milestones=(10, 20))


def test_milestones_scale_with_the_epochs() -> None:
    assert TrainConfig(epochs=30).effective_milestones == (18, 24, 28)
    given = TrainConfig(epochs=30, milestones=(), learning_rate=1e-4, method="standard")
    assert given.for_data(features=False, samples=10_000).learning.rate_at(30) == 1e-4


def test_an_unknown_setting_suggests_the_nearest() -> None:
    with refuses("unknown_name", says=("'learning_rat'", "'learning_rate'")):
        TrainConfig.from_dict({"learning_rat": 1.0})
    with refuses("unknown_name", says="'epochs'"):
        TrainConfig().replace(epoch=3)
    with refuses("unknown_name", "precision", says="'tf32'"):
        TrainConfig(precision="bf32")  # type: ignore[arg-type]


@given(
    epochs=st.integers(1, 500),
    learning_rate=st.floats(1e-8, 1.0),
    noise_rate=st.none() | st.floats(0, 0.99),
    milestones=st.none() | st.lists(st.integers(1, 500), max_size=4),
    method_options=st.dictionaries(
        st.sampled_from(["temperature", "co_lambda"]), st.floats(0.01, 10)
    ),
)
def test_to_a_file_and_back(**settings: Any) -> None:
    config = TrainConfig(transition=((0.9, 0.1), (0.2, 0.8))).replace(**settings)
    again = TrainConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert config.identity() == again.identity()


def test_arrays_become_plain_values_that_can_be_saved_and_compared() -> None:
    matrix = np.array([[0.9, 0.1], [0.2, 0.8]])
    config = TrainConfig(
        transition=matrix,  # type: ignore[arg-type]
        seed=np.int64(3),
        method_options={"label_matrix": matrix, "pair": (1, 2)},
    )
    assert config.transition == ((0.9, 0.1), (0.2, 0.8))
    assert type(config.seed) is int
    assert config.method_options["label_matrix"] == [[0.9, 0.1], [0.2, 0.8]]
    assert TrainConfig.from_dict(config.to_dict()) == config


def test_only_settings_that_change_the_result_make_a_difference() -> None:
    base = TrainConfig()
    same = base.replace(step="eager", eval_batch_size=8, checkpoint_seconds=0)
    assert same.identity() == base.identity()
    assert base.replace(epochs=3, seed=1).identity() == {**base.identity(), "epochs": 3, "seed": 1}


def test_yaml_reads_exponents_as_text_and_we_as_numbers(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("learning_rate: 1e-4\nweight_decay: 5e-3\nepochs: 30\nmilestones: [10, 20]\n")
    config = TrainConfig.from_dict(load_config(file))
    assert (config.learning_rate, config.weight_decay, config.epochs) == (1e-4, 5e-3, 30)
    assert config.milestones == (10, 20)


def test_configuration_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refuses("missing_file"):
        load_config(tmp_path / "none.yaml")
    with refuses("unreadable_file", says="a folder"):
        load_config(tmp_path)
    file = tmp_path / "bad.yaml"
    evil = f"a: !!python/object/apply:os.mkdir [{tmp_path / 'made'}]\n"
    for content, says in (
        (b"\xff\xfe\xff", "YAML"),
        (b"- 1", "name: value"),
        (evil.encode(), "YAML"),
    ):
        file.write_bytes(content)
        with refuses("wrong_file", says=says):
            load_config(file)
    assert not (tmp_path / "made").exists()
    file.write_text("# nothing\n")
    assert load_config(file) == {}


def test_overrides_nest_and_are_read_as_yaml() -> None:
    given = [
        "epochs=30",
        "method_options.per_class=true",
        "method_options.temperature=0.5",
        "weights=a=b",
    ]
    nested = {"per_class": True, "temperature": 0.5}
    assert parse_overrides(given) == {"epochs": 30, "method_options": nested, "weights": "a=b"}
    for bad in (["epochs"], ["=3"], ["epochs=[1"]):
        with refuses("wrong_syntax", "set"):
            parse_overrides(bad)
    with refuses("conflict", "set"):
        parse_overrides(["epochs=1", "epochs.x=2"])


def test_layers_defaults_file_options_set(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    options = "method_options: {ramp_epochs: 10, co_lambda: 10}"
    file.write_text(f"epochs: 10\nseed: 10\nbatch_size: 10\n{options}\n")
    config = layered_settings(
        {
            "config": file,
            "set_": ["seed=30", "method_options.ramp_epochs=30"],
            "batch_size": 20,
            "seed": 20,
        }
    )
    assert (config.epochs, config.batch_size, config.seed, config.crop) == (10, 20, 30, 224)
    assert config.method_options == {"co_lambda": 10, "ramp_epochs": 30}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_lies_between_the_defaults_and_what_is_given(name: str, tmp_path: Path) -> None:
    own = load_preset(name)["train"]
    assert TrainConfig().replace(preset=name) == TrainConfig(**own)
    assert TrainConfig.from_dict({"preset": name, "epochs": 7}) == TrainConfig(**own).replace(
        epochs=7
    )
    defaults = {"epochs": 30, "method": "sord"}  # of an audit
    config = layered_settings({"set_": ["seed=3"], "preset": name, "crop": 9}, defaults=defaults)
    assert config == TrainConfig(**{**defaults, **own, "seed": 3, "crop": 9})


def test_the_preset_of_a_cpu_freezes_a_network_and_an_unknown_one_is_an_error() -> None:
    frozen = TrainConfig().replace(preset="cpu")
    assert (frozen.backbone, frozen.network, frozen.image_size, frozen.crop) == (
        "auto",
        None,
        224,
        224,
    )
    assert frozen.resize == "pad"
    with refuses("unknown_name", says="'gpu'"):
        TrainConfig().replace(preset="gpu")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gamma": 1e300}, "`gamma` lies in (0, 1]; got 1e+300."),
        ({"epochs": 0}, "`epochs` must be positive"),
        ({"epochs": 2.5}, "`epochs` takes a whole number; got 2.5"),
        ({"learning_rate": float("inf")}, "`learning_rate` must be positive"),
        ({"flip": "yes"}, "`flip` takes true or false"),
        ({"crop": 300}, "`crop` (300) cannot be larger than `image_size` (256)."),
        (
            {"image_size": 16**6000},
            "`image_size` is at most 16384; got a number with too many digits.",
        ),
        (
            {"learning_rate": 16**6000},
            "`learning_rate` takes a number; got a number with too many digits.",
        ),
        (
            {"epochs": date(2020, 1, 1)},
            "`epochs` takes a whole number; got datetime.date(2020, 1, 1).",
        ),
        ({"seed": 2**64}, "`seed` is at most 9.22337e+18; got 18446744073709551616."),
        (
            {"milestones": [10, True]},
            "`milestones` takes a list of epochs such as [90, 120, 140]; got [10, ",
        ),
        (
            {"transition": [[1.0], 2]},
            "`transition` takes a matrix, one list of numbers per row; got [[1.0], 2]",
        ),
        ({"checkpoint_seconds": float("nan")}, "`checkpoint_seconds` cannot be negative; got nan."),
        (
            {"method_options": {1: 2}},
            "method_options takes settings by name, such as method_options.per_class",
        ),
        (
            {"method_options": {"a": date(2020, 1, 1)}},
            "method_options.a takes a number, a text, true, false",
        ),
        ({1: 2}, "Unknown setting '1': "),
    ],
)
def test_strange_values_are_one_sentence(settings: dict[Any, Any], sentence: str) -> None:
    with pytest.raises(SrjtError) as raised:
        TrainConfig.from_dict(settings)
    assert str(raised.value).startswith(sentence)
    assert len(str(raised.value)) < 900


def test_a_value_that_is_nested_too_deeply() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for settings in ({"milestones": deep}, {"method_options": {"label_matrix": deep}}):
        with refuses("wrong_type", next(iter(settings))) as raised:
            TrainConfig.from_dict(settings)
        assert len(str(raised.value)) < 300


@pytest.mark.parametrize("value", ["!!int ''", "1" * 5000, "[" * 700])
def test_yaml_that_is_none(value: str, tmp_path: Path) -> None:
    with refuses("wrong_syntax", "set", says="epochs=…"):
        parse_overrides([f"epochs={value}"])
    (tmp_path / "run.yaml").write_text(f"epochs: {value}\n")
    with refuses("wrong_file", says="YAML"):
        load_config(tmp_path / "run.yaml")


def test_nothing_is_left_open_in_what_a_run_has() -> None:
    config = TrainConfig(method="standard").for_data(features=False, samples=100)
    assert isinstance(config, ResolvedConfig)
    assert isinstance(config.replace(epochs=3), ResolvedConfig)
    for name in ("network", "epochs", "batch_size", "balance"):
        with refuses("missing_option", name):
            config.replace(**{name: None})
    assert reopened(config, epochs=None).epochs is None
    odds = TrainConfig(network="odds").for_data(features=True, samples=100)
    with refuses("missing_option", "optimizer"):
        odds.learning  # noqa: B018


def test_the_former_name_of_a_setting_works_with_a_warning(tmp_path: Path) -> None:
    new = TrainConfig(target_metric="qwk")
    makers: list[Callable[[], TrainConfig]] = [
        lambda: TrainConfig(optimise="qwk"),
        lambda: TrainConfig.from_dict({"optimise": "qwk"}),
        lambda: TrainConfig(target_metric="macro_f1").replace(optimise="qwk"),
    ]
    for make in makers:
        with pytest.warns(FutureWarning, match="use `target_metric` instead"):
            assert make() == new
    # what identifies a training has not changed
    assert new.determining()["optimise"] == "qwk"
    assert "target_metric" not in new.determining()
