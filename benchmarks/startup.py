"""How long ``srjt --help``, ``srjt methods`` and every command's help take, against importing typer
and rich alone.

    python benchmarks/startup.py

The programs alternate. Times are CPU seconds of each process, which other programs on the machine
disturb less than the clock does; none of these programs waits for anything. Expected: all below 2
(``srjt train --help``, the longest page, 1.5).
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version

import srjt
from srjt.cli import SUMMARIES

ALONE = ["-c", "import typer, rich"]
COMMANDS = [["--version"], ["--help"], ["methods"], *([name, "--help"] for name in SUMMARIES)]


def cpu_seconds(arguments: list[str], cache: str) -> float:
    """CPU seconds of one process. Byte code is kept in ``cache``, as it is beside an installed
    package."""
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    }
    environment["PYTHONPYCACHEPREFIX"] = cache
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    programs = {"import typer, rich": ALONE} | {
        " ".join(["srjt", *words]): ["-m", "srjt", *words] for words in COMMANDS
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as cache:
        for program in programs.values():
            cpu_seconds(program, cache)  # fills it
        for _ in range(repeats):
            for name, program in programs.items():
                seconds[name].append(cpu_seconds(program, cache))
    print(
        f"srjt {srjt.__version__}, Python {platform.python_version()}, typer {version('typer')}, "
        f"rich {version('rich')}, "
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"median of {repeats} runs"
    )
    alone = statistics.median(seconds["import typer, rich"])
    for name, times in seconds.items():
        print(
            f"{name:24}{1000 * statistics.median(times):6.0f} ms {statistics.median(times) / alone:6.2f}"
        )


if __name__ == "__main__":
    main()
