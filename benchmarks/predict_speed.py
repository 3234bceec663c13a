"""``srjt predict`` and ``srjt features`` on image files, against the bare network on tensors in
memory.

    python benchmarks/predict_speed.py                        # ResNet-18, 224 px, a few minutes on two cores
    python benchmarks/predict_speed.py --threads 1 --images 64
    python benchmarks/predict_speed.py --batches              # the bare network by batch size
    python benchmarks/predict_speed.py --int8                 # also ONNX Runtime in float32 and INT8
    python benchmarks/predict_speed.py --device cuda --images 10000     # on a GPU: pixels in memory, then files

The bare network does nothing but forward passes, in the same setting. Our time includes reading the
folder, decoding, the store on disk, cropping, and the table or the file of features. The programs
alternate. Beside the clock's ratio stands that of CPU seconds, which other programs on the machine
disturb less.

Expected: at least 0.9 for both; with fewer than 100 images, building the network weighs more. On a
GPU 0.87 for pixels in memory, more for more images; files as fast as the cores decode them.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import srjt
from srjt.data.grades import Grades
from srjt.data.sources.folders import read_images
from srjt.data.synthetic import generate
from srjt.inference.embed import embed
from srjt.process import cores
from srjt.training.batches import Preprocess
from srjt.training.config import TrainConfig
from srjt.training.devices import (
    amp_dtype,
    channels_last,
    choose_device,
    device_name,
)
from srjt.training.folder import DataFacts, RunFacts
from srjt.training.trained import Setup, Trained, build_method, build_networks, ready_to_compute

CROP, BATCH, GRADES = 224, 32, ("0", "1", "2", "3")


def untrained() -> Trained:
    """A run with random weights, which take as long as others."""
    config = TrainConfig(method="sord", network="resnet18", pretrained=False, crop=CROP)
    method = build_method(config, num_classes=len(GRADES))
    networks = build_networks(config, method, in_shape=(3, CROP, CROP), with_weights=False)
    facts = RunFacts(config=config, grades=Grades(GRADES), data=DataFacts(in_shape=[3, CROP, CROP]))
    return ready_to_compute(networks.eval(), method, facts, Setup(device="cpu"))


def timed(program: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), sum(os.times()[:4])  # also of processes that have ended
    program()
    return time.perf_counter() - wall, sum(os.times()[:4]) - cpu


def compare(programs: dict[str, Callable[[], object]], *, repeats: int, images: int) -> None:
    """The first program is what the others are compared with."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            times[name].append(timed(program))
    medians = {
        name: [statistics.median(column) for column in zip(*t, strict=True)]
        for name, t in times.items()
    }
    wall0, cpu0 = next(iter(medians.values()))
    for name, (wall, cpu) in medians.items():
        print(
            f"  {name:36}{images / wall:8.1f} img/s {wall0 / wall:6.2f}   of CPU seconds {cpu0 / cpu:6.2f}"
        )


def forward(run: Trained, x: Tensor, *, size: int = BATCH) -> None:
    with torch.inference_mode():
        for part in x.split(size):
            run.networks(part)


def as_input(run: Trained, x: Tensor) -> Tensor:
    layout = torch.channels_last if run.preprocess.channels_last else torch.contiguous_format
    return x.contiguous(memory_format=layout)


def commands(run: Trained, x: Tensor, *, images: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "images"
        folder.mkdir()
        for number, pixels in enumerate(
            generate(images=images, patients=images, size=256, seed=0).arrays
        ):
            Image.fromarray(pixels).resize((480, 360)).save(
                folder / f"{number:05d}.jpg", quality=90
            )
        fresh = (f"{name}/cache{i}" for i in range(1000))  # nothing decoded or computed is reused

        def predict() -> None:
            os.environ["SRJT_CACHE"] = next(fresh)
            srjt.predict(run, folder)

        def features() -> None:
            cache = next(fresh)
            manifest = read_images([folder], grades=GRADES)
            embed(
                manifest,
                backbone="resnet18",
                pretrained=False,
                batch_size=BATCH,
                cache=cache,
                device="cpu",
            )

        programs = {
            "bare network": lambda: forward(run, as_input(run, x)),
            "srjt.predict": predict,
            "srjt features": features,
        }
        forward(run, as_input(run, x[:BATCH]))
        compare(programs, repeats=repeats, images=images)


def on_device(device: torch.device, *, images: int, repeats: int) -> None:
    """Pixels in memory against the bare network on tensors that are on the device, files against
    plain decoding."""
    plain = untrained()
    amp = amp_dtype(plain.config, device)
    preprocess = Preprocess(crop=CROP, dtype=amp or torch.float32, channels_last=True)
    networks = channels_last(plain.networks.to(device))
    run = replace(
        plain,
        networks=networks,
        method=plain.method.to(device),
        preprocess=preprocess,
        device=device,
    )
    size = run.config.image_size
    few = generate(images=min(images, 500), patients=min(images, 500), size=size, seed=0).arrays
    assert few is not None
    pixels = np.ascontiguousarray(few[np.arange(images) % len(few)])
    shape = (images, 3, CROP, CROP)
    x = torch.empty(
        shape, dtype=preprocess.dtype, device=device, memory_format=torch.channels_last
    ).normal_()

    def bare() -> None:
        with (
            torch.inference_mode(),
            torch.autocast(device.type, amp or torch.bfloat16, enabled=amp is not None),
        ):
            torch.cat(
                [networks(part)[0] for part in x.split(run.config.eval_batch_size)]
            ).float().cpu()

    def decode(path: Path) -> None:
        with Image.open(path) as image:
            np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(min(32, cores())) as pool:
        folder = Path(name) / "images"
        folder.mkdir()
        for number in range(images):
            copied = folder / f"{number % len(few):05d}-0.jpg"
            if number < len(few):
                Image.fromarray(few[number]).resize((480, 360)).save(copied, quality=90)
            else:
                shutil.copyfile(
                    copied, folder / f"{number % len(few):05d}-{number // len(few)}.jpg"
                )
        paths = sorted(folder.iterdir())
        fresh = (f"{name}/cache{i}" for i in range(1000))

        def predict(*, again: bool) -> None:
            os.environ["SRJT_CACHE"] = f"{name}/again" if again else next(fresh)
            srjt.predict(run, folder)

        bare()
        run.probabilities(pixels[:BATCH])
        predict(again=True)
        programs: dict[str, Callable[[], object]] = {"bare network": bare}
        programs["pixels in memory"] = lambda: run.probabilities(pixels)
        compare(programs, repeats=repeats, images=images)
        print("files, against a plain Pillow loop in as many threads:")
        programs = {"plain decoding": lambda: list(pool.map(decode, paths))}
        programs["srjt.predict"] = lambda: predict(again=False)
        programs["srjt.predict, decoded before"] = lambda: predict(again=True)
        compare(programs, repeats=repeats, images=images)


def batches(run: Trained, x: Tensor, *, repeats: int) -> None:
    sizes = {f"batches of {size}": size for size in (BATCH, 8, 16, 64, 128)}
    x = as_input(run, x)
    compare(
        {name: lambda size=size: forward(run, x, size=size) for name, size in sizes.items()},
        repeats=repeats,
        images=len(x),
    )


def int8(run: Trained, x: Tensor, *, repeats: int, threads: int) -> None:
    """ONNX Runtime in float32, and with static quantisation (per channel, calibrated on random
    images)."""
    import onnxruntime
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantType,
        quant_pre_process,
        quantize_static,
    )

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter([{"x": x[:BATCH].numpy()}])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    def session(path: str) -> Callable[[], None]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        opened = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda: [opened.run(None, {"x": part.numpy()}) for part in x.split(BATCH)] and None

    network: nn.Module = run.networks.members[0]
    plain = nn.Module.to(network, memory_format=torch.contiguous_format)
    with tempfile.TemporaryDirectory() as name:
        exact, prepared, rounded = (
            f"{name}/{part}.onnx" for part in ("exact", "prepared", "rounded")
        )
        torch.onnx.export(
            plain, (x[:BATCH],), exact, opset_version=18, dynamo=False, input_names=["x"]
        )
        quant_pre_process(exact, prepared)
        # unsigned activations: x86 has instructions for unsigned × signed bytes
        quantize_static(
            prepared, rounded, Reader(), per_channel=True, activation_type=QuantType.QUInt8
        )
        compare(
            {
                "bare network, float32": lambda: forward(run, as_input(run, x)),
                f"ONNX Runtime {onnxruntime.__version__}, float32": session(exact),
                "ONNX Runtime, INT8": session(rounded),
            },
            repeats=repeats,
            images=len(x),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--batches", action="store_true", help="only the bare network, by batch size"
    )
    parser.add_argument(
        "--int8", action="store_true", help="only the networks, with ONNX Runtime's INT8"
    )
    parser.add_argument("--device", default="cpu", help="cuda: prediction on a GPU")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.device != "cpu":
        device = choose_device(given.device)
        print(
            f"srjt {srjt.__version__}, torch {torch.__version__}, {device_name(device)}, {cores()} cores"
        )
        on_device(device, images=given.images, repeats=given.repeats)
        return
    run = untrained()
    print(
        f"srjt {srjt.__version__}, torch {torch.__version__}, {platform.machine()}, "
        f"{torch.backends.cpu.get_cpu_capability()}, {given.threads} threads, load {os.getloadavg()[0]:.1f}, "
        f"{given.images} images; medians of {given.repeats}"
    )
    count = given.images // BATCH * BATCH or given.images
    x = torch.randn(count, 3, CROP, CROP, generator=torch.Generator().manual_seed(0))
    if given.batches:
        batches(run, x, repeats=given.repeats)
    elif given.int8:
        int8(run, x, repeats=given.repeats, threads=given.threads)
    else:
        commands(run, x, images=count, repeats=given.repeats)


if __name__ == "__main__":
    main()
