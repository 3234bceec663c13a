"""Where the time of a study goes, on one GPU or CPU. Every figure is a ratio within one run.

    python benchmarks/study_speed.py workers    # workers that stay against a process per run; share of training
    python benchmarks/study_speed.py share      # several trainings at once on one GPU against one alone
    python benchmarks/study_speed.py setup      # set-up of a long training: empty cache, filled cache, not compiled
    python benchmarks/study_speed.py folds      # the folds of an audit: one after the other, at the same time
    python benchmarks/study_speed.py plan       # the paper's 300 trainings on LIMUC: time on this device, and on eight

    python benchmarks/study_speed.py all        # all of them

Add --small for tiny sizes on a CPU. The study of ``workers`` has 44 runs: 11 methods, 2 noises, 2
folds, 4,956 images of 128 pixels, 20 epochs, EfficientNet-Lite0 (needs timm; --network chooses
another). With --runs and --epochs only a part of it is trained, and the time of the whole is
calculated from that part.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

import srjt
from srjt.cli.study import print_study_times
from srjt.data import Manifest, folds
from srjt.methods import lookup
from srjt.process import cores
from srjt.studies import study
from srjt.studies.config import StudyConfig
from srjt.studies.folder import write_plan
from srjt.studies.plan import StudyPlan, StudyWatcher, open_data
from srjt.studies.results import collect_results
from srjt.training.config import TrainConfig, load_preset
from srjt.training.crossfit import cross_fit
from srjt.training.devices import device_name
from srjt.training.trained import Setup
from srjt.training.workers import WorkerPool, _end

METHODS = (
    "standard", "sord", "label-smooth", "f-correction", "reweight", "mixup", "co-teaching", "co-teaching+ours",
    "jocor", "jocor+ours", "codis+ours",
)  # fmt: skip
LARGE = {"images": 4956, "patients": 500, "size": 128}
SMALL = {"images": 160, "patients": 32, "size": 32}
EPOCHS = 20
LIMUC = {"images": 11_276, "patients": 564, "mix": (0.541, 0.271, 0.111, 0.077)}


class ProcessPerRun(WorkerPool):
    """Never gives a worker a second task."""

    def submit(self, name: str, function: Any, *arguments: Any) -> None:
        for worker in self._workers:
            if worker.future is None:
                _end(worker)
        super().submit(name, function, *arguments)


KINDS = {"workers that stay": WorkerPool, "a process per run": ProcessPerRun}


def nothing(*, device: str | None) -> None:
    """A task."""


def study_config(args: argparse.Namespace) -> StudyConfig:
    if args.small:
        train = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 4, "batch_size": 16}
        methods: tuple[str, ...] = ("standard", "sord", "co-teaching+ours", "jocor")
    else:
        train = {
            "network": args.network,
            "image_size": 128,
            "crop": 112,
            "epochs": args.epochs,
            "batch_size": 64,
        }
        methods = METHODS
    return StudyConfig(
        source="synthetic",
        reading=SMALL if args.small else LARGE,
        methods=methods,
        noises=("quasi:0.2", "quasi:0.4"),
        folds=3 if args.small else 5,
        only_folds=(0,) if args.small else (0, 1),
        train={**train, "pretrained": False},
    )


def workers(args: argparse.Namespace) -> None:
    """Wall time, share of the slots' time that is training, and the runs with one and with two
    networks."""
    config = study_config(args)
    data = open_data(config)
    per_hour = {}
    with WorkerPool(devices=(None,), networks=(str(config.train["network"]),)) as pool:
        pool.submit("", nothing)  # imports torch for both
        while not pool.wait():
            pass
    for name, kind in KINDS.items():
        if args.only_stay and kind is not WorkerPool:
            break
        with tempfile.TemporaryDirectory() as scratch, mock.patch.object(study, "WorkerPool", kind):
            folder = Path(scratch) / "study"
            planned = write_plan(folder, data, command="benchmark")
            whole = len(planned)
            if args.runs is not None:  # spread over all methods
                planned = [
                    planned[i] for i in np.linspace(0, whole - 1, args.runs).round().astype(int)
                ]
            devices, threads = study.choose_devices(jobs=args.jobs, device=args.device)
            start = time.perf_counter()
            execute = partial(study.run_locally, devices=devices, threads=threads)
            outcome = study.train_runs(folder, planned, execute, watcher=StudyWatcher())
            wall = time.perf_counter() - start
            if set(outcome.values()) != {"done"}:
                raise SystemExit(f"{name}: some runs failed: {outcome}")
            found = collect_results(folder)
            runs = found.runs[found.runs["status"] == "done"]
            epochs = pd.concat([pd.read_csv(file) for file in folder.glob("runs/**/metrics.csv")])
        per_hour[name] = 3600 * len(runs) / wall
        networks = runs["method"].map(lambda method: lookup(method).networks)
        by_networks = runs.groupby(networks)["seconds"].mean()
        slot_seconds = wall * len(devices)
        share = runs["seconds"].sum() / slot_seconds
        print(
            f"{name}: {len(runs)} runs, {len(devices)} at a time, {wall:.1f} s; training is {share:.0%} of the "
            f"slots' time; a run with one network {by_networks[1]:.2f} s, with two {by_networks[2]:.2f} s "
            f"(ratio {by_networks[2] / by_networks[1]:.2f})",
            flush=True,
        )
        epochs = epochs[(epochs["metric"] == "seconds") & (epochs["epoch"] > 1)]
        if not args.small and (args.epochs, len(runs)) != (EPOCHS, whole) and len(epochs):
            one = runs["seconds"].mean() + (EPOCHS - args.epochs) * epochs["value"].mean()
            other = (
                slot_seconds / len(runs) - runs["seconds"].mean()
            )  # start-up included, as if every run had it
            print(
                f"    calculated for {whole} runs of {EPOCHS} epochs: {whole * (one + other) / len(devices):.0f} "
                f"s; training {one / (one + other):.0%} ({one:.1f} s of training and {other:.1f} s else per run)",
                flush=True,
            )
    if args.only_stay:
        return
    print(
        f"ratio: workers that stay do {per_hour['workers that stay'] / per_hour['a process per run']:.2f} times as "
        f"many runs per hour ({per_hour['workers that stay']:.0f} and {per_hour['a process per run']:.0f})"
    )


def training(args: argparse.Namespace) -> tuple[Manifest, dict[str, Any]]:
    config = study_config(args)
    manifest = open_data(config).manifest  # generated once, then cached
    settings = dict(config.train)
    if args.small:
        settings["epochs"] = 20
    return manifest, {**settings, "method": args.method, "noise_rate": 0.2, "device": args.device}


def share(args: argparse.Namespace) -> None:
    """Images/s of several trainings at once, relative to one alone; they take turns on a GPU
    without NVIDIA's MPS."""
    if args.child:
        manifest, settings = training(args)
        srjt.train(manifest, **{**settings, "epochs": 2})  # what the first training initialises
        print("ready", flush=True)
        for _ in sys.stdin:
            trained = srjt.train(manifest, **settings)
            print(len(trained.history) * settings["epochs"], flush=True)
        return
    training(args)  # generates the images, once
    alone = None
    with contextlib.ExitStack() as stack:
        command = [sys.executable, __file__, *sys.argv[1:], "--child"]
        processes = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(args.jobs or 4)
        ]
        for process in processes:
            _read_line(process)
        for count in (1, 2, 4, 10):
            if count > len(processes):
                break
            start = time.perf_counter()
            rate = sum(_images(processes[:count])) / (time.perf_counter() - start)
            alone = alone or rate
            print(
                f"{count} at once: {rate:,.0f} images/s together, ratio {rate / alone:.2f}",
                flush=True,
            )
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


def _images(processes: list[subprocess.Popen[str]]) -> list[float]:
    """Let the processes train at the same time; the images that each has trained on."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [float(_read_line(process)) for process in processes]


def _read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise SystemExit("A process of this benchmark failed, see the error above.")
    return line


def setup(args: argparse.Namespace) -> None:
    """Seconds of a training beyond its epochs, in new processes."""
    if args.child:
        manifest, settings = training(args)
        start = time.perf_counter()
        trained = srjt.train(
            manifest, split=folds(manifest)[0], step=args.child, **{**settings, "epochs": 3}
        )
        took = time.perf_counter() - start
        print(
            json.dumps(
                {"setup": took - trained.metrics.query("metric == 'seconds'")["value"].sum()}
            )
        )
        return
    if not (torch.cuda.is_available() and args.device != "cpu"):
        print("On a CPU nothing is compiled or captured: these numbers say nothing about a GPU.")
    for name, child in (
        ("compiled, empty cache", "compiled"),
        ("compiled, filled cache", "compiled"),
        ("captured", "graph"),
    ):
        with _cache(empty="empty" in name) as folder:
            command = [sys.executable, __file__, *sys.argv[1:], "--child", child]
            environment = {**os.environ, "SRJT_CACHE": str(folder)}
            environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env=environment
            )
        print(
            f"{name}: {json.loads(done.stdout.splitlines()[-1])['setup']:.1f} s of set-up",
            flush=True,
        )


@contextlib.contextmanager
def _cache(*, empty: bool) -> Iterator[Path]:
    folder = Path(tempfile.gettempdir()) / "srjt-study-speed"
    if empty and folder.exists():
        subprocess.run(["rm", "-r", str(folder)], check=True)
    folder.mkdir(exist_ok=True)
    yield folder


def audit_folds(args: argparse.Namespace) -> None:
    """A cross-fit of four folds with all cores: one fold after the other, and one fold per core."""
    sizes = {"images": 120, "patients": 40, "size": 64}
    manifest = srjt.data.synthetic.generate(**sizes)
    network = "tiny" if args.small else "resnet18"
    config = TrainConfig(
        method="sord",
        network=network,
        pretrained=False,
        image_size=64,
        crop=56,
        epochs=3,
        batch_size=16,
    )
    seconds = {}
    for jobs in (1, cores()):
        with tempfile.TemporaryDirectory() as out:
            start = time.perf_counter()
            cross_fit(
                manifest,
                config=config,
                folds=4,
                out=Path(out),
                jobs=jobs,
                setup=Setup(device="cpu"),
            )
            seconds[jobs] = time.perf_counter() - start
            print(f"jobs={jobs}: {seconds[jobs]:.1f} s", flush=True)
    if len(seconds) > 1:
        print(f"ratio: {seconds[1] / seconds[cores()]:.2f} times as fast with one fold per core")


def plan(args: argparse.Namespace) -> None:
    """The time of the preset ``limuc`` on data of LIMUC's size; no image is read."""
    rng = np.random.default_rng(0)
    count = LIMUC["images"]
    names = [f"{row}.bmp" for row in range(count)]
    table = pd.DataFrame(
        {
            "id": names,
            "image": names,
            "patient": rng.integers(0, LIMUC["patients"], count).astype(str),
            "grade": rng.choice(4, count, p=LIMUC["mix"]),
        }
    )
    manifest = Manifest(table=table, grades=("0", "1", "2", "3"), duplicates=np.arange(count))
    settings = {**load_preset("limuc"), "source": "none"}
    config = StudyConfig.from_dict(
        {**settings, "train": {**settings["train"], "pretrained": False}}
    )
    data = StudyPlan(config, manifest, folds(manifest, folds=5, by="random"))
    print_study_times(data, list(data.planned_runs()), device=args.device)


def main() -> None:
    commands: dict[str, Callable[[argparse.Namespace], None]] = {
        "workers": workers,
        "share": share,
        "setup": setup,
        "folds": audit_folds,
        "plan": plan,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=[*commands, "all"])
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a CPU")
    parser.add_argument("--jobs", type=int, help="runs at a time per GPU, or on the CPU")
    parser.add_argument("--device")
    parser.add_argument("--network", default="timm:tf_efficientnet_lite0")
    parser.add_argument("--method", default="co-teaching+ours")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--runs", type=int, help="so many runs of the study only")
    parser.add_argument(
        "--only-stay", action="store_true", help="no process per run, to compare with"
    )
    parser.add_argument("--child", nargs="?", const="yes", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.child:
        device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
        print(
            f"{device_name(device)}, {cores()} cores (load {load:.1f}), torch {torch.__version__}, srjt "
            f"{srjt.__version__}, Python {platform.python_version()}",
            flush=True,
        )
    if args.command == "all":  # each in its own process
        for name in commands:
            print(f"\n{name}", flush=True)
            subprocess.run([sys.executable, __file__, name, *sys.argv[2:]], check=False)
    else:
        commands[args.command](args)


if __name__ == "__main__":
    main()
