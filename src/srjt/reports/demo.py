"""The experiment of ``srjt demo``: four methods on labels that err as readers do, trained side by side in
processes, and the facts that its page shows.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from srjt._version import __version__
from srjt.auditing.audit import Audit, audit
from srjt.data.manifest import Manifest
from srjt.data.splits import Split, folds
from srjt.data.synthetic import generate, read_labels
from srjt.errors import Interrupted, SrjtError
from srjt.files import write_json
from srjt.inference.evaluate import evaluate
from srjt.inference.predict import predict
from srjt.reports.figures.canvas import mean_over_networks
from srjt.training.checkpoint import MetricRow
from srjt.training.reporters import BarReporter
from srjt.training.train import train
from srjt.training.trained import Trained
from srjt.training.workers import SIGNALS, StopRequest, start_forkserver

# What came out of the demo, as numbers that JSON can hold.

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


# The demo's trainings. Each seed draws other patients, other reading errors and other networks, so that the
# seeds are independent and an interval over them means what it says.

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
    common = {**settings.training, "seed": seed}
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


class _Progress(BarReporter):
    """Tells the share of a seed's work that is done. The warm-up of a training is not counted."""

    def __init__(self, tell: Tell, title: str, *, before: int, parts: int) -> None:
        super().__init__()
        self.tell, self.part, self.before, self.parts = tell, title, before, parts

    def finished_epoch(self, epoch: int, rows: list[MetricRow]) -> None:
        share = 0.0 if self.title == "warm-up" else epoch / (self.epochs * self.folds)
        self.tell(self.part, (self.before + share) / self.parts)


# Run the seeds of the demo at the same time, each in a process of its own with one thread.

Show = Callable[[int, str, float], None]  # seed, what is done at the moment, share of its work
POLL_SECONDS = 0.2


@dataclass
class _Job:
    seed: int
    process: BaseProcess
    messages: Connection
    problem: str = ""


def run_seeds(
    out: Path, settings: DemoSettings, seeds: Sequence[int], *, jobs: int, show: Show
) -> list[SeedFacts]:
    """The facts of all seeds, in their order.

    Ctrl-C or SIGTERM stops the processes, which save their state, and raises ``Interrupted``.
    """
    import torch

    if "forkserver" in multiprocessing.get_all_start_methods() and min(jobs, len(seeds)) > 1:
        _run_in_processes(out, settings, seeds, jobs=jobs, show=show)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the processes: the number of threads changes the last bits of a result
    try:
        # what the processes have finished is read
        return [
            run_seed(
                out,
                settings,
                seed,
                first=seed == seeds[0],
                tell=lambda what, share, seed=seed: show(seed, what, share),  # type: ignore[misc]
            )
            for seed in seeds
        ]
    finally:
        torch.set_num_threads(threads)


def _run_in_processes(
    out: Path, settings: DemoSettings, seeds: Sequence[int], *, jobs: int, show: Show
) -> None:
    waiting, running, finished = list(seeds), list[_Job](), 0
    with StopRequest() as stop:
        # torch._dynamo is imported by every optimiser, which takes two seconds
        context = start_forkserver([__name__, "torch._dynamo"])
        while running or (waiting and stop.number is None):
            while waiting and len(running) < jobs and stop.number is None:
                seed = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(sender, out, settings, seed, seed == seeds[0]))
                process.start()
                sender.close()
                running.append(_Job(seed, process, receiver))
            if stop.number is not None:
                for job in running:  # repeated: only a training hears it
                    job.process.terminate()
            wait([job.process.sentinel for job in running], timeout=POLL_SECONDS)
            for job in list(running):
                alive = job.process.is_alive()  # asked first: its last words may come in between
                _receive(job, show)
                if alive:
                    continue
                running.remove(job)
                finished += job.process.exitcode == 0
                if job.process.exitcode and stop.number is None:
                    _stop(running, show)
                    raise SrjtError(
                        job.problem
                        or f"The training of seed {job.seed} ended with status {job.process.exitcode}: run the same "
                        "command again to resume."
                    )
        if stop.number is not None:
            raise Interrupted(stop.number, f"The demo stopped with {finished} of {len(seeds)} seeds done.")


def _stop(running: list[_Job], show: Show) -> None:
    """End the other seeds: asked again and again, because only a training hears it, while their messages are read."""
    while any(job.process.is_alive() for job in running):
        for job in running:
            job.process.terminate()
        wait([job.process.sentinel for job in running], timeout=POLL_SECONDS)
        for job in running:
            _receive(job, show)


def _receive(job: _Job, show: Show) -> None:
    while job.messages.poll():
        try:
            what, share = job.messages.recv()
        except EOFError:
            return
        if share is None:
            job.problem = what
        else:
            show(job.seed, what, share)


def _work(messages: Connection, out: Path, settings: DemoSettings, seed: int, first: bool) -> None:
    """One process: train, send the progress; a problem is sent as a sentence."""
    import torch

    torch.set_num_threads(1)
    for number in SIGNALS:
        # A training handles the first one; those that follow must not end the process while it saves its state.
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # the server has blocked them
    try:
        run_seed(out, settings, seed, first=first, tell=lambda what, share: messages.send((what, share)))
    except SrjtError as problem:
        messages.send((str(problem), None))
        raise SystemExit(2) from None
    except Interrupted as stopped:
        raise SystemExit(stopped.status) from None
    except BrokenPipeError:  # the demo itself has ended
        raise SystemExit(130) from None
