"""Mutants of the statistics: one line is made wrong, and the test that is named has to fail.

    python tests/mutants.py            all of them, some minutes
    python tests/mutants.py holm ppi   those whose names contain one of these words

``mutants.txt`` lists them by the file under src/srjt and the file under tests: "name: test", the old text, the new
one. ``test_mutants.py`` checks that every old text still occurs exactly once, and that the tests exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    name: str
    file: str  # under src/srjt
    old: str
    new: str
    test: str  # under tests; it must fail


def read(text: str) -> list[Mutant]:
    mutants = []
    for block in text.strip().split("\n\n"):
        files, *lines = block.splitlines()
        file, test_file = files.split(" ")
        for about, old, new in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
            assert (old[:2], new[:2]) == ("- ", "+ "), about
            name, _, test = about.rpartition(": ")
            mutants.append(Mutant(name, file, old[2:], new[2:], f"{test_file}::{test}"))
    return mutants


MUTANTS = read(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))


def source(mutant: Mutant) -> Path:
    return Path("srjt", mutant.file)


def run(tests: set[str], *, src: Path) -> int:
    """pytest's exit code: 0 all pass, 1 a test fails; anything else is a mistake."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(f"tests/{test}" for test in sorted(tests))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(src)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    return done.returncode


def killed(mutant: Mutant) -> bool:
    """Whether the named test fails on a copy of the source with this one mutation."""
    with tempfile.TemporaryDirectory() as folder:
        src = Path(folder, "src")
        shutil.copytree(ROOT / "src", src)
        text = (src / source(mutant)).read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            print(f"{mutant.name}: the old text occurs {text.count(mutant.old)} times in {mutant.file}")
            return False
        (src / source(mutant)).write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        return run({mutant.test}, src=src) == 1


def main(words: list[str]) -> int:
    chosen = [one for one in MUTANTS if not words or any(word.lower() in one.name.lower() for word in words)]
    if not chosen:
        print(f"No mutant's name contains {' or '.join(words)}.")
        return 1
    if run({one.test for one in chosen}, src=ROOT / "src") != 0:
        print("The tests do not pass without a mutation.")
        return 1
    survivors = 0
    for mutant in chosen:
        dead = killed(mutant)
        survivors += not dead
        print(f"{'killed  ' if dead else 'SURVIVED'} {mutant.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
