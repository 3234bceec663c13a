"""What came out of the demo, as numbers that JSON can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from srjt.auditing.audit import Audit
from srjt.data import Manifest, Split
from srjt.inference.evaluate import evaluate
from srjt.inference.predict import predict
from srjt.reports.figures.curves import mean_over_networks
from srjt.training.trained import Trained

__all__ = [
    "BINS",
    "COVERAGE",
    "AuditFacts",
    "DoubtfulLabel",
    "LabelFacts",
    "MethodFacts",
    "RangeFacts",
    "RangeOfImage",
    "SeedFacts",
    "WrongLabel",
    "audit_facts",
    "label_facts",
    "method_facts",
    "range_facts",
    "seed_facts_from",
]

BINS = 4  # of the severity, per grade
COVERAGE = 0.9
NEAR = 0.25  # of a boundary, in grades
SHOWN = 12  # images


@dataclass(frozen=True, kw_only=True)
class WrongLabel:
    row: int  # in the dataset of the seed
    label: int
    true: int


@dataclass(frozen=True, kw_only=True)
class LabelFacts:
    """What is wrong with the labels of the training side."""

    labels: int
    wrong: int
    by_one: int  # wrong by one grade
    too_mild: int
    near: tuple[int, int]  # labels of images near a boundary between grades, and how many of them are wrong
    far: tuple[int, int]
    images: list[int]  # per bin of the severity
    mild: list[int]  # too mild labels per bin
    severe: list[int]
    examples: list[WrongLabel]


@dataclass(frozen=True, kw_only=True)
class MethodFacts:
    """One method with one seed."""

    scores: dict[str, float]  # metric → value on the test images
    repeated: list[float]  # per epoch: the share of the wrong training labels that the networks repeat
    corrected: float  # the share for which they say the true grade instead, at the end


@dataclass(frozen=True, kw_only=True)
class DoubtfulLabel:
    row: int
    label: int
    suggested: int | None  # None: no grade is suggested
    true: int
    quality: float


@dataclass(frozen=True, kw_only=True)
class AuditFacts:
    """The audit of the labels of one seed."""

    labels: int
    wrong: int
    wrong_by_rank: list[bool]  # whether the label is wrong, the most doubtful first
    worst: list[DoubtfulLabel]
    rate: float  # as estimated
    rate_interval: tuple[float, float]
    identifiable: bool
    unseen_repeated: float  # share of the wrong training labels that networks say without having seen them


@dataclass(frozen=True, kw_only=True)
class RangeOfImage:
    row: int
    true: int
    grade: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True)
class RangeFacts:
    """Ranges of grades for the test images of one seed, and for one of its patients."""

    promised: float
    reached: float  # share of the images whose true grade is in the range; patients count equally
    width: float  # grades in a range, on average
    grades: int
    patient: str
    images: list[RangeOfImage]
    promise: str


@dataclass(frozen=True, kw_only=True)
class SeedFacts:
    """Everything of one seed; the audit and the ranges are of the first seed only."""

    seed: int
    labels: LabelFacts
    methods: dict[str, MethodFacts]
    estimated_rate: float
    determined: bool  # whether the data determine that rate
    audit: AuditFacts | None = None
    ranges: RangeFacts | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def seed_facts_from(plain: dict[str, Any]) -> SeedFacts:
    """The facts that ``to_dict`` made plain."""
    labels, audit, ranges = plain["labels"], plain["audit"], plain["ranges"]
    return SeedFacts(**{
        **plain,
        "labels": LabelFacts(**{
            **labels,
            "near": tuple(labels["near"]),
            "far": tuple(labels["far"]),
            "examples": [WrongLabel(**one) for one in labels["examples"]],
        }),
        "methods": {name: MethodFacts(**one) for name, one in plain["methods"].items()},
        "audit": audit
        and AuditFacts(**{
            **audit,
            "rate_interval": tuple(audit["rate_interval"]),
            "worst": [DoubtfulLabel(**one) for one in audit["worst"]],
        }),
        "ranges": ranges
        and RangeFacts(**{**ranges, "images": [RangeOfImage(**one) for one in ranges["images"]]}),
    })  # fmt: skip


def label_facts(data: Manifest, rows: npt.NDArray[np.int64]) -> LabelFacts:
    """Compare the labels of some rows with their true grades; the images have a severity."""
    true = data.true_labels
    assert true is not None
    severity = data.table["severity"].to_numpy(np.float64)[rows]
    label, truth = data.labels[rows], true[rows]
    wrong = np.flatnonzero(label != truth)
    nearest = np.clip(np.round(severity), 1, data.num_classes - 1)  # the ends of the scale are no boundaries
    near = np.abs(severity - nearest) < NEAR
    bins = np.minimum((severity * BINS).astype(np.int64), data.num_classes * BINS - 1)

    def per_bin(chosen: npt.NDArray[np.bool_]) -> list[int]:
        counts: list[int] = np.bincount(bins[chosen], minlength=data.num_classes * BINS).tolist()
        return counts

    shown = wrong[np.linspace(0, len(wrong) - 1, min(SHOWN, len(wrong))).astype(np.int64)]
    return LabelFacts(
        labels=len(rows),
        wrong=len(wrong),
        by_one=int((np.abs(label - truth) == 1).sum()),
        too_mild=int((label < truth).sum()),
        near=(int(near.sum()), int((label != truth)[near].sum())),
        far=(int((~near).sum()), int((label != truth)[~near].sum())),
        images=per_bin(np.ones(len(rows), dtype=bool)),
        mild=per_bin(label < truth),
        severe=per_bin(label > truth),
        examples=[WrongLabel(row=int(rows[i]), label=int(label[i]), true=int(truth[i])) for i in shown],
    )


def method_facts(run: Trained, data: Manifest, split: Split, *, test: Manifest) -> MethodFacts:
    """Scores on the test images, and what became of the wrong training labels."""
    judged = evaluate(run, test, resamples=2)
    true = data.true_labels
    assert true is not None
    wrong = split.train[data.labels[split.train] != true[split.train]]
    curve = mean_over_networks(run.metrics, split="wrong_labels", metric="accuracy")
    corrected = 0.0
    if len(wrong):
        assert data.arrays is not None
        _, answers = run.probabilities(data.arrays[wrong])
        corrected = float((answers == true[wrong]).mean())
    return MethodFacts(
        scores={name: judged.intervals[name].value for name in ("mae", "accuracy", "macro_f1", "qwk")},
        repeated=[float(value) for value in curve],
        corrected=corrected,
    )


def audit_facts(found: Audit, data: Manifest, split: Split) -> AuditFacts:
    """How well an audit finds the wrong labels, whose true grades are known here."""
    scores, place = found.scores, {name: row for row, name in enumerate(data.ids)}
    position = {name: number for number, name in enumerate(data.grades)}
    wrong = scores["grade"] != scores["true_grade"]
    ids = found.fitted.manifest.ids
    rows = np.array([place[name] for name in ids])
    mistaken = found.fitted.manifest.labels != data.true_labels[rows]  # type: ignore[index]
    mistaken &= np.isin(rows, split.train)
    answers = found.fitted.grades[:, mistaken] == found.fitted.manifest.labels[mistaken]
    return AuditFacts(
        labels=len(scores),
        wrong=int(wrong.sum()),
        wrong_by_rank=[bool(one) for one in wrong],
        worst=[
            DoubtfulLabel(
                row=place[line["id"]],
                label=position[line["grade"]],
                suggested=position.get(line["suggested"]),
                true=position[line["true_grade"]],
                quality=float(line["quality"]),
            )
            for line in scores.head(SHOWN).to_dict("records")
        ],
        rate=found.estimate.rate,
        rate_interval=(float(found.estimate.rate_interval[0]), float(found.estimate.rate_interval[1])),
        identifiable=bool(found.estimate.identifiable),
        unseen_repeated=float(answers.mean()) if answers.size else 0.0,
    )


def range_facts(run: Trained, test: Manifest) -> RangeFacts:
    """Ranges for the test images; the patient is the first one of those with the most images."""
    table = predict(run, test, coverage=COVERAGE)
    judged = evaluate(run, test, coverage=COVERAGE, resamples=2).ranges
    assert judged is not None
    images = test.table["patient"].value_counts()
    patient = min(images[images == images.max()].index)
    position = {name: number for number, name in enumerate(test.grades)}
    chosen = [
        RangeOfImage(
            row=place,
            true=int(test.labels[place]),
            grade=position[str(line["grade"])],
            low=position[str(line["grade_low"])],
            high=position[str(line["grade_high"])],
        )
        for place, line in enumerate(table.to_dict("records"))
        if line["patient"] == patient
    ]
    return RangeFacts(
        promised=COVERAGE,
        reached=judged.coverage.value,
        width=judged.width.value,
        grades=test.num_classes,
        patient=str(patient),
        images=chosen[:SHOWN],
        promise=judged.promise,
    )
