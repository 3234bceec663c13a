"""The loop against a plain one that shares with it only the order of the samples and the first
weights."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from srjt.data.grades import Grades
from srjt.data.images.feed import normalise, open_feed
from srjt.training.batches import Preprocess, TrainingSet, draw_plan
from srjt.training.config import TrainConfig
from srjt.training.devices import Process, StackedNetworks
from srjt.training.folder import DataFacts, RunFacts
from srjt.training.loop import fit
from srjt.training.reporters import BarReporter
from srjt.training.trained import Setup, Trained, build_method, build_networks, ready_to_compute

EPOCHS, BATCH, SIZE, CROP, NOISE = 4, 16, 32, 28, 0.4


def soft_label(grade: int) -> Tensor:
    weight = torch.tensor([math.exp(-abs(c - grade)) for c in range(4)], dtype=torch.float64)
    return weight / weight.sum()


def first_committee(method: str, **settings: Any) -> tuple[TrainConfig, StackedNetworks]:
    # in full precision: Adam magnifies the last bit of a gradient near zero
    options = (
        {"label_matrix": [soft_label(c).tolist() for c in range(4)]} if "ours" in method else {}
    )
    config = TrainConfig(
        method_options=options, method=method, noise_rate=NOISE, network="tiny", image_size=SIZE, crop=CROP,
        epochs=EPOCHS, batch_size=BATCH, learning_rate=1e-3, **settings,
    ).for_data(features=False, samples=10_000)  # fmt: skip
    committee = build_networks(
        config, build_method(config, num_classes=4), in_shape=(3, CROP, CROP)
    )
    return config, committee.double()


def first_networks(method: str) -> list[nn.Module]:
    return [copy.deepcopy(member).train() for member in first_committee(method)[1].members]


def batches(data: Any, epoch: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Images one by one: cut, mirrored, scaled. With labels and positions in the training set."""
    rows = data.split.train
    plan = draw_plan(len(rows), batch_size=BATCH, epoch=epoch, seed=0, margin=SIZE - CROP)
    labels = torch.tensor(data.manifest.labels[rows])
    made = []
    for positions, offsets, flips in zip(plan.rows, plan.offsets, plan.flips, strict=True):
        images = []
        for position, (down, right), flip in zip(positions, offsets.tolist(), flips, strict=True):
            pixels = torch.from_numpy(data.manifest.arrays[rows[int(position)]].copy())
            cut = pixels[down : down + CROP, right : right + CROP]
            images.append((cut.flip(1) if flip else cut).permute(2, 0, 1))
        made.append((normalise(torch.stack(images)).double(), labels[positions], positions))
    return made


def rate_at(epoch: int) -> float:
    return 1e-3 * 0.1 ** sum(epoch > round(m * EPOCHS / 150) for m in (90, 120, 140))


def trained(data: Any, method: str, **settings: Any) -> Trained:
    config, committee = first_committee(method, **settings)
    rows = data.split.train
    facts = RunFacts(
        config=config, grades=Grades(data.manifest.grades), data=DataFacts(in_shape=[3, CROP, CROP])
    )
    run = ready_to_compute(
        committee, build_method(config, num_classes=4), facts, Setup(device="cpu")
    )
    run = replace(run, preprocess=Preprocess(crop=CROP, dtype=torch.float64))
    training = TrainingSet(
        feed=open_feed(data.manifest.arrays, device="cpu"),
        rows=torch.tensor(rows),
        labels=torch.tensor(data.manifest.labels[rows]),
        true=torch.tensor(data.manifest.true_labels[rows]),
    )
    result = fit(run, training, {}, reporter=BarReporter(), process=Process())
    return replace(run, metrics=result.metrics, history=result.history)


def assert_equal(run: Trained, networks: list[nn.Module]) -> None:
    for member, mine in zip(run.networks.members, networks, strict=True):
        ours, theirs = member.state_dict(), mine.state_dict()
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.slow
def test_standard(data: Any) -> None:
    (network,) = first_networks("standard")
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
    losses = []
    for epoch in range(1, EPOCHS + 1):
        optimizer.param_groups[0]["lr"] = rate_at(epoch)
        for images, labels, _ in batches(data, epoch):
            optimizer.zero_grad()
            loss = F.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    run = trained(data, "standard")
    assert_equal(run, [network])
    logged = run.metrics.query("metric == 'loss'")["value"].to_numpy()
    steps = len(losses) // EPOCHS
    means = [sum(losses[e * steps : (e + 1) * steps]) / steps for e in range(EPOCHS)]
    assert logged == pytest.approx(means, rel=1e-9)


@pytest.mark.slow
def test_adamw_along_a_cosine(data: Any) -> None:
    """The rates of four epochs, of which one is a warm-up, by hand; the decay acts on the weights,
    not the gradient."""
    (network,) = first_networks("standard")
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
    for epoch, rate in enumerate((3e-4, 1e-3, 5.05e-4, 1e-5), start=1):
        optimizer.param_groups[0]["lr"] = rate
        for images, labels, _ in batches(data, epoch):
            optimizer.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            optimizer.step()
    chosen = {"optimizer": "adamw", "schedule": "cosine", "warmup_epochs": 1}
    assert_equal(trained(data, "standard", **chosen), [network])


def test_co_teaching_with_ours(data: Any) -> None:
    """Rank by the hard loss at τ = 0.1, hand the smallest to the peer, learn the soft labels
    (Algorithm 1)."""
    networks = first_networks("co-teaching+ours")
    optimizers = [
        torch.optim.Adam(n.parameters(), lr=1e-3, weight_decay=1e-4, fused=True) for n in networks
    ]
    true = torch.tensor(data.manifest.true_labels[data.split.train])
    selected = torch.zeros(2, len(true), dtype=torch.int64)
    clean_share = []
    for epoch in range(1, EPOCHS + 1):
        keep = math.ceil((1 - min(epoch / 5 * NOISE, NOISE)) * BATCH - 1e-9)
        clean = [0, 0]
        total = 0
        for images, labels, positions in batches(data, epoch):
            outputs = [network(images) for network in networks]
            choices = []
            for number, output in enumerate(outputs):
                scores = F.cross_entropy(output.detach() / 0.1, labels, reduction="none").tolist()
                chosen = sorted(range(BATCH), key=lambda i, scores=scores: scores[i])[:keep]
                choices.append(chosen)
                for i in chosen:
                    selected[number, positions[i]] += 1
                    clean[number] += int(labels[i] == true[positions[i]])
            total += keep
            for optimizer, output, peers in zip(
                optimizers, outputs, reversed(choices), strict=True
            ):
                optimizer.zero_grad()
                optimizer.param_groups[0]["lr"] = rate_at(epoch)
                logs = F.log_softmax(output[peers], dim=1)
                targets = torch.stack([soft_label(int(labels[i])) for i in peers])
                (-(targets * logs).sum(dim=1)).mean().backward()
                optimizer.step()
        clean_share.append([c / total for c in clean])
    run = trained(data, "co-teaching+ours")
    assert_equal(run, networks)
    for k in (0, 1):
        assert run.history[f"selected_{k + 1}"].tolist() == selected[k].tolist()
        logged = run.metrics.query(f"metric == 'label_precision' and network == '{k + 1}'")["value"]
        assert logged.to_numpy() == pytest.approx([share[k] for share in clean_share], abs=1e-12)
