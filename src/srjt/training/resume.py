"""Save the whole state of a training, and resume from it as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from srjt.errors import Option, SrjtError
from srjt.training import checkpoint, step as update
from srjt.training.adam import Adam
from srjt.training.devices import StackedNetworks


class Position(NamedTuple):
    """Where a training is: before this step (from 0) of this epoch (from 1)."""

    epoch: int
    step: int


@dataclass(kw_only=True)
class TrainingState:
    """Everything that the next step depends on, and what was recorded so far."""

    networks: StackedNetworks
    optimizer: Adam
    recorder: update.Recorder
    memory: dict[str, Tensor]  # the method's
    generator: torch.Generator  # the method's, of the present epoch
    log: checkpoint.MetricsLog
    device: torch.device
    best: dict[str, Tensor] | None = None  # the weights of the best epoch, if they are kept

    def live(self) -> dict[str, Tensor]:
        """The tensors that a step changes: themselves, not copies."""
        return update.state_tensors(self.networks, self.optimizer, self.recorder, self.memory)

    def is_finite(self) -> bool:
        """Whether all weights are numbers."""
        return all(bool(weight.isfinite().all()) for weight in self.networks.parameters())

    def tensors(self) -> dict[str, Tensor]:
        """The state as named tensors, for a checkpoint."""
        state = self.live()
        # the file itself may be lost or edited until the run resumes
        state["metrics"] = torch.frombuffer(bytearray(self.log.content()), dtype=torch.uint8)
        for name, tensor in (self.best or {}).items():
            state[f"best.{name}"] = tensor
        state["random.method"] = self.generator.get_state()
        state["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            state["random.cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Set the state to a saved one, and the log to the rows that it has."""
        rows = checkpoint.parse_rows(saved["metrics"].numpy().tobytes())
        if self.best is not None:
            update.restore(self.best, _without_prefix(saved, "best."))
        beside = ("metrics", "best.", "random.")
        live = {name: saved[name] for name in saved if not name.startswith(beside)}
        update.restore(self.live(), live)
        self.generator.set_state(saved["random.method"])
        torch.set_rng_state(saved["random.cpu"])
        if self.device.type == "cuda" and "random.cuda" in saved:
            torch.cuda.set_rng_state(saved["random.cuda"], self.device)
        self.log.resume(rows)


def _without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    named = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            named[name.removeprefix(prefix)] = tensor
    return named


class Checkpoints:
    """The checkpoints of a run.

    Parameters
    ----------
    folder : Path, optional
        Folder of the run. Without it nothing is saved or resumed.
    steps : int
        Steps of an epoch.
    writes : bool
        Whether this process writes: of several that train together, one does.
    """

    def __init__(self, folder: Path | None, *, steps: int, writes: bool) -> None:
        self.folder = folder
        self.steps = steps
        self.writer: checkpoint.CheckpointWriter | None = None
        if folder is not None and writes:
            self.writer = checkpoint.CheckpointWriter(folder / "checkpoints")

    def resume(self, state: TrainingState) -> Position | None:
        """Restore the latest checkpoint; None, with an empty log, if there is none."""
        saved = None
        if self.folder is not None:
            saved = checkpoint.latest(self.folder / "checkpoints")
        if saved is None:
            state.log.resume([])
            return None
        tensors, meta = saved
        try:
            position = Position(int(meta["epoch"]), int(meta["step"]))
            state.restore(tensors)
        except (KeyError, TypeError, ValueError, RuntimeError) as problem:  # its checksum is right
            raise SrjtError(
                f"The checkpoint in {self.folder} is not from this version of srjt ({problem}):"
                " choose another ",
                Option("out"),
                ".",
                code="other_version",
            ) from None
        return position

    def save(self, state: TrainingState, position: Position) -> None:
        """Begin to write the state; ``wait`` returns when it is written."""
        if self.writer is not None:
            state.log.sync()
            number = (position.epoch - 1) * self.steps + position.step
            self.writer.save(state.tensors(), position._asdict(), step=number)

    @property
    def busy(self) -> bool:
        """Whether the checkpoint before is still being written."""
        return self.writer is not None and self.writer.busy

    def wait(self) -> None:
        """Until the latest checkpoint is written."""
        if self.writer is not None:
            self.writer.wait()
