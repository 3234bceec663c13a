"""Methods by name: the list, the options, the sentences when something is misspelt or missing."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from refusals import refuses
from srjt import methods, noise
from srjt.errors import SrjtError
from srjt.methods import table

NAMES = (
    *("standard", "sord", "label-smooth", "f-correction", "reweight", "mixup", "cdr", "garg"),
    *("co-teaching", "jocor", "codis", "co-teaching+ours", "jocor+ours", "codis+ours"),
)
BASELINES = ("eae", "gce", "elr", "sce", "corn", "cdw-ce")  # not in the paper
HOSTS = ("co-teaching", "jocor", "codis")
JOINT = tuple(name for name in NAMES if name.removesuffix("+ours") in HOSTS)
P4 = noise.transition_matrix("quasi", num_classes=4, rho=0.1)


def make(name: str, **options) -> methods.Method:
    return methods.create(name, num_classes=4, noise_rate=0.2, transition=P4, **options)


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))


def test_the_fourteen_methods_in_the_papers_order_further_baselines_and_our_recipe() -> None:
    assert methods.plain_names() == NAMES
    assert methods.names() == (*NAMES, *BASELINES, "srjt")
    assert not any(methods.lookup(name).is_recipe for name in NAMES)


@pytest.mark.parametrize("name", [*NAMES, *BASELINES, "srjt"])
@pytest.mark.parametrize("convention", ["paper", "published-code", "original"])
def test_every_method_keeps_the_protocol(name: str, convention: str) -> None:
    method = make(name, convention=convention)
    entry = methods.lookup(name)
    assert method.networks == (2 if name in (*JOINT, "srjt") else 1)
    assert isinstance(method, entry.method)
    assert all((entry.scores, entry.updates, entry.paper))
    assert (entry.networks, entry.needs) == (
        entry.method.networks,
        entry.method.needs,
    )  # known without torch

    head = method.head(6, 4)
    features = torch.randn(method.networks, 5, 6, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([0, 1, 2, 3, 3])
    inputs, targets = method.prepare(
        features[0], labels, generator=torch.Generator().manual_seed(2)
    )
    assert inputs.shape == features[0].shape
    logits = head(features)
    assert logits.shape == (method.networks, 5, method.outputs)

    loss = method.loss(logits, targets, keep=3)
    assert loss.total.shape == ()
    assert loss.total.requires_grad
    assert loss.per_network.shape == (method.networks,)
    assert not loss.per_network.requires_grad
    assert loss.selected.shape == (method.networks, 5)
    assert loss.selected.dtype == torch.bool
    assert loss.selected.sum(dim=1).tolist() == [3, 3] if name in JOINT else loss.selected.all()
    loss.total.backward()
    method.adjust(head.parameters())

    assert method.probabilities(logits).shape == (method.networks, 5, 4)
    grades = method.grades(logits)
    assert (grades.shape, grades.dtype) == ((method.networks, 5), torch.int64)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "garg"])
def test_grades_are_the_most_likely_ones(name: str) -> None:
    method = make(name)
    logits = torch.randn(method.networks, 50, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(method.grades(logits), method.probabilities(logits).argmax(dim=-1))
    assert torch.equal(method.grades(logits), method.grades_of(method.probabilities(logits)))
    torch.testing.assert_close(method.probabilities(logits), logits.softmax(-1))


def test_methods_are_frozen_and_can_be_varied() -> None:
    method = make("garg")
    with pytest.raises(FrozenInstanceError):
        method.num_classes = 5  # type: ignore[misc]
    other = replace(method, transition=np.eye(4))
    torch.testing.assert_close(other.inverse, torch.eye(4, dtype=torch.float64))


def test_options_of_a_method() -> None:
    assert {"select", "update", "temperature", "co_lambda"} <= set(
        methods.options("co-teaching+ours")
    )
    assert methods.options("standard") == ()
    assert methods.options("garg") == ()  # its inverse matrix is derived, not chosen
    assert methods.options("mixup") == ("alpha",)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: make("co-teching"), "Unknown method 'co-teching': did you mean 'co-teaching'?"),
        (lambda: make("foo"), "there is no similar name"),  # not jocor
        (lambda: make("foo"), "One of your own is known once its module is imported"),
        (
            lambda: make("jocor", temprature=1.0),
            "option of jocor 'temprature': did you mean 'temperature'?",
        ),
        (lambda: make("garg", inverse=np.eye(4)), "option of garg 'inverse'"),
        (lambda: make("jocor", select="sft"), "did you mean 'soft'"),
        (lambda: make("jocor", agree="al"), "did you mean 'all'"),
        (lambda: make("jocor", convention="published_code"), "did you mean 'published-code'"),
        (lambda: make("jocor", temperature=0.0), "temperature must be positive; got 0"),
        (lambda: make("jocor", select="soft", temperature=0.5), "sharpens a hard selection only"),
        (lambda: make("jocor", co_lambda=-0.1), "co_lambda cannot be negative; got -0.1"),
        (lambda: make("jocor", label_matrix=np.eye(4)), "both select and update are 'hard'"),
        (
            lambda: make("sord", label_matrix=np.eye(3)),
            "label matrix is for 3 grades, but there are 4",
        ),
        (lambda: make("sord", label_matrix=torch.ones(4, 4)), "row of a label matrix sums to 1"),
        (
            lambda: make("sord", label_matrix=[[1.0], [0.0, 1.0]]),
            "takes 4 rows of 4 numbers each; got",
        ),
        (lambda: make("jocor", ramp_epochs=0), "ramp_epochs must be positive; got 0"),
        (lambda: make("label-smooth", smoothing=1.5), r"smoothing lies in \[0, 1\]; got 1\.5"),
        (lambda: make("mixup", alpha=0.0), "alpha must be positive; got 0"),
        (
            lambda: methods.create("jocor", num_classes=4),
            "needs the share of wrong labels: .*noise_rate=",
        ),
        (
            lambda: methods.create("garg", num_classes=4),
            "needs the matrix of label errors: .*transition=",
        ),
        (
            lambda: methods.create("standard", num_classes=1),
            "at least two grades; num_classes is 1",
        ),
        (lambda: methods.create("standard", num_classes=4, noise_rate=1.0), r"\[0, 1\); got 1"),
        (
            lambda: methods.create("reweight", num_classes=3, transition=P4),
            "for 4 grades, but there are 3",
        ),
    ],
)
def test_mistakes_get_one_clear_sentence(call, sentence: str) -> None:
    with pytest.raises(SrjtError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_a_wrong_shape_are_named(name: str) -> None:
    method = make(name)
    k, c = method.networks, method.outputs
    labels = torch.zeros(5, dtype=torch.long)
    for shape in ((3 - k, 5, c), (5, c), (k, 4, c), (k, 6, c), (k, 5, c + 1)):
        with refuses("wrong_shape", "logits", says=f"({k}, 5, {c})"):
            method.loss(torch.zeros(shape), labels, keep=2)


def test_joint_methods_take_grades_only() -> None:
    with refuses("wrong_shape", "targets", says="(5, 4)"):
        make("jocor").loss(torch.zeros(2, 5, 4), torch.zeros(5, 4), keep=2)


@pytest.mark.parametrize("name", NAMES)
def test_constants_move_with_the_method(name: str) -> None:
    options = {"label_matrix": np.eye(4)} if "label_matrix" in methods.options(name) else {}
    if name in HOSTS:
        options["update"] = "soft"
    method = make(name, **options)
    moved = method.to("meta")
    assert type(moved) is type(method)
    constants = {k: v for k, v in vars(moved).items() if isinstance(v, torch.Tensor)}
    assert {"transition"} <= set(constants)
    assert {v.device.type for v in constants.values()} == {"meta"}
    assert all(v.device.type == "cpu" for v in vars(method).values() if isinstance(v, torch.Tensor))
    assert method.to("cpu").to("cpu").noise_rate == method.noise_rate


@pytest.mark.parametrize("name", [*NAMES, *BASELINES, "srjt"])
@pytest.mark.parametrize("convention", ["paper", "published-code", "original"])
def test_a_step_needs_no_host_synchronisation(name: str, convention: str) -> None:
    """On the meta device there are no values to look at, so every look is an error."""
    for options in ({}, {"per_class": True}) if name in JOINT else ({},):
        method = make(name, convention=convention, **options).to("meta")
        logits = torch.empty(method.networks, 6, method.outputs, device="meta", requires_grad=True)
        labels = torch.empty(6, dtype=torch.long, device="meta")
        loss = method.loss(logits, labels, keep=torch.empty((), dtype=torch.long, device="meta"))
        loss.total.backward()
        assert logits.grad is not None
        assert method.probabilities(logits).device.type == "meta"
        assert method.grades(logits).device.type == "meta"


@pytest.mark.usefixtures("clean_registry")
def test_registering_ones_own_method() -> None:
    @methods.register_method("mine", scores="s", updates="u", paper="p")
    class Mine(methods.Standard):
        pass

    assert methods.names()[-1] == methods.plain_names()[-1] == "mine"
    assert isinstance(methods.create("mine", num_classes=3), Mine)
    # the same class again, as when a notebook cell is run twice
    methods.register_method("mine", scores="s", updates="u", paper="p")(Mine)
    namesake = type("Standard", (methods.Standard,), {"__module__": "elsewhere"})
    for other in (Mine, namesake):
        with refuses("name_in_use", says="'standard'"):
            methods.register_method("standard", scores="s", updates="u", paper="p")(other)


@pytest.mark.usefixtures("clean_registry")
def test_a_variants_presets_can_be_overridden() -> None:
    methods.register_method("soft-jocor", scores="s", updates="u", paper="p", select="soft")(
        methods.JoCor
    )
    assert methods.create("soft-jocor", num_classes=3, noise_rate=0.1).select == "soft"
    assert (
        methods.create("soft-jocor", num_classes=3, noise_rate=0.1, select="hard").select == "hard"
    )


def test_the_recipe_needs_a_matrix_which_is_estimated() -> None:
    found = methods.lookup("srjt")
    assert found.is_recipe
    assert found.recipe.noise_rate == "auto"
    assert found.needs == ("transition",)
    for epochs, ramp in ((1, 1), (2, 1), (10, 4), (150, 60)):
        assert methods.Recipe(ramp_share=0.4).ramp_epochs(epochs) == ramp
        assert methods.Recipe().ramp_epochs(epochs) is None


@pytest.mark.usefixtures("clean_registry")
def test_a_recipe_of_ones_own() -> None:
    mine = methods.Recipe(balance=1.0)
    methods.register_method("even", scores="s", updates="u", paper="p", recipe=mine)(
        methods.Standard
    )
    assert methods.lookup("even").recipe == mine
    assert methods.names()[-1] == "even"
    assert "even" not in methods.plain_names()


def test_every_method_says_what_it_is() -> None:
    """In a docstring of its own: a dataclass without one gets its signature, and others nothing."""
    for row in table.METHODS:
        text = vars(row.method).get("__doc__") or ""
        assert text
        assert not text.startswith(f"{row.method.__name__}("), row.name
        assert (row.networks, row.needs) == (row.method.networks, row.method.needs), row.name
