"""The answers of several runs for the same test images, in the same order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srjt.data.images.store import open_store
from srjt.data.manifest import Manifest
from srjt.errors import SrjtError
from srjt.inference.answers import Answers, answers_from
from srjt.inference.fitted import fit_after_training
from srjt.inference.predict import WhichNetwork, predict_held_out, predictions
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.purpose import Purpose
from srjt.training.trained import Trained

__all__ = ["Tested", "answers_of_test_side", "answers_on", "in_order_of"]


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The answers of one run for its test images."""

    name: str
    ids: list[str]
    answers: Answers
    judged_by: str
    patients: int | None


def answers_of_test_side(
    name: str, run: Trained, *, network: WhichNetwork, optimise: Purpose | None, decoding: Decoding | None
) -> Tested:
    """The answers of a run for its own test side."""
    side = run.held_out.get("test")
    if side is None or not len(side):
        raise SrjtError(f"{name} keeps no predictions for a test side: give labelled images with `test`.")
    fitted = fit_after_training(run, network=network)
    table = predict_held_out(run, side, network=network, optimise=optimise, decoding=decoding, fitted=fitted)
    labels = side.labels if side.true_labels is None else side.true_labels
    return Tested(
        name=name,
        ids=side.ids,
        answers=answers_from(run, table, labels, groups=side.groups),
        judged_by="given grades" if side.true_labels is None else "true grades",
        patients=None if side.patients is None else len(set(side.patients)),
    )


def answers_on(
    name: str,
    run: Trained,
    data: Manifest,
    *,
    network: WhichNetwork,
    optimise: Purpose | None,
    decoding: Decoding | None,
) -> Tested:
    """The answers of a run for other labelled images."""
    data = run.match_features(data)
    store = open_store(data, size=run.config.image_size, resize=run.config.resize, find_duplicates=True)
    manifest = store.manifest
    probabilities, grades = run.probabilities(store.pixels)
    fitted = fit_after_training(run, network=network)
    table = predictions(
        run, probabilities, grades, network=network, optimise=optimise, decoding=decoding, fitted=fitted
    )
    truth = manifest.true_labels
    return Tested(
        name=name,
        ids=manifest.ids,
        answers=answers_from(run, table, manifest.labels if truth is None else truth, groups=manifest.groups),
        judged_by="given grades" if truth is None else "true grades",
        patients=None if manifest.patients is None else len(set(manifest.patients)),
    )


def in_order_of(other: Tested, first: Tested) -> Tested:
    """The answers of another run in the order of the first one's images; an error if the images differ.

    Their given grades may differ: labels are corrected between two trainings.
    """
    place = {sample: k for k, sample in enumerate(other.ids)}
    known = set(first.ids)
    label = dict(zip(first.ids, first.answers.labels.tolist(), strict=True))
    parts = {
        f"only in {first.name}": [sample for sample in first.ids if sample not in place],
        f"only in {other.name}": [sample for sample in other.ids if sample not in known],
    }
    if "true grades" in (first.judged_by, other.judged_by):
        parts["with another grade"] = [
            sample
            for sample, grade in zip(other.ids, other.answers.labels.tolist(), strict=True)
            if sample in known and label[sample] != grade
        ]
    differing = [
        f"{len(samples):,} {where} ({', '.join(samples[:3])}{', …' if len(samples) > 3 else ''})"
        for where, samples in parts.items()
        if samples
    ]
    if differing:
        raise SrjtError(
            f"{other.name} was tested on other images or grades than {first.name}: {'; '.join(differing)}. Give "
            "labelled images that none was trained on with `test`, or train one again on the sides of the other "
            "(srjt train … --splits RUN, or srjt.data.read_splits)."
        )
    order = np.array([place[sample] for sample in first.ids], dtype=np.int64)
    groups = other.answers.groups
    return Tested(
        name=other.name,
        ids=first.ids,
        answers=Answers(
            probabilities=other.answers.probabilities[order],
            grades=other.answers.grades[order],
            labels=other.answers.labels[order],
            groups=None if groups is None else [groups[k] for k in order.tolist()],
        ),
        judged_by=other.judged_by,
        patients=other.patients,
    )
