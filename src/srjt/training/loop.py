"""The training loop: one for all methods, read from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from srjt.errors import Interrupted, Message, Option, SrjtError
from srjt.methods.base import Method
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
from srjt.training.trained import Trained
from srjt.training.workers import StopRequest

# Warn when the selection hardly keeps any samples of a grade.
#
# On imbalanced data the common grade is learnt first and has the smallest losses, so that methods
# which keep samples of small loss can come to keep one grade only.

PATIENCE = 3  # epochs in a row
STARVED = 0.1  # of the share that is kept overall


def starved_grades(rows: Sequence[MetricRow], grades: Sequence[str]) -> list[set[str]]:
    """In each epoch, the grades that the selection of a network hardly kept. One network's
    selection is what the other learns from, so a grade that either starves counts."""
    shares = {f"kept[{c}]": grade for c, grade in enumerate(grades)}
    kept = {row.epoch: row.value for row in rows if row.metric == "kept"}
    starved: dict[int, set[str]] = {epoch: set() for epoch in sorted(kept)}
    for row in rows:
        if row.metric in shares and row.epoch in kept and row.value < STARVED * kept[row.epoch]:
            starved[row.epoch].add(shares[row.metric])
    return list(starved.values())


def starvation_advice(method: type[Method]) -> list[Message]:
    """What may help starved grades, among what the method has."""
    options = {f.name for f in fields(method)} - method.unused_options()
    advice = []
    if "ramp_epochs" in options:
        advice.append(
            Message("a slower ramp (", Option("method_options", {"ramp_epochs": 10}), ")")
        )
    if "per_class" in options:
        advice.append(Message(Option("method_options", {"per_class": True})))
    if "noise_rate" in method.needs:
        advice.append(Message("a smaller ", Option("noise_rate")))
    return advice


def starvation_warning(
    rows: Sequence[MetricRow], grades: Sequence[str], *, advice: Sequence[str] = ()
) -> Message | None:
    """A warning in the first epoch that ends ``PATIENCE`` epochs in which a grade was hardly
    selected; else None.

    rows: of all epochs so far. advice: what the user can try, from ``starvation_advice``.
    """
    starved = starved_grades(rows, grades)
    lasting = [
        set.intersection(*starved[end - PATIENCE : end])
        for end in range(PATIENCE, len(starved) + 1)
    ]
    if not lasting or not lasting[-1] or any(lasting[:-1]):
        return None
    named = ", ".join(grade for grade in grades if grade in lasting[-1])
    return Message(
        f"The selection is starving grade {named}: for {PATIENCE} epochs hardly any of its samples"
        " were selected as clean, so the networks are unlearning it.",
        to_try(advice),
    )


def to_try(advice: Sequence[str]) -> Message:
    """ " Try a, b or c."; empty if there is nothing to try."""
    if not advice:
        return Message()
    *others, last = advice
    listed = [Message.joined(others, ", ")] if others else []
    return Message(" Try ", Message.joined([*listed, last], " or "), ".")


# The training loop: one for all methods, read from top to bottom.


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
    confusions: dict[
        str, np.ndarray
    ]  # side → (K + 1, C, C) counts of the kept networks and their ensemble
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
    config, folder, networks, method = run.config, run.folder, run.networks, run.method
    forward = run.forward(data.feed, sides=[side.rows for side in sides.values()])
    device = data.labels.device
    samples, batch_size = len(data.labels), min(config.known_batch_size, len(data.labels))
    steps = samples // batch_size

    optimizer = update.make_optimizer(networks.members.parameters(), config=config, device=device)
    recorder = update.Recorder(
        data.labels,
        data.true,
        networks=method.networks,
        num_classes=method.num_classes,
        steps=steps,
    )
    keep = torch.zeros((), dtype=torch.int64, device=device)
    step = update.Step(
        networks=process.distribute(networks, sync_batchnorm=config.sync_batchnorm),
        method=method,
        optimizer=optimizer,
        recorder=recorder,
        keep=keep,
        memory={name: tensor.to(device) for name, tensor in method.memory(samples).items()},
        amp=forward.amp,
        process=process,
    )
    log = checkpoint.MetricsLog(folder / "metrics.csv" if folder and process.is_main else None)
    writer = (
        checkpoint.CheckpointWriter(folder / "checkpoints") if folder and process.is_main else None
    )

    assert config.balance is not None, "for_data sets it"
    weights = balancing_weights(
        data.labels, balance=config.balance, certainty=data.readers.certainty
    )

    def plan_for(epoch: int) -> Plan:
        return draw_plan(
            samples,
            batch_size=batch_size,
            epoch=epoch,
            seed=config.seed,
            margin=config.image_size - config.crop,
            augment=run.preprocess.train_transform is None,
            flip=config.flip,
            weights=weights,
        )

    # ---- resume
    epoch, first_step = 1, 0
    best_weights = None
    if config.keep == "best":
        best_weights = {
            name: tensor.detach().clone() for name, tensor in update.weights(networks).items()
        }
    method_generator = generator(config.seed, "method", epoch)

    saved = checkpoint.latest(folder / "checkpoints") if folder else None
    past_rows: list[MetricRow] = []
    if saved is not None:
        tensors, meta = saved
        try:
            epoch, first_step = int(meta["epoch"]), int(meta["step"])
            past_rows = checkpoint.parse_rows(tensors.pop("metrics").numpy().tobytes())
            rng_states = {
                name: tensors.pop(name) for name in list(tensors) if name.startswith("random.")
            }
            if best_weights is not None:
                names = [name for name in tensors if name.startswith("best.")]
                best = {name.removeprefix("best."): tensors.pop(name) for name in names}
                update.restore(best_weights, best)
            update.restore(
                update.state_tensors(networks, optimizer, recorder, step.memory), tensors
            )
            method_generator.set_state(rng_states["random.method"])
            torch.set_rng_state(rng_states["random.cpu"])
            if device.type == "cuda" and "random.cuda" in rng_states:
                torch.cuda.set_rng_state(rng_states["random.cuda"], device)
        except (KeyError, TypeError, ValueError, RuntimeError) as problem:  # its checksum is right
            raise SrjtError(
                f"The checkpoint in {folder} is not from this version of srjt ({problem}): choose"
                " another ",
                Option("out"),
                ".",
                code="other_version",
            ) from None
        reporter.note(f"Resuming at epoch {epoch}, step {first_step} of {steps}.")
    log.resume(past_rows)

    def save(epoch: int, step_number: int) -> None:
        """Save the state before step ``step_number`` of ``epoch``."""
        if writer is None:
            return
        # the last checkpoint with finite weights stays the newest
        if not all(bool(p.isfinite().all()) for p in networks.parameters()):
            _wait_for(writer)
            place = f"epoch {epoch}, step {step_number + 1} of {steps}"
            raise _diverged(f"The weights were no longer finite before {place}", run)
        log.sync()
        state = update.state_tensors(networks, optimizer, recorder, step.memory)
        # the file itself may be lost or edited until the run resumes
        state["metrics"] = torch.frombuffer(bytearray(log.content()), dtype=torch.uint8)
        if best_weights is not None:
            state |= {f"best.{name}": tensor for name, tensor in best_weights.items()}
        state["random.method"] = method_generator.get_state()
        state["random.cpu"] = torch.get_rng_state()
        if device.type == "cuda":
            state["random.cuda"] = torch.cuda.get_rng_state(device)
        writer.save(
            state, {"epoch": epoch, "step": step_number}, step=(epoch - 1) * steps + step_number
        )

    def evaluate(name: str) -> np.ndarray:
        """(K + 1, C, C) confusion counts of a side; each process evaluates its share of the
        samples."""
        mine, side = slice(process.rank, None, process.world_size), sides[name]
        return (
            process.sum(forward.confusion_counts(side.rows[mine], side.labels[mine])).cpu().numpy()
        )

    # ---- warm up
    start = time.perf_counter()
    networks.train()
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        pause_garbage_collection(),
    ):
        run_epoch = update.make_epoch_runner(
            config.step,
            step,
            networks,
            data,
            preprocess=run.preprocess,
            plan=plan_for(epoch),
            generator=generator(config.seed, "warm-up"),
            part=process.part(batch_size),
            images=samples * config.known_epochs,
        )
        if networks.compiled:  # compile for evaluation too, before the first epoch is timed
            for name in sides:
                evaluate(name)
    warm_up = time.perf_counter() - start
    if warm_up > 1.0:
        reporter.note(f"Warm-up (compiling, capturing) took {warm_up:.1f} s.")

    def is_finished() -> bool:
        """Whether all epochs are trained, or none was better for so long that no more are."""
        if epoch > config.known_epochs or config.patience is None:
            return epoch > config.known_epochs
        return (
            epoch - 1 - (checkpoint.best_epoch(log.rows, config.optimise) or 0) >= config.patience
        )

    confusions: dict[str, np.ndarray] = {}
    advice = starvation_advice(type(method))
    last_saved = time.monotonic()
    with StopRequest(patient=process.world_size > 1) as stop:
        while not is_finished():
            start = time.perf_counter()
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            update.set_learning_rate(optimizer, config.learning_rate_at(epoch))
            keep.fill_(method.keep(epoch, batch_size))
            if "progress" in step.memory:
                step.memory["progress"].fill_((epoch - 1) / config.known_epochs)
            data.start_epoch(epoch, seed=config.seed)
            if first_step == 0:
                recorder.start_epoch()
                method_generator = generator(config.seed, "method", epoch)
                # dropout, if the network has any; torch.manual_seed takes a millisecond where CUDA
                # is not in use
                torch.default_generator.manual_seed(subseed(config.seed, "network", epoch))
                if device.type == "cuda":
                    torch.cuda.manual_seed_all(subseed(config.seed, "network", epoch))

            # ---- train
            steps_done, steps_now = first_step, 0
            for _ in run_epoch(plan_for(epoch), first_step, method_generator):
                steps_done, steps_now = steps_done + 1, steps_now + 1
                reporter.stepped(epoch, steps_done, steps)
                if stop.number is not None and steps_done < steps and process.world_size == 1:
                    stop.begin_saving()
                    save(epoch, steps_done)
                    _wait_for(writer)
                    raise Interrupted(
                        stop.number, f"Stopped at epoch {epoch}, step {steps_done} of {steps}."
                    )
            first_step = 0
            numbers, bad = recorder.finish_epoch()
            train_seconds = time.perf_counter() - start
            if bad is not None:
                _wait_for(writer)
                raise _diverged(
                    f"The loss was not finite at epoch {epoch}, step {bad + 1} of {steps}", run
                )

            # ---- evaluate
            rows = [
                MetricRow(epoch, "train", str(k + 1), name, value)
                for k, values in enumerate(numbers)
                for name, value in values.items()
            ]
            confusions = {name: evaluate(name) for name in sides}
            for name, counts in confusions.items():
                rows += checkpoint.metric_rows(epoch, name, counts)

            # ---- record
            rows += [
                MetricRow(epoch, "train", "", "learning_rate", config.learning_rate_at(epoch)),
                MetricRow(epoch, "train", "", "kept", recorder.selected_share()),
                MetricRow(
                    epoch, "train", "", "images_per_second", steps_now * batch_size / train_seconds
                ),
                MetricRow(epoch, "train", "", "seconds", time.perf_counter() - start),
                MetricRow(epoch, "train", "", "peak_memory_mb", _peak_memory_mb(device)),
            ]
            if best_weights is not None:
                # the last, if the metric is undefined in all of them
                best_so_far = checkpoint.best_epoch([*log.rows, *rows], config.optimise) or epoch
                if best_so_far == epoch:
                    update.restore(best_weights, update.weights(networks))
                rows.append(
                    MetricRow(epoch, "train", "", checkpoint.BEST_EPOCH, float(best_so_far))
                )
            log.add(rows)
            reporter.finished_epoch(epoch, rows)
            if (
                warning := starvation_warning(log.rows, run.grades.shown, advice=advice)
            ) is not None:
                reporter.note(warning)
            epoch += 1
            due = time.monotonic() - last_saved >= config.checkpoint_seconds
            finished = is_finished()
            signal = 0 if finished else process.agree_on_signal(stop.number or 0)
            if signal:
                stop.begin_saving()
            if finished or signal or (due and not (writer and writer.busy)):
                save(epoch, 0)
                last_saved = time.monotonic()
            if signal:
                _wait_for(writer)
                raise Interrupted(
                    signal, f"Stopped after epoch {epoch - 1} of {config.known_epochs}."
                )
    _wait_for(writer)
    kept = checkpoint.kept_epoch(log.table()) or epoch - 1
    if best_weights is not None:
        reporter.note(
            f"Epoch {kept} of {epoch - 1} is kept: the {METRICS[config.optimise].long_name} on the"
            " validation side was best there."
        )
        if kept < epoch - 1:
            update.restore(update.weights(networks), best_weights)
            confusions = {}
    return TrainingResult(
        metrics=log.table(),
        history=recorder.history(),
        # empty if the checkpoint was taken after the last epoch, or other networks were kept
        confusions=confusions or {name: evaluate(name) for name in sides},
        epochs=epoch - 1,
        kept_epoch=kept,
    )


def _wait_for(writer: checkpoint.CheckpointWriter | None) -> None:
    if writer is not None:
        writer.wait()


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
    )


def _peak_memory_mb(device: torch.device) -> float:
    """Of a GPU; nan on a CPU, where the peak is that of the whole process."""
    # reserved, not allocated: a CUDA graph has its own pool
    return torch.cuda.max_memory_reserved(device) / 2**20 if device.type == "cuda" else float("nan")


def as_tensor(array: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.int64, device=device)
