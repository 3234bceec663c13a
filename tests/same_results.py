"""Are results equal to the bit before and after a change of the code?

    git worktree add /tmp/before COMMIT
    python tests/same_results.py --source /tmp/before/src --out before.json
    python tests/same_results.py --source src --compare before.json

It runs ``srjt`` of each source on the same synthetic data: four small trainings (images by two
methods, features with two networks, several readers), predictions, an evaluation, a comparison, a
study, an audit and a readers' folder. Written down is what they computed: a digest of each weight,
and every number of the tables and JSON files. Dates, durations, checksums and sentences are left
out. About two minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from safetensors.numpy import load_file

# what differs from run to run
LEFT_OUT = ("second", "memory", "sha", "hash", "seal", "version", "started", "finished", "time")

SMALL = "--device cpu --epochs 3 --batch-size 16 -q"
IMAGES = f"--network tiny --image-size 32 --crop 28 {SMALL}"
COMMANDS = f"""
train labels.csv --out run --fold 0 --noise-rate auto {IMAGES}
train features.npz --out features --fold 0 --method co-teaching+ours --noise-rate 0.3 {SMALL}
train readings.csv --out several --fold 0 --several-readings consensus {IMAGES}
predict run labels.csv --out predictions.csv --coverage 0.9 --abstain 0.1 --refer-from 2
evaluate run labels.csv --fold 0 --out evaluation.json --coverage 0.8 --refer-from 2 --by site
train labels.csv --out plain --fold 0 --method standard {IMAGES}
compare run plain --out comparison.json
study features.npz --out study --methods standard --methods co-teaching+ours --noise quasi:0.3 \
--folds 3 {SMALL}
audit labels.csv --out audit --folds 3 {IMAGES}
readers readings.csv --out readers
"""


def write_data(folder: Path) -> None:
    """Blobs whose size is the grade, a fifth of the labels wrong by one grade, three readers."""
    random = np.random.default_rng(0)
    true = np.repeat(np.arange(4), 36)
    shift = random.choice([-1, 1], size=len(true)) * (random.random(len(true)) < 0.2)
    labels = np.clip(true + shift, 0, 3)
    distance = np.hypot(*np.meshgrid(np.arange(32) - 16.0, np.arange(32) - 16.0))
    (folder / "images").mkdir()
    names = []
    for row, grade in enumerate(true):
        size = 4.0 + 2.5 * grade + random.normal(0.0, 0.8)
        pixels = 180.0 * (distance < size) + random.normal(40.0, 15.0, distance.shape)
        names.append(f"{row:03d}.png")
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert("RGB")
        image.save(folder / "images" / names[-1])
    patients = [f"p{row // 2}" for row in range(len(true))]
    table = pd.DataFrame({"image": names, "grade": labels, "patient": patients})
    table["site"] = np.where(np.arange(len(true)) % 3 == 0, "north", "south")
    table.to_csv(folder / "labels.csv", index=False)
    readings = []
    for reader in "abc":
        error = random.choice([-1, 0, 0, 0, 0, 1], size=len(true))
        readings.append(table.assign(grade=np.clip(true + error, 0, 3), reader=reader))
    pd.concat(readings).to_csv(folder / "readings.csv", index=False)
    features = np.eye(4)[true] @ random.normal(size=(4, 12)) + random.normal(size=(len(true), 12))
    np.savez(
        folder / "features.npz",
        features=features.astype(np.float32),
        grade=labels,
        patient=np.array(patients),
    )


def run_all(source: Path, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    environment |= {"SRJT_CACHE": str(folder / "cache"), "SRJT_OFFLINE": "1"}
    for command in COMMANDS.strip().replace("\\\n", "").splitlines():
        print(f"srjt {command}", flush=True)
        words = [sys.executable, "-m", "srjt", *command.split()]
        subprocess.run(words, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def numbers_in(value: Any, name: str = "") -> Iterator[tuple[str, float | bool | None]]:
    """Every number of a JSON file, with its place."""
    if any(part in name.lower() for part in LEFT_OUT):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(inner, f"{name}/{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from numbers_in(inner, f"{name}/{place}")
    elif not isinstance(value, str):
        yield name, value


def results_in(folder: Path) -> dict[str, Any]:
    """Weights as digests, tables and JSON files as their numbers. Key: the file and the place."""
    results: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if name.startswith("cache") or "checkpoint" in name:
            continue
        if file.suffix == ".safetensors":
            for key, tensor in load_file(file).items():
                results[f"{name}:{key}"] = hashlib.sha256(tensor.tobytes()).hexdigest()[:16]
        elif file.suffix == ".json":
            for place, number in numbers_in(json.loads(file.read_text(encoding="utf-8"))):
                results[f"{name}:{place}"] = number
        elif file.suffix == ".csv":
            table = pd.read_csv(file, dtype=str, keep_default_na=False)
            kept = table
            if "metric" in table:  # speed and memory are rows of metrics.csv
                timed = table["metric"].str.contains("second|memory")
                kept = table[~timed]
            for column in kept:
                if not any(part in column.lower() for part in LEFT_OUT):
                    cells = kept[column].str.replace(str(folder), "", regex=False)
                    results[f"{name}:{column}"] = cells.tolist()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--compare", type=Path, help="JSON file of other results")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        run_all(args.source, folder)
        results = json.loads(json.dumps(results_in(folder)))
    if args.out:
        args.out.write_text(json.dumps(results, indent=0), encoding="utf-8")
    if args.compare:
        before = json.loads(args.compare.read_text(encoding="utf-8"))
        different = [key for key in before if key in results and results[key] != before[key]]
        for title, keys in (
            ("gone", before.keys() - results.keys()),
            ("new", results.keys() - before.keys()),
            ("different", different),
        ):
            print(f"{len(keys)} {title}")
            files = Counter(key.partition(":")[0] for key in keys)
            for file, count in sorted(files.items()):
                first = min(key for key in keys if key.startswith(f"{file}:"))
                print(f"  {count:5} in {first} …")
        print(f"{len(before.keys() & results.keys()) - len(different)} equal")
        sys.exit(bool(different))


if __name__ == "__main__":
    main()
