"""The settings of a study, and how a noise is written."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from srjt import methods, noise
from srjt.errors import SrjtError
from srjt.reports.study_tables import ablation
from srjt.studies.config import StudyConfig, parse_method, parse_noise
from srjt.studies.paper import paper_results
from srjt.training.config import PRESETS, TrainConfig, load_preset, preset_time

from .conftest import small


def test_methods_and_their_variants() -> None:
    plain = parse_method("co-teaching")
    assert (plain.name, dict(plain.options), plain.variant) == ("co-teaching", {}, "")
    variant = parse_method(" co-teaching: update=soft, select=hard,temperature=0.5 ")
    assert dict(variant.options) == {"select": "hard", "update": "soft", "temperature": 0.5}
    assert variant.variant == "select=hard,temperature=0.5,update=soft"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("co-teeching", "Unknown method 'co-teeching': did you mean 'co-teaching'?"),
        ("co-teaching:slect=soft", "Unknown option of co-teaching 'slect': did you mean 'select'?"),
        ("co-teaching:select", "written name=value; 'select' of"),
        ("co-teaching:temperature=!!int x", "not valid YAML"),
        ("co-teaching:ramp_epochs=0", "ramp_epochs must be positive; got 0."),
        ("sord:balance=2", "`balance` lies in"),
        ("sord:noise_rate=auto", "Unknown option of sord 'noise_rate'"),
        ("jocor:noise_rate=2", "`noise_rate` lies in"),
        ("srjt:noise_rate=0.3", "srjt uses the matrix of label errors, not a rate"),
    ],
)
def test_mistakes_in_methods(text: str, said: str) -> None:
    with pytest.raises(SrjtError) as raised:
        StudyConfig(methods=(text,))
    assert said in str(raised.value)


def test_all_is_every_method_once_in_order() -> None:
    names = [spec.name for spec in StudyConfig(methods=("jocor", "all", "garg")).method_specs()]
    assert len(methods.plain_names()) >= 14
    assert names == ["jocor", *(name for name in methods.plain_names() if name != "jocor")]
    assert "srjt" not in names  # trained in its own way: to be asked for by name
    assert StudyConfig(methods=("all", "srjt")).method_specs()[-1].name == "srjt"
    twice = StudyConfig(methods=("codis:update=soft,select=soft", "codis:select=soft,update=soft"))
    assert len(twice.method_specs()) == 1


def test_presets_carry_the_papers_settings() -> None:
    limuc = StudyConfig.from_dict(load_preset("limuc"))
    told = sorted((spec.kind, spec.rho, spec.rate) for spec in map(parse_noise, limuc.noises))
    assert told == [
        ("quasi", 0.1, 0.2), ("quasi", 0.2, 0.4), ("truncated", 0.15, 0.2), ("truncated", 0.3, 0.4)
    ]  # fmt: skip
    dr = StudyConfig.from_dict(load_preset("dr"))
    assert (dr.noises, dr.noise_rate) == (("none",), 0.3)
    for preset, batch in ((limuc, 64), (dr, 128)):
        train = TrainConfig().replace(**preset.train)
        assert (train.epochs, train.batch_size) == (150, batch)
        assert (train.network, train.pretrained) == ("resnet18", True)
        assert (train.learning_rate, train.weight_decay) == (1e-4, 1e-4)
        assert train.effective_milestones == (90, 120, 140)
        assert (train.image_size, train.crop) == (256, 224)
        assert preset.folds == 5
        compared = [spec.name for spec in preset.method_specs() if not spec.variant]
        assert compared == list(methods.plain_names())


def test_all_tables_of_limuc_are_one_study() -> None:
    """Each printed value of LIMUC, comparisons and ablations, has its runs."""
    limuc = StudyConfig.from_dict(load_preset("limuc"))
    specs = limuc.method_specs()
    assert len(specs) * len(limuc.noises) * limuc.folds == 300
    assert "= 300 runs" in preset_time("limuc")
    usages = ablation((spec.name, spec.variant) for spec in specs)["co-teaching"]
    printed = paper_results().query("dataset == 'limuc'")
    assert {*zip(printed["select"], printed["update"], strict=True)} - {("", "")} == set(usages)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_load_know_their_name_and_say_how_long_they_take(name: str) -> None:
    assert StudyConfig.from_dict(load_preset(name)).preset == name
    assert re.search(r"(minute|hour)s?\b", preset_time(name))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"noise": ["quasi:0.2"]}, "Unknown study setting 'noise': did you mean 'noises'"),
        ({"train": {"epoch": 3}}, "Unknown setting 'epoch': did you mean 'epochs'"),
        ({"train": {"seed": 0}}, "seed is a setting of the study"),
        ({"train": {"soft_labels": "estimated"}}, "A study sets soft labels by method"),
        ({"folds": "five"}, "`folds` takes a whole number; got 'five'."),
        ({"noise_rate": "high"}, "`noise_rate` takes a number such as 0.2, or auto; got 'high'"),
        ({"seeds": [-1]}, "`seeds` takes whole numbers from 0 up"),
        ({"seeds": []}, "at least one"),
        ({"reading": None}, "reading takes settings by name"),
        ({"transition": 3}, "`transition` takes a matrix"),
        ({"train": {1: 2}}, "train takes settings of the runs by name; got {1: 2}."),
        ({"source": "labels.csv", "reading": {"images": 5}}, "`images` takes a path; got 5."),
        ({"seeds": [2**64]}, "`seeds` takes whole numbers"),
    ],
)
def test_values_of_the_wrong_kind(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SrjtError) as raised:
        StudyConfig.from_dict(settings)
    assert said in str(raised.value)


def test_through_json_and_back() -> None:
    known = {"noises": ["none"], "noise_rate": 0.3, "transition": [[0.5, 0.5], [0.5, 0.5]]}
    config = small(seeds=[1, 2, 1], only_folds=[0], **known)
    assert config.seeds == (1, 2)
    assert StudyConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    one = StudyConfig(methods="standard", noises="none", seeds=3)  # type: ignore[arg-type]
    assert (one.methods, one.noises, one.seeds) == (("standard",), ("none",), (3,))


def test_a_variant_may_have_training_settings_of_its_own() -> None:
    spec = parse_method("co-teaching+ours:ramp_epochs=3,balance=0.5")
    assert spec.options == {"ramp_epochs": 3}
    assert spec.settings == {"balance": 0.5}
    assert spec.variant == "balance=0.5,ramp_epochs=3"
    rates = {
        "jocor": None, "jocor:noise_rate=auto": "auto", "cdr:noise_rate=0": 0, "srjt": "auto", "sord": None,
        "f-correction:noise_rate=auto": "auto",
    }  # fmt: skip
    assert {text: parse_method(text).own_rate for text in rates} == rates


# Noise as a person writes it.
COUNTS = [6105, 3052, 1254, 865]  # LIMUC's


@pytest.mark.parametrize(("kind", "rate"), [("quasi", 0.4), ("truncated", 0.0)])
def test_a_rate_is_solved_on_the_class_mix(kind: str, rate: float) -> None:
    spec = parse_noise(f"{kind}:{rate}")
    given, matrix, rho = spec.on(COUNTS)
    assert noise.expected_rate(matrix, class_counts=COUNTS) == pytest.approx(rate, abs=1e-12)
    assert given == rate
    np.testing.assert_array_equal(matrix, noise.transition_matrix(kind, num_classes=4, rho=rho))


def test_rho_and_rate_fix_one_and_tell_the_other_and_none_has_neither() -> None:
    spec = parse_noise("quasi:rho=0.2,rate=0.4")
    expected = noise.transition_matrix("quasi", num_classes=4, rho=0.2)
    given, matrix, rho = spec.on(COUNTS)
    np.testing.assert_array_equal(matrix, expected)
    assert (rho, given) == (0.2, 0.4)
    assert noise.expected_rate(expected, class_counts=COUNTS) != pytest.approx(0.4, abs=0.01)
    spec = parse_noise(" none ")
    assert (spec.label, spec.kind) == ("none", "none")
    assert spec.on(COUNTS) == (None, None, None)


@given(kind=st.sampled_from(["quasi", "truncated"]), rate=st.floats(0, 0.5))
def test_what_is_written_is_read_and_blanks_do_not_matter(kind: str, rate: float) -> None:
    spec = parse_noise(f"{kind}:rate={rate!r}")
    assert (spec.kind, spec.rate, spec.rho) == (kind, rate, None)
    assert parse_noise(f" {kind} : rate = {rate!r}\n") == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qasi:0.2", "Unknown noise 'qasi': did you mean 'quasi'?"),
        ("quasi", "Write noise as quasi:0.2, quasi:rho=0.1 or none; got 'quasi'."),
        ("quasi:roh=0.1", "got 'quasi:roh=0.1'."),
        ("quasi:0.2,0.3", "got 'quasi:0.2,0.3'."),
        ("none:0.3", "got 'none:0.3'."),
    ],
)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(SrjtError) as raised:
        parse_noise(text)
    assert said in str(raised.value)


@pytest.mark.parametrize("text", ["quasi:0.9", "quasi:nan", "quasi:rho=0.9"])
def test_impossible_noise_says_what_is_possible(text: str) -> None:
    with pytest.raises(SrjtError, match=r"largest|between 0 and"):
        parse_noise(text).on(COUNTS)
