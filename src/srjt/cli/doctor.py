"""``srjt doctor``, ``srjt methods`` and ``srjt weights``: what is installed, what is missing, and
what to choose from. Loads neither torch nor rich before it must, so that it answers at once.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import tempfile
import textwrap
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import typer

from srjt._version import __version__
from srjt.cli import SUMMARIES, App, check_outputs, print_line
from srjt.cli.options import Force, Import, option
from srjt.errors import SrjtError, count_of, requirements_of
from srjt.methods import RegisteredMethod, lookup, names
from srjt.networks import registry

# ``srjt doctor``: what is installed, what is missing, and what to do about it.

# What each extra is for. Those for developers (dev, docs, benchmarks) are not listed.
EXTRAS = {
    **registry.extras(),
    "dicom": "DICOM files",
    "highdicom": "predict --format dicom-sr",
    "fiftyone": "results in FiftyOne",
    "parquet": "Parquet tables",
    "excel": "Excel tables",
    "tensorboard": "train --log tensorboard",
    "mlflow": "train --log mlflow",
    "wandb": "train --log wandb",
    "ray": "studies on a cluster",
    "onnx": "export to ONNX",
    "hub": "runs on the Hugging Face Hub",
}


TESTED = {"torch": "2.13"}  # the newest, as in constraints.txt; others may well work


class Package(NamedTuple):
    """A requirement and the version that is installed: None if there is none."""

    name: str
    requirement: str
    installed: str | None
    fits: bool

    @property
    def problem(self) -> str:
        """What is wrong with it, if it does not fit, and what to do."""
        state = "which is not installed"
        if self.installed:
            state = f"{self.installed} is installed"
        return f'{self.requirement} is needed, {state}: pip install "{self.requirement}"'


def doctor() -> None:
    """Check versions, devices, the cache and extras, and say how to install what is missing.

    The exit status is 1 if something that srjt needs is missing or does not work.
    """
    from rich.table import Table

    from srjt.console import Console

    required = [_installed(line) for line in requirements_of(None)]
    problems = [package.problem for package in required if not package.fits]
    devices, advice = _devices()
    advice = [*advice, *_untested(required)]
    folder, used, free, writable = _cache()
    if not writable:
        problems.append(
            f"The cache folder {folder} is not writable. Set SRJT_CACHE to another folder."
        )
    extras = Table("extra", "for", "to install it", box=None, padding=(0, 2, 0, 0))
    for name, purpose in EXTRAS.items():
        packages = [_installed(line) for line in requirements_of(name)]
        if packages and all(package.fits for package in packages):
            extras.add_row(name, purpose, "installed")
        elif packages:
            wanted = " ".join(f'"{package.requirement}"' for package in packages)
            extras.add_row(name, purpose, f"pip install {wanted}")

    console = Console(highlight=False, markup=False)
    system = platform.uname()
    console.print(
        f"srjt {__version__}, Python {platform.python_version()}, {system.system} {system.release},"
        f" {system.machine}"
    )
    versions = [f"{package.name} {package.installed or '–'}" for package in required]
    console.print(", ".join(versions) + "\n", style="dim")
    console.print(*devices, sep="\n")
    console.print(f"cache: {folder}, {_size(used)} used, {_size(free)} free\n")
    console.print(extras, "")
    for sentence in advice:
        console.print(sentence, style="yellow")
    for sentence in problems:
        console.print(sentence, style="red")
    if problems:
        console.print("Something that srjt needs is missing or does not work: see above.")
        raise typer.Exit(1)
    console.print("Everything that srjt needs is installed.")


def _installed(line: str) -> Package:
    """A requirement as ours are written: ``"numpy>=1.26"``, perhaps with an upper bound ``<3``."""
    parts = re.fullmatch(r"(?P<name>[\w.-]+)(?P<bounds>.*)", line.replace(" ", ""))
    assert parts is not None, line
    bounds = dict(re.findall(r"(>=|<)([\w.]+)", parts["bounds"]))
    try:
        version = metadata.version(parts["name"])
    except metadata.PackageNotFoundError:
        version = None
    fits = version is not None and _numbers(version) >= _numbers(bounds.get(">=", "0"))
    if version is not None and "<" in bounds:
        fits = fits and _numbers(version) < _numbers(bounds["<"])
    return Package(parts["name"], line, version, fits)


def _numbers(version: str) -> tuple[int, ...]:
    """ "2.13.0+cpu" → (2, 13, 0): the numbers of a release, which can be compared."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    if release is None:
        return ()
    return tuple(map(int, release[0].split(".")))


def _untested(required: list[Package]) -> list[str]:
    """A sentence for each package that is newer than what the tests were run with."""
    sentences = []
    for package in required:
        tested = TESTED.get(package.name)
        if tested is None or package.installed is None:
            continue
        if _numbers(package.installed)[:2] > _numbers(tested):
            sentences.append(
                f"{package.name} {package.installed} is newer than {tested}, the newest that srjt"
                " was tested with. If something fails, try"
                f' pip install "{package.name}<={tested}.999".'
            )
    return sentences


def _devices() -> tuple[list[str], list[str]]:
    """The devices that srjt can use, the one that it takes first, and advice about those that it
    cannot."""
    try:
        import torch
    except ImportError:  # named among the problems
        return [], []
    cores = count_of(os.cpu_count() or 1, "core")
    processor = f"cpu: {cores}, {count_of(torch.get_num_threads(), 'thread')}"
    if torch.cuda.is_available():
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
        named = []
        for k in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(k)
            named.append(f"cuda:{k}: {gpu.name}, {_size(gpu.total_memory)}, {bf16}")
        return [*named, processor], []
    if shutil.which("nvidia-smi") is None:
        return [processor], []
    why = (
        f"torch is built for CUDA {torch.version.cuda}, which the driver may not support. Update"
        " the driver"
    )
    if torch.version.cuda is None:
        why = f"torch {torch.__version__} is a build for CPUs. Install one for CUDA"
    return [processor], [f"There seems to be an NVIDIA GPU, but torch cannot use it: {why}."]


def _cache() -> tuple[Path, int, int, bool]:
    """The folder of the cache, its size and the free space in bytes, and whether it can be written
    to."""
    from srjt.files import cache_folder

    folder = cache_folder()
    existing = next(
        (path for path in [folder, *folder.absolute().parents] if path.is_dir()), Path("/")
    )
    try:
        with tempfile.TemporaryFile(dir=existing):
            writable = True
    except OSError:
        writable = False
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return folder, used, shutil.disk_usage(existing).free, writable


def _size(size: int) -> str:
    if size < 2**30:
        return f"{size / 2**20:.0f} MiB"
    return f"{size / 2**30:.1f} GiB"


# ``srjt weights``: pretrained weights, fetched where there is a connection, for machines that have
# none.


def list_() -> None:
    """List the networks with published weights, their size and licence, and where they are
    stored."""
    from srjt.networks.weights import cached_file

    print_line(f"{'name':20}{'MB':>5}  {'licence':14}{'pixels':>6}  here", bold=True)
    for row in map(registry.find, registry.names()):
        if (weights := row.weights) is None:
            continue
        path = cached_file(weights)
        trained = row.trained_input()
        size = "" if trained is None else str(trained.size)
        here = str(path) if path.is_file() else "no"
        print_line(f"{row.name:20}{weights.megabytes:>5}  {weights.licence:14}{size:>6}  {here}")
    print_line("The weights of timm:NAME are downloaded by timm itself.", dim=True)


def fetch(
    name: str = typer.Argument(
        metavar="NAME", help="A network of srjt weights list, such as efficientnet-lite0."
    ),
    out: Path | None = option(None, "Also copy the weights to this file."),
    force: Force = False,
    import_: Import = None,
) -> None:
    """Download the pretrained weights of a network, and check their SHA-256.

    They are stored in the cache, where all commands look for them. On a machine
    without a connection, give the file with --weights FILE, or copy it to the cache.
    """
    from srjt.files import write_output
    from srjt.networks.weights import fetch_published

    row = registry.find(name)
    if row.weights is None:
        known = [one for one in registry.names() if registry.find(one).weights is not None]
        raise SrjtError(
            f"{name} has no published weights. There are weights of {', '.join(known)}.",
            code="unsupported",
        )
    check_outputs(out, force=force)
    path = fetch_published(row.weights, advice="")
    if out is not None:
        write_output(out, path.read_bytes())
    print_line(
        f"{row.weights.address}\nLicence: {row.weights.licence}. SHA-256: {row.weights.sha256}.",
        dim=True,
    )
    print_line(f"The weights of {name} are in {path}.")
    usual = registry.find(registry.FROZEN[0]).weights
    backbone = f" --backbone {name}"
    if usual is not None and usual.sha256 == row.weights.sha256:
        backbone = ""  # the preset takes the best features that the file has
    file = shlex.quote(str(out or path))
    print_line(
        f"To use the file on another machine: srjt train labels.csv --preset cpu{backbone}"
        f" --weights {file} --out run"
    )


weights_app = App(list_, fetch, help=SUMMARIES["weights"])


# ``srjt methods``: what there is to choose from. Loads neither torch nor rich, so that it answers
# at once.

NEEDS = {"noise_rate": "ε", "transition": "P"}
LEGEND = """
needs ε  the share of wrong labels: --noise-rate 0.2, or auto
needs P  the matrix Pr(label | true grade): --transition FILE, or
         --noise-rate auto
scores   joint methods keep the samples of smallest score as clean.
         ℓ_h: loss of the label as given; ℓ_h1, ℓ_h2: of each network;
         τ: a temperature below 1, which sharpens it; D: how much the two
         networks disagree; λ: the weight of D
+ours    the paper's method, added to a joint method, which is called its
         host: jocor is the host of jocor+ours
"""


def methods(import_: Import = None) -> None:
    """List the methods, with the loss that each one learns from and the settings that it needs."""
    families: dict[str, list[RegisteredMethod]] = {}
    papers: dict[str, list[str]] = {}
    for row in map(lookup, names()):
        family = "Two networks"
        if row.networks == 1:
            family = "One network"
        elif row.defaults.get("update") == "soft":
            family = "Two, self-relaxed"
        families.setdefault(family, []).append(row)
        papers.setdefault(row.paper, []).append(row.name)
    longest = max(map(len, names()))
    print_line(f"{'name':{longest + 4}}needs   learns from", bold=True)
    for family, rows in families.items():
        print_line(f"\n{family}", bold=True)
        for row in rows:
            needs = () if row.recipe.noise_rate == "auto" else row.needs
            needed = ", ".join(NEEDS[name] for name in needs) or "–"
            start = f" {row.name:{longest + 3}}{needed:8}"
            print_line(_wrapped(start, row.updates))
            if row.scores != "–":
                print_line(_wrapped(" " * (len(start) + 2), f"scores: {row.scores}"), dim=True)
    notes = [LEGEND, *(f"{', '.join(theirs)}: {paper}" for paper, theirs in papers.items())]
    print_line("\n".join(notes), dim=True)


def _wrapped(start: str, text: str) -> str:
    """The text after ``start``; lines that do not fit into the terminal continue below it."""
    lines = textwrap.wrap(text, max(20, shutil.get_terminal_size().columns - len(start)))
    return start + f"\n{' ' * len(start)}".join(lines)
