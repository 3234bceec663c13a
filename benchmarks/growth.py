"""How time and memory grow with the data: 1, 10 and 100 times as many rows, images and runs.

    python benchmarks/growth.py                         # a few minutes on two cores
    python benchmarks/growth.py --only tables studies
    python benchmarks/growth.py --images 1000           # 1,000, 10,000 and 100,000 images

Tables hold features, or readings, to a million rows. Images are drawn, 32 pixels wide. Audits and
studies are fabricated from a few real runs. Every size is measured in a process of its own: CPU
seconds of the step without imports, and by how much the peak memory of the process grows. "× per
×10" compares a size with the one before it: 10 is linear, and everything above 12 is marked. What
should not grow with the data at all (one image of the review) stays near 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

GRADES = 4
EPOCHS = 30  # of the runs of a study
SETTINGS = {"network": "tiny", "image_size": 32, "crop": 28, "device": "cpu"}
Steps = Iterator[tuple[str, Callable[[], object]]]


def prepare_tables(folder: Path, rows: int) -> None:
    draws = np.random.default_rng(0)
    grade = draws.integers(0, GRADES, rows)
    columns = {f"f{k}": (grade + draws.normal(size=rows)).round(3) for k in range(8)}
    patient = draws.integers(0, max(rows // 4, 10), rows)
    pd.DataFrame({"id": range(rows), "grade": grade, "patient": patient, **columns}).to_csv(
        folder / "table.csv", index=False
    )


def measure_tables(folder: Path) -> Steps:
    import srjt
    from srjt.data.checks import check

    kept: dict[str, srjt.data.Manifest] = {}

    def read() -> None:
        kept["data"] = srjt.data.read(folder / "table.csv", feature_columns="f*")

    yield "read a table", read
    yield "inspect it", lambda: check(kept["data"], images=False)
    yield "split it into folds", lambda: srjt.data.folds(kept["data"], folds=5)


def prepare_readings(folder: Path, readings: int) -> None:
    """Five of twenty readers read each image; they err by one grade in three of ten readings."""
    draws = np.random.default_rng(0)
    image = np.repeat(np.arange(readings // 5), 5)
    readers = draws.permuted(np.tile(np.arange(20), (readings // 5, 1)), axis=1)[:, :5].reshape(-1)
    errors = draws.choice([-1, 0, 1], p=[0.15, 0.7, 0.15], size=len(image))
    grade = np.clip(draws.integers(0, GRADES, readings // 5)[image] + errors, 0, GRADES - 1)
    columns = {"image": image, "reader": readers, "grade": grade, "patient": image // 4}
    pd.DataFrame(columns).to_csv(folder / "readings.csv", index=False)


def measure_readings(folder: Path) -> Steps:
    from srjt.data.sources.readers_folder import consensus_table, located_images, readings_table
    from srjt.data.sources.readings import combine, read_readings
    from srjt.readers.agreement import agreement

    kept: dict[str, object] = {}

    def read() -> None:
        kept["table"] = read_readings(folder / "readings.csv")

    def agree() -> None:
        kept["agreed"] = combine(kept["table"].readings)

    def tables() -> None:
        images = located_images(kept["table"], folder)
        consensus_table(kept["table"], kept["agreed"], images=images).to_csv()
        readings_table(kept["table"], kept["agreed"]).to_csv()

    yield "readings: read", read
    yield "readings: agreement", lambda: agreement(kept["table"].readings)
    yield "readings: consensus", agree
    yield "readings: tables", tables


def prepare_images(folder: Path, images: int) -> None:
    from PIL import Image

    from srjt.data.synthetic import generate

    data = generate(images=images, patients=max(images // 4, 10), size=32, seed=0)
    (folder / "images").mkdir()
    names = [f"images/{number}.png" for number in range(images)]
    for name, pixels in zip(names, data.arrays, strict=True):
        Image.fromarray(pixels).save(folder / name)
    pd.DataFrame({"image": names, "grade": data.labels, "patient": data.patients}).to_csv(
        folder / "labels.csv", index=False
    )


def measure_images(folder: Path) -> Steps:
    import srjt
    from srjt.data.checks import check
    from srjt.data.images.store import open_store

    manifest = srjt.data.read(folder / "labels.csv")
    yield "inspect images", lambda: check(manifest)
    yield "build the store", lambda: open_store(manifest, size=32)
    yield "train one epoch", lambda: srjt.train(manifest, epochs=1, noise_rate=0.2, **SETTINGS)
    run = srjt.train(manifest.select(range(80)), epochs=1, noise_rate=0.2, **SETTINGS)
    yield "predict", lambda: srjt.predict(run, manifest)


def prepare_audits(folder: Path, rows: int) -> None:
    """The audit of a few images, its lines repeated under other ids."""
    import srjt

    data = srjt.data.synthetic.generate(images=80, patients=20, size=32)
    audit = folder / "audit"
    srjt.audit(data, out=audit, folds=2, epochs=2, **SETTINGS)
    lines = pd.read_csv(audit / "audit.csv", dtype=str, keep_default_na=False)
    many = lines.loc[lines.index.repeat(-(-rows // len(lines)))].iloc[:rows]
    many = many.assign(rank=range(1, rows + 1), id=[f"{n}.png" for n in range(rows)])
    many.to_csv(audit / "audit.csv", index=False)
    facts = json.loads((audit / "audit.json").read_text())
    (audit / "audit.json").write_text(json.dumps({**facts, "samples": rows}))
    with np.load(audit / "neighbours.npz") as saved:
        near = saved["rows"]
    np.savez(audit / "neighbours.npz", rows=np.resize(near, (rows, *near.shape[1:])))


def measure_audits(folder: Path) -> Steps:
    import srjt
    from srjt.auditing.folder import AuditFolder, read_audit
    from srjt.auditing.review_app import ReviewSession, _full_image
    from srjt.auditing.review_log import Decisions

    kept: dict[str, ReviewSession] = {}

    def open_page() -> None:
        audit: AuditFolder = read_audit(folder / "audit")
        decisions = Decisions(folder / "audit" / "decisions.sqlite")
        kept["session"] = ReviewSession(
            audit=audit, decisions=decisions, reviewer="A", queue=len(audit)
        )
        assert kept["session"].samples_json
        kept["session"].updates(0)

    def decide_and_show_next() -> None:
        session = kept["session"]
        for line in range(100):
            name, grade = session.audit.ids[line], session.audit.grades[0]
            seen = session.decisions.current.revision
            session.decisions.decide(
                name,
                reviewer="A",
                action="set",
                grade=grade,
                label=grade,
                seen=session.decisions.current.last_revision.get(name, 0),
            )
            session.updates(seen)
            _full_image(session.audit, line + 1)

    yield "report of an audit", lambda: srjt.write_report(folder / "audit")
    yield "review: open the page", open_page
    yield "review: 100 decisions", decide_and_show_next


def prepare_studies(folder: Path, runs: int) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from fixtures.run_folders import make_study
    from srjt.methods import plain_names

    methods = plain_names()[:10]
    study = make_study(folder / "study", methods=methods, folds=1, epochs=EPOCHS)
    facts = json.loads((study / "study.json").read_text())
    for fold in range(1, runs // len(methods)):
        facts["noise"].append({**facts["noise"][0], "fold": fold})
        for method in methods:
            key = f"{method}_fold{fold}"
            shutil.copytree(study / "runs" / f"{method}_fold0", study / "runs" / key)
            facts["cells"].append({**facts["cells"][0], "key": key, "method": method, "fold": fold})
    facts["folds"] = max(1, runs // len(methods))
    (study / "study.json").write_text(json.dumps(facts))


def measure_studies(folder: Path) -> Steps:
    import srjt
    from srjt.studies.results import StudyResults, collect_results, status_lines

    kept: dict[str, StudyResults] = {}

    def collect() -> None:
        kept["results"] = collect_results(folder / "study")

    yield "study: results", collect
    yield "study: status", lambda: list(status_lines(kept["results"]))
    yield "study: report", lambda: srjt.write_report(folder / "study")


PARTS = {
    "tables": (prepare_tables, measure_tables),
    "readings": (prepare_readings, measure_readings),
    "images": (prepare_images, measure_images),
    "audits": (prepare_audits, measure_audits),
    "studies": (prepare_studies, measure_studies),
}


def memory(kind: str) -> float:
    """MiB of this process on Linux: VmRSS now, VmHWM the peak since the last reset."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[kind].split()[0]) / 1024


def measure(part: str, folder: Path) -> None:
    """Print what each step of a part takes, as JSON; in a process of its own."""
    for name, step in PARTS[part][1](folder):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, wall, cpu = memory("VmRSS"), time.perf_counter(), time.process_time()
        step()
        taken = time.process_time() - cpu, time.perf_counter() - wall, memory("VmHWM") - before
        print(json.dumps([name, *taken]), flush=True)


def in_own_process(part: str, size: int) -> Iterator[tuple[str, float, float, float]]:
    with tempfile.TemporaryDirectory() as name:
        PARTS[part][0](Path(name), size)
        environment = {**os.environ, "SRJT_CACHE": f"{name}/cache"}
        words = [sys.executable, __file__, "--measure", part, "--folder", name]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    for line in done.stdout.splitlines():
        if line.startswith("["):
            yield tuple(json.loads(line))


def show(part: str, sizes: list[int]) -> None:
    before: dict[str, float] = {}
    for size in sizes:
        for name, cpu, wall, mib in in_own_process(part, size):
            growth = ""
            if name in before:
                times = cpu / before[name]
                growth = f"{times:8.1f} × per ×10{'  more than linear' if times > 12 else ''}"
            before[name] = cpu
            print(
                f"{name:24}{size:10,}{cpu:10.3f} CPU s{wall:10.3f} s{mib:9.1f} MiB{growth}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tables", type=int, default=10_000, help="rows of the smallest table")
    parser.add_argument(
        "--readings", type=int, default=10_000, help="readings of the smallest table"
    )
    parser.add_argument("--images", type=int, default=100, help="images of the smallest set")
    parser.add_argument("--audits", type=int, default=1000, help="lines of the smallest audit")
    parser.add_argument("--studies", type=int, default=10, help="runs of the smallest study")
    parser.add_argument(
        "--largest", type=int, default=100, choices=(10, 100), help="times the smallest"
    )
    parser.add_argument("--measure", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        measure(given.measure, given.folder)
        return
    import torch

    import srjt

    print(
        f"srjt {srjt.__version__}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"pandas {pd.__version__}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    for part in given.only:
        smallest = getattr(given, part)
        show(part, [smallest * times for times in (1, 10, 100) if times <= given.largest])


if __name__ == "__main__":
    main()
