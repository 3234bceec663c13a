"""Where and how a training computes: the device, the precision and torch's flags, the kernels of a
CPU, compiled networks, and several processes that share a batch.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from srjt.errors import Option, SrjtError, warn
from srjt.text import count_of
from srjt.training.config import TrainConfig

# The one or two networks of a method as one module.


class StackedNetworks(nn.Module):
    """K networks that process the same batch: (B, …) → (K, B, C).

    trunk: a frozen network that makes features (B, F) of images for all K. Where these have been
    computed already, the batch has the shape (B, F), and the trunk is left out.

    On a GPU each network may run on its own stream: at batch 64 one network does not use the whole
    GPU. Autograd runs each backward pass on the stream of its forward pass.
    """

    def __init__(self, members: Sequence[nn.Module], *, trunk: nn.Module | None = None) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.trunk = None if trunk is None else trunk.requires_grad_(False)
        self.streams: list[torch.cuda.Stream] = []
        # torch.compile of each member; they share its parameters
        self.compiled: list[Callable[[Tensor], Tensor]] = []

    def train(self, mode: bool = True) -> StackedNetworks:
        super().train(mode)
        if self.trunk is not None:
            self.trunk.eval()  # the statistics of its batch norms stay those of its own training
        return self

    @property
    def whole(self) -> list[nn.Module]:
        """Each network from its input to its logits."""
        if self.trunk is None:
            return list(self.members)
        return [nn.Sequential(self.trunk, member) for member in self.members]

    def features(self, x: Tensor) -> Tensor:
        """(B, …) → (B, F): the input of the last layer of the first network."""
        backbone = self.members[0].backbone
        assert isinstance(backbone, nn.Module)
        features: Tensor = backbone(self.as_rows(x))
        return features

    def as_rows(self, x: Tensor) -> Tensor:
        """Images (B, 3, H, W) → the features (B, F) of the trunk; what has another shape, or no
        trunk, is unchanged."""
        if self.trunk is None or x.ndim != 4:
            return x
        rows: Tensor = self.trunk(x)
        return rows

    def forward(self, x: Tensor) -> Tensor:
        x = self.as_rows(x)
        networks = self.compiled or list(self.members)
        if not self.streams:
            return torch.stack([network(x) for network in networks])
        current = torch.cuda.current_stream()
        outputs = []
        for network, stream in zip(networks, self.streams, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                x.record_stream(stream)
                outputs.append(network(x))
        for output, stream in zip(outputs, self.streams, strict=True):
            current.wait_stream(stream)
            output.record_stream(current)
        return torch.stack(outputs)


# Device, precision and torch's process-wide flags, from the configuration and the machine.


def choose_device(requested: str | None = None) -> torch.device:
    """The requested device; by default the GPU of this process if there is one, else the CPU."""
    if requested is None:
        requested = (
            f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
        )
    device = None
    with contextlib.suppress(RuntimeError, ValueError, TypeError, OverflowError):
        device = torch.device(requested)
    # torch knows others, which compute nothing or are not tested
    if device is None or device.type not in ("cpu", "cuda"):
        raise SrjtError(
            f"Unknown device {requested!r}: use cpu, cuda or cuda:N.",
            code="unknown_name",
            option="device",
        )
    if device.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SrjtError(
            f"torch finds no GPU on this machine for {requested!r}: use ",
            Option("device", "cpu"),
            ".",
            code="no_gpu",
        )
    if (device.index or 0) >= torch.cuda.device_count():
        raise SrjtError(
            f"There is no GPU number {device.index}: there are {torch.cuda.device_count()}.",
            code="no_gpu",
            option="device",
        )
    return torch.device("cuda", device.index or 0)


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return count_of(torch.get_num_threads(), "CPU thread")


def amp_dtype(config: TrainConfig, device: torch.device) -> torch.dtype | None:
    """bfloat16 if the forward pass runs in it, on a GPU; None for float32, as always on a CPU."""
    if device.type != "cuda":
        return None
    auto = config.precision == "auto" and torch.cuda.is_bf16_supported()
    if auto or config.precision == "bf16":
        return torch.bfloat16
    return None


def refuse_bf16_on_cpu(precision: str | None, device: torch.device) -> None:
    if precision == "bf16" and device.type == "cpu":
        raise SrjtError(
            Option("precision", "bf16"),
            " is for a GPU: most CPUs are slower with it. Use ",
            Option("precision", "fp32"),
            " on a CPU.",
            code="unsupported",
        )


@contextlib.contextmanager
def torch_flags(
    config: TrainConfig, device: torch.device, *, training: bool = True
) -> Iterator[None]:
    """Set torch's process-wide flags as the configuration requests, and restore them afterwards.

    A GPU stays the current one. Deterministic algorithms are for ``training``: in a process that
    has used the GPU before, they may no longer be possible. cuDNN's benchmark mode is off: on an
    H200 it took 2 seconds for a ResNet-18 and 20 to 33 for an EfficientNet-Lite0, in every process,
    and trained 0.5 % faster and no faster.
    """
    cudnn = torch.backends.cudnn
    before = (cudnn.benchmark, cudnn.deterministic)
    mode = torch.get_deterministic_debug_mode()
    tf32 = None
    if device.type == "cuda":
        torch.cuda.set_device(device)
        cudnn.benchmark = False
        # an error if the user has chosen by torch's newer settings, which then stay: torch does not
        # allow both kinds
        with contextlib.suppress(RuntimeError):
            tf32 = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    if tf32 is not None:  # whether matrix products and convolutions may round
        torch.set_float32_matmul_precision("highest" if config.precision == "fp32" else "high")
        cudnn.allow_tf32 = config.precision != "fp32"
    if config.deterministic:
        cudnn.deterministic = True
    if config.deterministic and training:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as problem:
        if "does not have a deterministic implementation" in str(problem):
            operation = str(problem).split(" ")[0]
            raise SrjtError(
                f"This network uses {operation}, which has no deterministic version on a GPU:"
                " choose another network, or choose ",
                Option("deterministic", False),
                ".",
                code="unsupported",
            ) from None
        raise
    finally:
        if tf32 is not None:
            torch.set_float32_matmul_precision(tf32[0])
            cudnn.allow_tf32 = tf32[1]
        cudnn.benchmark, cudnn.deterministic = before
        if (
            torch.get_deterministic_debug_mode() != mode
        ):  # the call imports the compiler, for seconds
            torch.use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


# How a network runs on a CPU: fixed per processor and kind of network, so that a run has the same
# bits whichever command computes it. Measured with benchmarks/cpu_training.py.

ARM = platform.machine() in ("aarch64", "arm64")


def uses_channels_last(
    network: nn.Module, device: torch.device, *, own_network: bool = False, frozen: bool = False
) -> bool:
    """Whether the network and its images are laid out as channels last: always on a GPU.

    On a CPU a network of the user's own is not, because it may call ``view``; nor, on ARM, one with
    grouped convolutions, such as an EfficientNet, which then trains 0.7 times as fast. If it is
    ``frozen``, and only forward passes are computed, it is 1.3 to 1.6 times as fast with channels
    last.
    """
    return device.type == "cuda" or not (
        own_network or (ARM and not frozen and _is_grouped(network))
    )


@contextlib.contextmanager
def backward_kernels(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Run a backward pass with the kernels that are fastest: on an ARM CPU torch's own, not
    oneDNN's.

    On two ARM cores, with images as channels last, a ResNet-18 then trains three times as fast as
    by torch's default and ``tiny`` 1.1 to 1.4 times, but a network with grouped convolutions half
    as fast. Forward passes keep oneDNN, which is up to twice as fast.
    """
    mkldnn = torch.backends.mkldnn
    if device.type != "cpu" or not ARM or not mkldnn.enabled or _is_grouped(network):
        yield
        return
    mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        mkldnn.enabled = True  # type: ignore[assignment]


def _is_grouped(network: nn.Module) -> bool:
    return any(getattr(module, "groups", 1) != 1 for module in network.modules())


def channels_last(module: nn.Module) -> nn.Module:
    """Convert a module's convolution weights to the channels-last layout, in place."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


# Compile networks: once for all networks of the same structure; torch keeps the code on disk for
# later processes.

# Batch shapes for which torch compiles a network; by default 8, but a worker evaluates sides of up
# to 16 sizes.
SHAPES = 64

# Without these steps the set-up of a ResNet-18 takes a third less time on an H200, and it trains as
# fast. They time several variants of simple kernels, search for patterns such as attention, pad
# matrices, and divide the code into parts for CUDA graphs, which we capture ourselves.
LEFT_OUT: dict[str, str | int | bool | Callable[..., object]] = {
    "triton.autotune_pointwise": False,
    "pattern_matcher": False,
    "shape_padding": False,
    "graph_partition": False,
}

# what this process has compiled: the structure of the networks and their batch size
_compiled: set[str] = set()


def compile_networks(networks: StackedNetworks, *, batch_size: int) -> None:
    """Compile each network; without a working compiler the networks run as they are.

    Networks of the same structure share the compiled code: the two of a method, and those of later
    trainings in this process. Code for other networks is dropped, because torch compiles a function
    a limited number of times and then runs it as it is. Shapes are static: if dynamic ones were
    allowed, the code, and so the last bits of a result, would depend on the shapes that an earlier
    training in this process had.
    """
    made_for = f"{networks.members[0]}\0{batch_size}"
    if _compiled and made_for not in _compiled:
        torch.compiler.reset()
        _compiled.clear()
    _compiled.add(made_for)
    try:
        networks.compiled = [_compile(member) for member in networks.members]
    except RuntimeError as problem:
        warn(
            f"torch.compile is not available ({str(problem).splitlines()[0]}); training without it."
        )


def _compile(network: nn.Module) -> Callable[[Tensor], Tensor]:
    compiled: Callable[[Tensor], Tensor] = torch.compile(network, dynamic=False, options=LEFT_OUT)

    def forward(x: Tensor) -> Tensor:
        with torch._dynamo.config.patch(recompile_limit=SHAPES):
            return compiled(x)

    return forward


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Compiling makes millions of objects that stay: to search them for garbage took 8 % of its
    time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Several processes share one batch: N processes with B/N samples each select what one process with
# B would.
#
# Under ``torchrun`` every process computes the logits of its part of the batch. The parts are
# gathered, the (pure) method sees the global batch, and gradients flow through each process's own
# part. Every process draws the same plan of an epoch (it follows from the seed), so that only
# logits and targets are sent: a few hundred numbers.


@dataclass(frozen=True, kw_only=True)
class Process:
    """This process among ``world_size``; by default the only one."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0

    def part(self, batch_size: int) -> slice:
        """The columns of each batch that this process works on."""
        if batch_size % self.world_size:
            raise SrjtError(
                f"A batch of {batch_size} cannot be shared evenly by {self.world_size} processes:"
                " change ",
                Option("batch_size"),
                ".",
                code="conflict",
            )
        share = batch_size // self.world_size
        return slice(self.rank * share, (self.rank + 1) * share)

    def distribute(self, networks: StackedNetworks, *, sync_batchnorm: bool) -> nn.Module:
        """The networks with gradients averaged over processes, and with common batch statistics if
        requested."""
        if self.world_size == 1:
            return networks
        device = next(networks.parameters()).device
        if sync_batchnorm and device.type != "cuda":
            raise SrjtError(
                Option("sync_batchnorm"), " works on GPUs only: leave it out.", code="no_gpu"
            )
        wrapped = nn.SyncBatchNorm.convert_sync_batchnorm(networks) if sync_batchnorm else networks
        ids = [device.index] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(wrapped, device_ids=ids)

    def gather(self, part: Tensor, *, dim: int) -> Tensor:
        """(…, B/N, …) → (…, B, …); the gradient flows through this process's own part."""
        parts = [torch.empty_like(part) for _ in range(self.world_size)]
        dist.all_gather(parts, part.detach().contiguous())
        parts[self.rank] = part
        return torch.cat(parts, dim=dim)

    def sum(self, counts: Tensor) -> Tensor:
        """The sum over processes."""
        if self.world_size > 1:
            dist.all_reduce(counts)
        return counts

    def agree_on_signal(self, signal: int) -> int:
        """The largest signal number that any process has received: all processes stop together."""
        if self.world_size == 1:
            return signal
        number = torch.tensor(signal, device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(number, op=dist.ReduceOp.MAX)
        return int(number)


def join_process_group(device: torch.device) -> Process:
    """This process's rank as set by ``torchrun``; without ``torchrun`` the only process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Process()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Process(rank=dist.get_rank(), world_size=dist.get_world_size())
