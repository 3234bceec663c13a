"""The training loop: one for all methods, read from top to bottom."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from srjt.errors import Interrupted, Option, SrjtError
from srjt.ordinal.metrics import METRICS
from srjt.progress import Reporter
from srjt.training import checkpoint, step as update
from srjt.training.batches import (
    Plan,
    TrainingSet,
    balancing_weights,
    draw_plan,
    generator,
    subseed,
)
from srjt.training.checkpoint import MetricRow
from srjt.training.devices import Process, pause_garbage_collection
from srjt.training.rarely_kept import rarely_kept_advice, rarely_kept_warning
from srjt.training.resume import Checkpoints, Position, TrainingState
from srjt.training.trained import Trained
from srjt.training.workers import StopRequest


@dataclass(frozen=True, kw_only=True)
class Side:
    """Samples that are evaluated every epoch."""

    rows: Tensor  # (M,) int64 on the CPU: rows in the store
    labels: Tensor  # (M,) int64 on the device


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The result of a training."""

    metrics: pd.DataFrame
    history: pd.DataFrame
    # side → (K + 1, C, C) counts of the kept networks and their ensemble
    confusions: dict[str, np.ndarray]
    epochs: int  # that were trained: fewer than planned if there was no better one for long
    kept_epoch: int


def fit(
    run: Trained, data: TrainingSet, sides: dict[str, Side], *, reporter: Reporter, process: Process
) -> TrainingResult:
    """Train the networks of ``run`` (on their device) with its method; a later call with the same
    folder resumes.

    The result is a function of the configuration, the data and the initial weights. It does not
    depend on where a resumed run was interrupted.
    """
    training = _Training(run, data, sides, reporter=reporter, process=process)
    training.resume()
    training.warm_up()
    with StopRequest(patient=process.world_size > 1) as stop:
        while not training.is_finished():
            training.start_epoch()
            training.train(stop)
            rows = training.measure()
            training.record(rows)
            training.save_if_due(stop)
    return training.result()


class _Training:
    """One training: what it is made of, and where it is."""

    def __init__(
        self,
        run: Trained,
        data: TrainingSet,
        sides: dict[str, Side],
        *,
        reporter: Reporter,
        process: Process,
    ) -> None:
        config = run.config
        method = run.method
        folder = run.folder
        self.run = run
        self.config = config
        self.learning = config.learning
        self.data = data
        self.sides = sides
        self.reporter = reporter
        self.process = process
        self.device = data.labels.device
        self.samples = len(data.labels)
        self.batch_size = min(config.batch_size, self.samples)
        self.steps = self.samples // self.batch_size  # of an epoch
        self.forward = run.forward(data.feed, sides=[side.rows for side in sides.values()])
        self.weights = balancing_weights(
            data.labels, balance=config.balance, certainty=data.readers.certainty
        )
        self.step = self._make_step()
        self.state = TrainingState(
            networks=run.networks,
            optimizer=self.step.optimizer,
            recorder=self.step.recorder,
            memory=self.step.memory,
            generator=generator(config.seed, "method", 1),
            log=checkpoint.MetricsLog(
                folder / "metrics.csv" if folder and process.is_main else None
            ),
            device=self.device,
        )
        if config.keep == "best":
            live = update.weights(run.networks)
            self.state.best = {name: tensor.detach().clone() for name, tensor in live.items()}
        self.checkpoints = Checkpoints(folder, steps=self.steps, writes=process.is_main)
        self.advice = rarely_kept_advice(type(method))
        # where it is
        self.epoch = 1
        self.first_step = 0
        self.began = 0.0  # the present epoch, by time.perf_counter
        self.images = 0  # trained on in the present epoch, by this process
        self.last_saved = time.monotonic()
        self.confusions: dict[str, np.ndarray] = {}  # side → counts after the latest epoch

    def _make_step(self) -> update.Step:
        """The update of the networks by one batch."""
        method = self.run.method
        memory = method.memory(self.samples)
        return update.Step(
            optimizer=update.make_optimizer(
                self.run.networks.members.parameters(), learning=self.learning, device=self.device
            ),
            recorder=update.Recorder(
                self.data.labels,
                self.data.true,
                networks=method.networks,
                num_classes=method.num_classes,
                steps=self.steps,
            ),
            networks=self.process.distribute(
                self.run.networks, sync_batchnorm=self.config.sync_batchnorm
            ),
            method=method,
            keep=torch.zeros((), dtype=torch.int64, device=self.device),
            memory={name: tensor.to(self.device) for name, tensor in memory.items()},
            amp=self.forward.amp,
            process=self.process,
        )

    # ---- before the first step

    def resume(self) -> None:
        """Continue where the latest checkpoint was taken, if there is one."""
        position = self.checkpoints.resume(self.state)
        if position is not None:
            self.epoch, self.first_step = position
            self.reporter.note(
                f"Resuming at epoch {self.epoch}, step {self.first_step} of {self.steps}."
            )

    def warm_up(self) -> None:
        """Choose how an epoch is run: compile and capture it where that is possible."""
        start = time.perf_counter()
        networks = self.run.networks
        networks.train()
        with (
            torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []),
            pause_garbage_collection(),
        ):
            self.run_epoch = update.make_epoch_runner(
                self.config.step,
                self.step,
                networks,
                self.data,
                preprocess=self.run.preprocess,
                plan=self.plan(),
                generator=generator(self.config.seed, "warm-up"),
                part=self.process.part(self.batch_size),
                images=self.samples * self.config.epochs,
            )
            if networks.compiled:  # compile for evaluation too, before the first epoch is timed
                self.evaluate()
        seconds = time.perf_counter() - start
        if seconds > 1.0:
            self.reporter.note(f"Warm-up (compiling, capturing) took {seconds:.1f} s.")
        self.last_saved = time.monotonic()

    def plan(self) -> Plan:
        """The batches of the present epoch."""
        return draw_plan(
            self.samples,
            batch_size=self.batch_size,
            epoch=self.epoch,
            seed=self.config.seed,
            margin=self.config.image_size - self.config.crop,
            augment=self.run.preprocess.train_transform is None,
            flip=self.config.flip,
            weights=self.weights,
            augmentation=self.run.preprocess.augmentation,
        )

    # ---- an epoch

    def is_finished(self) -> bool:
        """Whether all epochs are trained, or none was better for so long that no more are."""
        config = self.config
        if self.epoch > config.epochs:
            return True
        if config.patience is None:
            return False
        best = checkpoint.best_epoch(self.state.log.rows, config.target_metric) or 0
        return self.epoch - 1 - best >= config.patience

    def start_epoch(self) -> None:
        """Set what depends on the epoch alone."""
        self.began = time.perf_counter()
        seed = self.config.seed
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        self.state.optimizer.set_rate(self.learning.rate_at(self.epoch))
        self.step.keep.fill_(self.step.method.keep(self.epoch, self.batch_size))
        if "progress" in self.step.memory:
            self.step.memory["progress"].fill_((self.epoch - 1) / self.config.epochs)
        self.data.start_epoch(self.epoch, seed=seed)
        if self.first_step > 0:  # the rest is restored
            return
        self.state.recorder.start_epoch()
        self.state.generator = generator(seed, "method", self.epoch)
        # dropout, if the network has any; torch.manual_seed takes a millisecond where CUDA is not
        # in use
        torch.default_generator.manual_seed(subseed(seed, "network", self.epoch))
        if on_gpu:
            torch.cuda.manual_seed_all(subseed(seed, "network", self.epoch))

    def train(self, stop: StopRequest) -> None:
        """Run the steps of the epoch. A signal stops it after a step, with its state saved."""
        done = self.first_step
        for _ in self.run_epoch(self.plan(), self.first_step, self.state.generator):
            done += 1
            self.reporter.stepped(self.epoch, done, self.steps)
            if stop.number is not None and done < self.steps and self.process.world_size == 1:
                stop.begin_saving()
                self.save(Position(self.epoch, done))
                self.checkpoints.wait()
                raise Interrupted(
                    stop.number, f"Stopped at epoch {self.epoch}, step {done} of {self.steps}."
                )
        self.images = (done - self.first_step) * self.batch_size
        self.first_step = 0

    def measure(self) -> list[MetricRow]:
        """The numbers of the epoch: of the training, and of the networks on every side."""
        numbers, bad = self.state.recorder.finish_epoch()
        train_seconds = time.perf_counter() - self.began
        if bad is not None:
            self.checkpoints.wait()
            place = f"epoch {self.epoch}, step {bad + 1} of {self.steps}"
            raise _diverged(f"The loss was not finite at {place}", self.run)
        rows = []
        for k, values in enumerate(numbers):
            for name, value in values.items():
                rows.append(MetricRow(self.epoch, "train", str(k + 1), name, value))
        self.confusions = self.evaluate()
        for name, counts in self.confusions.items():
            rows += checkpoint.metric_rows(self.epoch, name, counts)
        of_the_run = {
            "learning_rate": self.learning.rate_at(self.epoch),
            "kept": self.state.recorder.selected_share(),
            "images_per_second": self.images / train_seconds,
            "seconds": time.perf_counter() - self.began,
            "peak_memory_mb": _peak_memory_mb(self.device),
        }
        for name, value in of_the_run.items():
            rows.append(MetricRow(self.epoch, "train", "", name, value))
        return rows

    def evaluate(self) -> dict[str, np.ndarray]:
        """Side → (K + 1, C, C) confusion counts; each process evaluates its share of the
        samples."""
        mine = slice(self.process.rank, None, self.process.world_size)
        confusions = {}
        for name, side in self.sides.items():
            counts = self.forward.confusion_counts(side.rows[mine], side.labels[mine])
            confusions[name] = self.process.sum(counts).cpu().numpy()
        return confusions

    def record(self, rows: list[MetricRow]) -> None:
        """Log the epoch, and keep its weights if it is the best so far."""
        log = self.state.log
        if self.state.best is not None:
            best = checkpoint.best_epoch([*log.rows, *rows], self.config.target_metric)
            if best is None:  # the metric is undefined in all epochs: the last is kept
                best = self.epoch
            if best == self.epoch:
                update.restore(self.state.best, update.weights(self.run.networks))
            rows.append(MetricRow(self.epoch, "train", "", checkpoint.BEST_EPOCH, float(best)))
        log.add(rows)
        self.reporter.finished_epoch(self.epoch, rows)
        warning = rarely_kept_warning(log.rows, self.run.grades.shown, advice=self.advice)
        if warning is not None:
            self.reporter.note(warning)
        self.epoch += 1

    def save_if_due(self, stop: StopRequest) -> None:
        """Save the state between two epochs: at the end, at a signal, or after a while."""
        due = time.monotonic() - self.last_saved >= self.config.checkpoint_seconds
        finished = self.is_finished()
        signal = 0 if finished else self.process.agree_on_signal(stop.number or 0)
        if signal:
            stop.begin_saving()
        if finished or signal or (due and not self.checkpoints.busy):
            self.save(Position(self.epoch, 0))
            self.last_saved = time.monotonic()
        if signal:
            self.checkpoints.wait()
            raise Interrupted(
                signal, f"Stopped after epoch {self.epoch - 1} of {self.config.epochs}."
            )

    def save(self, position: Position) -> None:
        """Save the state, unless a weight is not finite: the last good checkpoint stays the
        newest."""
        if self.checkpoints.writer is not None and not self.state.is_finite():
            self.checkpoints.wait()
            place = f"epoch {position.epoch}, step {position.step + 1} of {self.steps}"
            raise _diverged(f"The weights were no longer finite before {place}", self.run)
        self.checkpoints.save(self.state, position)

    # ---- after the last epoch

    def result(self) -> TrainingResult:
        """The numbers of all epochs, with the networks of the epoch that is kept."""
        self.checkpoints.wait()
        log = self.state.log
        last = self.epoch - 1
        kept = checkpoint.kept_epoch(log.table()) or last
        if self.state.best is not None:
            metric = METRICS[self.config.target_metric].long_name
            self.reporter.note(
                f"Epoch {kept} of {last} is kept: the {metric} on the validation side was best"
                " there."
            )
            if kept < last:
                update.restore(update.weights(self.run.networks), self.state.best)
                self.confusions = {}
        return TrainingResult(
            metrics=log.table(),
            history=self.state.recorder.history(),
            # empty if the checkpoint was taken after the last epoch, or other networks were kept
            confusions=self.confusions or self.evaluate(),
            epochs=last,
            kept_epoch=kept,
        )


def _diverged(what: str, run: Trained) -> SrjtError:
    reason = "the weights have probably diverged"
    if "transition" in run.method.needs:
        reason = (
            "a method that uses the transition matrix can diverge where that matrix is"
            " ill-conditioned"
        )
    hint: list[object] = []
    if run.config.precision in ("bf16", "auto"):
        hint = [" or ", Option("precision", "fp32")]
    return SrjtError(
        f"{what}: {reason}; try a smaller ",
        Option("learning_rate"),
        *hint,
        ". The last good checkpoint is kept.",
        code="training_failed",
    )


def _peak_memory_mb(device: torch.device) -> float:
    """Of a GPU; nan on a CPU, where the peak is that of the whole process."""
    # reserved, not allocated: a CUDA graph has its own pool
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**20
    return float("nan")


def as_tensor(array: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.int64, device=device)
