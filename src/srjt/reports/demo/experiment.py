"""The demo's trainings. Each seed draws other patients, other reading errors and other networks, so that the seeds are
independent and an interval over them means what it says."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srjt._version import __version__
from srjt.auditing.audit import audit
from srjt.data import Manifest, Split, folds
from srjt.data.synthetic import generate, read_labels
from srjt.errors import SrjtError
from srjt.files import write_json
from srjt.reports.demo.facts import (
    SeedFacts,
    audit_facts,
    label_facts,
    method_facts,
    range_facts,
    seed_facts_from,
)
from srjt.training.engine.cpu_tuning import CpuSetting
from srjt.training.record.metrics_log import MetricRow
from srjt.training.record.reporters import SilentReporter
from srjt.training.train import train

__all__ = [
    "METHODS",
    "PAPER",
    "RECIPE",
    "TEST_SEEDS",
    "DemoData",
    "DemoSettings",
    "Tell",
    "demo_data",
    "run_seed",
]

TEST_SEEDS = 1_000_000  # the images of the test side have seeds of their own
PAPER, RECIPE = "co-teaching+ours", "srjt"
METHODS = ("standard", PAPER, RECIPE, "eae")
Tell = Callable[[str, float], None]  # what is done at the moment, and which share of the seed's work is done


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """What determines the demo. The sizes are chosen for a minute and a half on two cores; no result was looked at."""

    images: int = 700  # four fifths for training, the others for validation
    test_images: int = 1000  # of other patients
    epochs: int = 18
    size: int = 48  # pixels
    audit_folds: int = 3

    @property
    def patients(self) -> int:
        return max(self.images // 5, 20)

    @property
    def test_patients(self) -> int:
        return max(self.test_images // 5, 20)

    @property
    def training(self) -> dict[str, Any]:
        return {
            "network": "tiny",
            "image_size": self.size,
            "crop": self.size - 4,
            "learning_rate": 2e-3,
            "device": "cpu",
            "tune_cpu": False,
        }


class DemoData(NamedTuple):
    """What one seed is trained and tested on."""

    data: Manifest  # with a reader's labels
    split: Split  # training and validation sides
    test: Manifest  # other patients, with true labels


def demo_data(settings: DemoSettings, seed: int) -> DemoData:
    """The images of a seed."""
    clean = generate(images=settings.images, patients=settings.patients, size=settings.size, seed=seed)
    fold = folds(clean, folds=5, seed=seed)[0]
    split = Split(
        train=np.sort(np.concatenate([fold.train, fold.test])),
        validation=fold.validation,
        test=np.empty(0, dtype=np.int64),
    )
    test = generate(
        images=settings.test_images,
        patients=settings.test_patients,
        size=settings.size,
        seed=TEST_SEEDS + seed,
    )
    return DemoData(clean.with_noisy_labels(read_labels(clean, seed=seed)), split, test)


def run_seed(out: Path, settings: DemoSettings, seed: int, *, first: bool, tell: Tell) -> SeedFacts:
    """Train every method with one seed; with the first seed also audit the labels, and compute ranges.

    A finished seed is read from its file, finished trainings of an unfinished one are opened.
    """
    folder = out / f"seed-{seed}"
    file = folder / "facts.json"
    made_with = {"srjt": __version__, "settings": asdict(settings), "first": first}
    if file.exists():
        facts = _read(file, made_with)
        tell("", 1.0)
        return facts
    data, split, test = demo_data(settings, seed)
    true = data.true_labels
    assert true is not None
    rate = float((data.labels != true)[split.train].mean())
    parts = len(METHODS) + first
    common = {**settings.training, "seed": seed, "cpu_setting": CpuSetting(channels_last=True)}
    runs = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the page says whether the data determine the rate
        for place, method in enumerate(METHODS):
            runs[method] = train(
                data,
                out=folder / method,
                split=split,
                method=method,
                # the paper's method must be told the share of wrong labels; the others are told nothing
                noise_rate=rate if method == PAPER else None,
                epochs=settings.epochs,
                track_wrong_labels=True,
                reporter=_Progress(tell, method, before=place, parts=parts),
                **common,
            )
        found, ranges = None, None
        if first:
            del common["cpu_setting"]
            found = audit(
                data,
                out=out / "audit",
                folds=settings.audit_folds,
                epochs=max(1, settings.epochs // 2),
                source="the demo",
                reporter=_Progress(tell, "audit", before=len(METHODS), parts=parts),
                **common,
            )
            ranges = range_facts(runs[RECIPE], test)
        estimate = runs[RECIPE].noise_estimate
        assert estimate is not None
        facts = SeedFacts(
            seed=seed,
            labels=label_facts(data, split.train),
            methods={method: method_facts(run, data, split, test=test) for method, run in runs.items()},
            estimated_rate=estimate.rate,
            determined=bool(estimate.identifiable),
            audit=None if found is None else audit_facts(found, data, split),
            ranges=ranges,
        )
    write_json(file, {**made_with, "facts": facts.to_dict()})
    tell("", 1.0)
    return facts


def _read(file: Path, made_with: dict[str, Any]) -> SeedFacts:
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        if {name: saved[name] for name in made_with} == made_with:
            return seed_facts_from(saved["facts"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SrjtError(f"{file} is damaged or not from srjt ({problem}): delete it.") from None
    raise SrjtError(f"{file} was made with other settings: choose another `out`, or delete that folder.")


class _Progress(SilentReporter):
    """Tells the share of a seed's work that is done. The warm-up of a training is not counted."""

    def __init__(self, tell: Tell, title: str, *, before: int, parts: int) -> None:
        super().__init__()
        self.tell, self.part, self.before, self.parts = tell, title, before, parts

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        share = 0.0 if self.title == "warm-up" else epoch / (self.epochs * self.folds)
        self.tell(self.part, (self.before + share) / self.parts)
