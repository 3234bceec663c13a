"""The register of promises: what every interval, range, level and guarantee promises, and what it
gets.

    python benchmarks/promises.py --quick                 # two settings of each, about a minute on two cores
    python benchmarks/promises.py                         # all; the numbers of docs/promises.md are written next
    python benchmarks/promises.py --only ranges-default   # one promise, or one simulation
    python benchmarks/promises.py --only audits --settings "1–40 images" --jobs 16 --out part.csv
    python benchmarks/promises.py --add part.csv          # their rows replace those that are stored
    python benchmarks/evidence/page.py                    # writes the table of docs/promises.md

Each setting is simulated some hundred times (30 to 600, by how long a trial takes), or a third of
that if all promises are kept by then with a standard error to spare. "Got" is how often a promise
was kept, or the mean of a share, ± its standard error; the worst setting comes first. A promise is
kept if it is within two standard errors of what was got. The worst of many settings is below by
chance, so a setting that seems broken is simulated again, with other seeds, and both count.
Verdicts:

- kept: in all settings;
- kept under its condition: in all settings that fulfil the condition printed with it;
- broken: in a setting that fulfils the condition.

Rows are added to the file of ``--out`` as they are found (default: the stored one, unless
``--quick`` or ``--trials``); ``--resume`` skips what it has. The seeds depend on names and settings
alone.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from promised.population import Setting, seeded
from promised.register import PROMISES, Promise
from promised.simulations import SIMULATIONS, Simulation

STORED = Path(__file__).parent / "evidence" / "results" / "promises.csv"
COLUMNS = [
    "promise", "quantity", "simulation", "setting", "promised", "at_most", "got", "error", "trials", "silent", "meets",
]  # fmt: skip
BY_NAME = {promise.name: promise for promise in PROMISES}
FEWEST = 20  # trials before a promise is clearly kept
KEPT, CONDITION, BROKEN = "kept", "kept under its condition", "broken"


def simulate(
    simulation: Simulation, setting: Setting, *, trials: int, first: int = 0
) -> pd.DataFrame:
    """One row for each promise and quantity, with the values of all trials in ``values``."""
    values: dict[str, list[float]] = {}
    with np.errstate(all="ignore"):
        for trial in range(first, first + trials):
            for key, value in simulation.trial(
                setting, seeded(simulation.name, setting, trial)
            ).items():
                values.setdefault(key, []).append(value)
    rows = []
    for key, found in values.items():
        promise, _, quantity = key.partition(": ")
        if promise not in simulation.promises:  # there is only one
            (promise,) = simulation.promises
            quantity = key
        rows.append({"promise": promise, "quantity": quantity, "values": np.array(found)})
    return pd.DataFrame(rows, columns=["promise", "quantity", "values"])


def judged(simulation: Simulation, setting: Setting, *, trials: int) -> pd.DataFrame:
    """The rows of a setting: of a third of the trials if all are clearly kept, of all if none seems
    broken, else of twice as many. Settings that do not fulfil the condition have a third."""
    first = min(trials, max(FEWEST, math.ceil(trials / 3)))
    found = simulate(simulation, setting, trials=first)
    rows = summary(found, simulation, setting, trials=first)
    for so_far, in_all, is_clear in (
        (first, trials, is_clearly_kept),
        (trials, 2 * trials, is_kept),
    ):
        if in_all > so_far and not is_clear(rows[rows["meets"]]).all():
            again = simulate(simulation, setting, trials=in_all - so_far, first=so_far)
            by_quantity = pd.concat([found, again]).groupby(["promise", "quantity"], sort=False)[
                "values"
            ]
            found = by_quantity.agg(lambda parts: np.concatenate([*parts])).reset_index()
            rows = summary(found, simulation, setting, trials=in_all)
    return rows


def summary(
    found: pd.DataFrame, simulation: Simulation, setting: Setting, *, trials: int
) -> pd.DataFrame:
    rows = []
    for promise, quantity, values in found[["promise", "quantity", "values"]].itertuples(
        index=False
    ):
        known = values[np.isfinite(values)]
        entry = BY_NAME[promise]
        enough = len(known) > 1
        row = {
            "promise": promise,
            "quantity": quantity,
            "simulation": simulation.name,
            "setting": str(setting),
            "promised": entry.promised,
            "at_most": entry.at_most,
            "got": round(float(known.mean()), 4) if enough else math.nan,
            "error": round(float(known.std(ddof=1)) / len(known) ** 0.5, 4) if enough else math.nan,
            "trials": len(values),
            "silent": round(1.0 - len(known) / max(len(values), trials), 3),  # nothing was said
            "meets": entry.meets(setting),
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def shortfall(rows: pd.DataFrame) -> pd.Series:
    """How much less was got than promised; of a level or an error, how much more."""
    return (rows["promised"] - rows["got"]) * np.where(rows["at_most"], -1.0, 1.0)


def is_broken(rows: pd.DataFrame) -> pd.Series:
    return shortfall(rows) > 2.0 * rows["error"] + 1e-9


def is_kept(rows: pd.DataFrame) -> pd.Series:
    return ~is_broken(rows)


def is_clearly_kept(rows: pd.DataFrame) -> pd.Series:
    """With a standard error to spare, or nothing was said."""
    return ~(shortfall(rows) > -rows["error"])


def verdict(rows: pd.DataFrame) -> str:
    """Of the rows of one promise."""
    broken = is_broken(rows)
    if (broken & rows["meets"]).any():
        return BROKEN
    return CONDITION if broken.any() else KEPT


def worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.iloc[np.argsort(-shortfall(rows).fillna(-math.inf), kind="stable")]


def printed(rows: pd.DataFrame) -> Iterator[str]:
    """A block for each promise: the verdict, and the three worst settings."""
    for promise in PROMISES:
        own = worst_first(rows[rows["promise"] == promise.name])
        if own.empty:
            continue
        most = "at most " * promise.at_most
        yield f"{verdict(own).upper()}: {promise.name}, {most}{promise.promised:g} ({promise.says})"
        for row in own.head(3).itertuples():
            outside = "" if row.meets else f" [not its condition: {promise.condition}]"
            yield f"    {row.got:.3f} ± {row.error:.3f}  {row.quantity or '–'}: {row.setting}{outside}"


def chosen_simulations(only: Iterable[str]) -> list[Simulation]:
    """Those of these names, or that these promises need."""
    wanted = set(only)
    known = {simulation.name for simulation in SIMULATIONS} | set(BY_NAME)
    if unknown := wanted - known:
        sys.exit(
            f"There is no promise or simulation {', '.join(sorted(unknown))}. Known: {', '.join(sorted(known))}."
        )
    if not wanted:
        return list(SIMULATIONS)
    return [one for one in SIMULATIONS if one.name in wanted or wanted & set(one.promises)]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two settings of each simulation, a tenth of the trials",
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="promises or simulations"
    )
    parser.add_argument(
        "--settings",
        nargs="+",
        default=[],
        metavar="WORDS",
        help="only settings that contain one of these, as the table writes them: '1–40 images'",
    )
    parser.add_argument("--trials", type=int, help="of each setting")
    parser.add_argument(
        "--out", type=Path, help="a CSV file with a row for each promise, quantity and setting"
    )
    parser.add_argument("--resume", action="store_true", help="keep the settings that the file has")
    parser.add_argument(
        "--add",
        nargs="+",
        type=Path,
        default=[],
        metavar="CSV",
        help="no simulation: add files of --out",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args(words)
    out = asked.out
    if out is None and not asked.quick and asked.trials is None:
        out = STORED
    stored = read(out) if out and out.exists() else empty()
    if asked.add:
        in_order(added(stored, [read(path) for path in asked.add])).to_csv(out, index=False)
        return 0
    chosen = chosen_simulations(asked.only)
    tasks = []
    for simulation in chosen:
        trials = asked.trials or (
            max(4, simulation.trials // 10) if asked.quick else simulation.trials
        )
        for setting in simulation.settings[: 2 if asked.quick else None]:
            if asked.settings and not any(words in str(setting) for words in asked.settings):
                continue
            same = (stored["simulation"] == simulation.name) & (stored["setting"] == str(setting))
            if not (asked.resume and same.any()):
                stored = stored[~same]
                tasks.append((simulation.name, setting, trials))
    if not (asked.only or asked.settings or asked.resume or asked.quick):
        stored = empty()  # settings that are no longer in the grid
    found = stored
    for number, rows in enumerate(results_of(tasks, jobs=asked.jobs), 1):
        found = pd.concat([part for part in (found, rows) if len(part)], ignore_index=True)
        if out:
            in_order(found).to_csv(out, index=False)
        print(f"\r{number} of {len(tasks)} settings", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    names = {name for one in chosen for name in one.promises}
    if asked_promises := names & set(asked.only):
        names = asked_promises
    print("\n".join(printed(found[found["promise"].isin(names)])))
    return 0


def added(stored: pd.DataFrame, parts: list[pd.DataFrame]) -> pd.DataFrame:
    """The rows of a setting of a simulation replace those that were stored. Rows of settings that
    are no longer in the grid go."""
    place = ["simulation", "setting"]
    for part in parts:
        new = pd.MultiIndex.from_frame(part[place])
        stored = pd.concat([stored[~pd.MultiIndex.from_frame(stored[place]).isin(new)], part])
    grid = [(one.name, str(setting)) for one in SIMULATIONS for setting in one.settings]
    return stored[pd.MultiIndex.from_frame(stored[place]).isin(grid)]


def results_of(tasks: list[tuple[str, Setting, int]], *, jobs: int) -> Iterator[pd.DataFrame]:
    """The rows of each task, as they are found."""
    if jobs == 1:
        yield from (run_task(*task) for task in tasks)
        return
    for library in (
        "OMP",
        "OPENBLAS",
        "MKL",
    ):  # read when the processes import NumPy: they share the cores
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_task, *task) for task in tasks]):
            yield done.result()


def run_task(name: str, setting: Setting, trials: int) -> pd.DataFrame:
    """For another process: functions of a simulation need not travel."""
    simulation = next(one for one in SIMULATIONS if one.name == name)
    return judged(simulation, setting, trials=trials)


def read(path: Path) -> pd.DataFrame:
    rows = pd.read_csv(path)
    return rows.assign(quantity=rows["quantity"].astype(object).fillna("").astype(str))


def empty() -> pd.DataFrame:
    return pd.DataFrame(columns=COLUMNS)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """By the register's order of promises, the worst setting first."""
    parts = [worst_first(rows[rows["promise"] == promise.name]) for promise in PROMISES]
    return pd.concat(parts, ignore_index=True)


HEADING = ["promise", "printed by", "promised", "got", "in the worst setting", "verdict"]


def table(rows: pd.DataFrame) -> list[list[str]]:
    """The table of docs/promises.md: broken promises first, then as in the register."""
    rows = rows[rows["got"].notna()]  # nothing was said in the others
    known = [
        promise for promise in PROMISES if (rows["meets"] & (rows["promise"] == promise.name)).any()
    ]
    verdicts = {promise.name: verdict(rows[rows["promise"] == promise.name]) for promise in known}
    order = [BROKEN, CONDITION, KEPT]
    known.sort(key=lambda promise: order.index(verdicts[promise.name]))
    return [row_of(promise, rows[rows["promise"] == promise.name]) for promise in known]


def row_of(promise: Promise, rows: pd.DataFrame) -> list[str]:
    """The worst setting that fulfils the condition; where the condition matters, also the worst of
    all."""
    said = verdict(rows)
    worst = worst_first(rows[rows["meets"]]).iloc[0]
    if said == CONDITION:
        outside = worst_first(rows[~rows["meets"]]).iloc[0]
        said = f"kept if {promise.condition}; else {outside['got']:.2f}"
    elif promise.condition:
        said += f" {'although' if said == BROKEN else 'if'} {promise.condition}"
    where = f"{worst['quantity']}: {worst['setting']}" if worst["quantity"] else worst["setting"]
    return [
        promise.says,
        promise.where,
        f"{'≤ ' if promise.at_most else ''}{promise.promised:g}",
        f"{worst['got']:.3f} ± {worst['error']:.3f}",
        where,
        said.replace(BROKEN, f"**{BROKEN}**"),
    ]


if __name__ == "__main__":
    sys.exit(main())
