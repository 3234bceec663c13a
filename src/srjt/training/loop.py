"""The training loop: one for all methods, read from top to bottom."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from srjt.data.images.feed import Feed
from srjt.errors import Interrupted, SrjtError
from srjt.methods import Method
from srjt.training.config import TrainConfig
from srjt.training.engine.batches import Preprocess, TrainingSet
from srjt.training.engine.cuda_graph import make_epoch_runner
from srjt.training.engine.distributed import Process
from srjt.training.engine.plan import Plan, balancing_weights, draw_plan, generator, subseed
from srjt.training.engine.recorder import EpochRecord, Recorder
from srjt.training.engine.scoring import confusions
from srjt.training.engine.stacked_networks import StackedNetworks
from srjt.training.engine.starvation import StarvationWatch
from srjt.training.engine.state import initialise, restore, state_tensors
from srjt.training.engine.step import Step, make_optimizer, set_learning_rate
from srjt.training.engine.stop_signal import StopRequest
from srjt.training.record import checkpoint
from srjt.training.record.metrics_log import MetricRow, MetricsLog, metric_rows
from srjt.training.record.reporters import Reporter

__all__ = ["Fitted", "Side", "fit"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """Samples that are evaluated every epoch."""

    rows: Tensor  # (M,) int64 on the CPU: rows in the store
    labels: Tensor  # (M,) int64 on the device


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What is left after a training."""

    networks: StackedNetworks
    metrics: pd.DataFrame
    history: pd.DataFrame
    confusions: dict[str, np.ndarray]  # side → (K + 1, C, C) counts after the last epoch: networks, ensemble


def fit(
    committee: StackedNetworks,
    method: Method,
    feed: Feed,
    data: TrainingSet,
    *,
    config: TrainConfig,
    preprocess: Preprocess,
    sides: dict[str, Side],
    grades: tuple[str, ...],
    image_size: int,
    amp: torch.dtype | None,
    folder: Path | None,
    reporter: Reporter,
    process: Process,
) -> Fitted:
    """Train ``committee`` (on its device) by ``method``; everything in ``folder`` lets a later call go on.

    The result is a function of the configuration, the data and the weights handed in: where a resumed run
    was interrupted does not show.
    """
    device = data.labels.device
    samples, batch_size = len(data.labels), min(config.batch_size, len(data.labels))
    steps = samples // batch_size

    optimizer = make_optimizer(
        committee.parameters(),
        learning_rate=config.learning_rate_at(1),
        weight_decay=config.weight_decay,
        device=device,
    )
    initialise(optimizer)
    recorder = Recorder(
        data.labels, data.true, networks=method.networks, num_classes=method.num_classes, steps=steps
    )
    keep = torch.zeros((), dtype=torch.int64, device=device)
    step = Step(
        networks=process.distribute(committee, sync_batchnorm=config.sync_batchnorm),
        method=method,
        optimizer=optimizer,
        recorder=recorder,
        keep=keep,
        amp=amp,
        gather=process.gather if process.world > 1 else None,
        gather_targets=process.gather_targets if process.world > 1 else None,
        loss_scale=float(process.world),  # undoes the averaging of gradients: the loss is the global batch's
    )
    log = MetricsLog(folder / "metrics.csv" if folder and process.leads else None)
    writer = checkpoint.CheckpointWriter(folder / "checkpoints") if folder and process.leads else None
    watch = StarvationWatch(grades)

    assert config.balance is not None, "decided by for_data before training begins"
    drawn_by = balancing_weights(data.labels, balance=config.balance)

    def plan_of(epoch: int) -> Plan:
        return draw_plan(
            samples,
            batch_size=batch_size,
            epoch=epoch,
            seed=config.seed,
            margin=image_size - config.crop,
            augment=preprocess.train_transform is None,
            flip=config.flip,
            weights=drawn_by,
        )

    # ---- where we left off
    epoch, first_step = 1, 0
    method_draws = generator(config.seed, "method", epoch)
    saved = checkpoint.latest(folder / "checkpoints") if folder else None
    if saved is not None:
        tensors, meta = saved
        epoch, first_step = int(meta["epoch"]), int(meta["step"])
        randomness = {name: tensors.pop(name) for name in list(tensors) if name.startswith("random.")}
        restore(state_tensors(committee, optimizer, recorder), tensors)
        method_draws.set_state(randomness["random.method"])
        torch.set_rng_state(randomness["random.cpu"])
        if device.type == "cuda" and "random.cuda" in randomness:
            torch.cuda.set_rng_state(randomness["random.cuda"], device)
        watch.recall(meta["starved"])
        reporter.note(f"Going on from epoch {epoch}, step {first_step} of {steps}.")
    log.resume(before=epoch)

    def save(epoch: int, step_number: int) -> None:
        """The state before step ``step_number`` of ``epoch``."""
        if writer is None:
            return
        if not _finite(committee):  # the last good checkpoint stays the newest
            _finish(writer)
            raise SrjtError(
                f"The weights were no longer finite before epoch {epoch}, step {step_number + 1} of {steps}: "
                + _why_not_finite(method, config)
                + " The last good checkpoint is kept."
            )
        log.sync()  # no checkpoint may outlive the rows of the epochs before it
        state = state_tensors(committee, optimizer, recorder)
        state["random.method"] = method_draws.get_state()
        state["random.cpu"] = torch.get_rng_state()
        if device.type == "cuda":
            state["random.cuda"] = torch.cuda.get_rng_state(device)
        meta = {"epoch": epoch, "step": step_number, "starved": watch.memory()}
        writer.save(state, meta, step=(epoch - 1) * steps + step_number)

    def judge(name: str) -> np.ndarray:
        """(K + 1, C, C) confusion counts of a side; each process looks at its share."""
        side = sides[name]
        counts = confusions(
            committee,
            method,
            feed,
            side.rows[process.rank :: process.world],
            side.labels[process.rank :: process.world],
            preprocess=preprocess,
            batch_size=config.eval_batch_size,
            amp=amp,
        )
        return process.total(counts).cpu().numpy()

    # ---- warm up
    began = time.perf_counter()
    committee.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        run = make_epoch_runner(
            config.step,
            step,
            committee,
            data,
            preprocess=preprocess,
            plan=plan_of(epoch),
            generator=generator(config.seed, "warm-up"),
            part=process.part(batch_size),
            work=samples * config.epochs,
        )
        if committee.runners:  # compiled for evaluation, too, before the clock of the first epoch starts
            for name in sides:
                judge(name)
    warm_up = time.perf_counter() - began
    if warm_up > 1.0:
        reporter.note(f"Warm-up (compiling, capturing) took {warm_up:.1f} s.")

    judged: dict[str, np.ndarray] = {}
    last_saved = time.monotonic()
    with StopRequest() as stop:
        while epoch <= config.epochs:
            began = time.perf_counter()
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            set_learning_rate(optimizer, config.learning_rate_at(epoch))
            keep.fill_(method.keep(epoch, batch_size))
            if first_step == 0:
                recorder.start_epoch()
                method_draws = generator(config.seed, "method", epoch)
                torch.manual_seed(subseed(config.seed, "network", epoch))  # dropout, if the network has any

            # ---- learn
            done, taken = first_step, 0
            for _ in run(plan_of(epoch), first_step, method_draws):
                done, taken = done + 1, taken + 1
                reporter.stepped(epoch, done, steps)
                if stop.number is not None and done < steps and process.world == 1:
                    save(epoch, done)
                    _finish(writer)
                    raise Interrupted(stop.number, f"Stopped at epoch {epoch}, step {done} of {steps}.")
            first_step = 0
            record = recorder.finish_epoch()
            learnt = time.perf_counter() - began
            if record.first_bad_step is not None:
                _finish(writer)
                raise SrjtError(
                    f"The loss was not finite at epoch {epoch}, step {record.first_bad_step + 1} of {steps}: "
                    + _why_not_finite(method, config)
                    + " The last good checkpoint is kept."
                )

            # ---- evaluate
            rows = _training_rows(epoch, record, recorder.knows_truth)
            judged = {name: judge(name) for name in sides}
            for name, counts in judged.items():
                rows += metric_rows(epoch, name, counts)

            # ---- write down
            rows += [
                MetricRow(epoch, "train", "", "learning_rate", config.learning_rate_at(epoch)),
                MetricRow(epoch, "train", "", "kept", int(keep) / batch_size),
                MetricRow(epoch, "train", "", "images_per_second", taken * batch_size / learnt),
                MetricRow(epoch, "train", "", "seconds", time.perf_counter() - began),
                MetricRow(epoch, "train", "", "peak_memory_mb", _peak_memory_mb(device)),
            ]
            log.add(rows)
            reporter.finished_epoch(epoch, rows)
            if (warning := watch.look(record.counts)) is not None:
                reporter.note(warning)
            epoch += 1
            due = time.monotonic() - last_saved >= config.checkpoint_seconds
            signal = process.agree(stop.number or 0) if epoch <= config.epochs else 0
            if epoch > config.epochs or signal or (due and not (writer and writer.busy)):
                save(epoch, 0)
                last_saved = time.monotonic()
            if signal:
                _finish(writer)
                raise Interrupted(signal, f"Stopped after epoch {epoch - 1} of {config.epochs}.")
    _finish(writer)
    return Fitted(
        networks=committee,
        metrics=log.table(),
        history=recorder.history(),
        confusions=judged
        or {name: judge(name) for name in sides},  # the latter if only writing was left to do
    )


def _finish(writer: checkpoint.CheckpointWriter | None) -> None:
    if writer is not None:
        writer.wait()


def _finite(committee: StackedNetworks) -> bool:
    return all(bool(p.isfinite().all()) for p in committee.parameters())


def _training_rows(epoch: int, record: EpochRecord, knows_truth: bool) -> list[MetricRow]:
    rows = []
    for k, loss in enumerate(record.losses):
        network = str(k + 1)
        rows.append(MetricRow(epoch, "train", network, "loss", loss))
        rows += [
            MetricRow(epoch, "train", network, f"kept[{grade}]", float(share))
            for grade, share in enumerate(record.kept[k])
        ]
        if knows_truth:
            rows += [
                MetricRow(epoch, "train", network, name, value)
                for name, value in record.label_quality(k).items()
            ]
    return rows


def _why_not_finite(method: Method, config: TrainConfig) -> str:
    if config.precision in ("bf16", "auto"):
        hint = "try a smaller --learning-rate or --precision fp32."
    else:
        hint = "try a smaller --learning-rate."
    if "transition" in method.needs:
        return (
            f"a method that corrects by the transition matrix can diverge where it is ill-conditioned; {hint}"
        )
    return f"the weights have probably diverged; {hint}"


def _peak_memory_mb(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**20  # a graph keeps its own pool
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def as_tensor(array: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.int64, device=device)
