"""How near is the estimated noise rate to the true one, and does its interval cover? Beside
cleanlab.

    python benchmarks/noise_estimation.py                     simulated readers, about 25 minutes on one core
    python benchmarks/noise_estimation.py --quick             four seeds, about two minutes
    python benchmarks/noise_estimation.py --figure docs/images    also draws what-can-be-known.svg
    python benchmarks/noise_estimation.py --large             n = 100,000, with seconds and memory
    python benchmarks/noise_estimation.py --untuned           readers of kinds that the model was not developed on
    python benchmarks/noise_estimation.py --verified          the interval with 0, 50, 100 and 200 verified labels
    python benchmarks/noise_estimation.py --one-sided --seeds 4    labels mostly too low, a minute
    python benchmarks/noise_estimation.py --control ...       the true grades as labels, none of which is wrong: what is
                                                              said then is the error of the networks
    python benchmarks/noise_estimation.py --probabilities FILE ...   settings of noisy_settings.py or human_votes.py,
                                                                     also with --verified

Readers of four families (``simulated_readers.py``), three kinds of probabilities, 3 to 7 grades,
300 to 10,000 labels, balanced and unbalanced. The model was developed on seeds below 1000; the
default seeds, from 2000, were used once, for docs/evidence.md. cleanlab's rate is one minus the
trace of its calibrated confident joint. ``matrix``: the mean over true grades of the total
variation distance between the estimated and the true distribution of labels. cleanlab comes with
``pip install ".[benchmarks]"``.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from noisy_settings import Setting, read
from simulated_readers import FAMILIES, KINDS, UNTUNED, Simulation, simulate, simulations

from srjt.noise.estimate import estimate_noise
from srjt.noise.verified import exact_interval

SIZES = (300, 1000, 3000, 10_000)


def main() -> None:
    given = parser(__doc__).parse_args()
    seeds = range(given.first, given.first + given.seeds)
    if given.verified:
        verified(
            map(read, given.probabilities)
            if given.probabilities
            else simulations(seeds, kinds=("labels",), sizes=(3000,)),
            given.out,
        )
    elif given.one_sided:
        one_sided(seeds)
    elif given.large:
        large(given.first)
    elif given.probabilities:
        rates(
            map(control, map(read, given.probabilities))
            if given.control
            else map(read, given.probabilities),
            given,
        )
    else:
        families = UNTUNED if given.untuned else FAMILIES
        simulated = simulations(seeds, sizes=SIZES, families=families)
        rates(map(control, simulated) if given.control else simulated, given)


def control(setting: Simulation | Setting) -> Simulation | Setting:
    """The same networks, and the true grades as labels."""
    return replace(setting, labels=setting.true, matrix=np.eye(len(setting.matrix)))


def rates(source: Iterable[Simulation | Setting], given: argparse.Namespace) -> None:
    found = pd.DataFrame([row(one) for one in source])
    if given.out:
        found.to_csv(given.out, index=False)
    print(summary(found, ["family", "kind"]).to_string(), "\n")
    print(summary(found, ["family"]).to_string(), "\n")
    print(summary(found, ["blur"]).to_string(), "\n")
    print(summary(found, ["samples"]).to_string())
    if given.figure:
        draw(found, given.figure)


def parser(description: str | None) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--first", type=int, default=2000, help="the first seed")
    arguments.add_argument(
        "--seeds", type=int, default=25, help="each gives six noises with three kinds each"
    )
    arguments.add_argument(
        "--quick", dest="seeds", action="store_const", const=4, help="the same as --seeds 4"
    )
    arguments.add_argument(
        "--large", action="store_true", help="one setting of each family, n = 100,000"
    )
    arguments.add_argument("--untuned", action="store_true", help="other kinds of readers")
    arguments.add_argument("--control", action="store_true", help="the true grades as labels")
    arguments.add_argument("--verified", action="store_true", help="intervals with verified labels")
    arguments.add_argument(
        "--one-sided", action="store_true", help="30 to 65 %% of a grade's labels too low"
    )
    arguments.add_argument("--probabilities", nargs="+", type=Path, help="files of settings")
    arguments.add_argument("--figure", type=Path, help="a folder for the figure")
    arguments.add_argument("--out", type=Path, help="a CSV file with a row for each setting")
    return arguments


def row(setting: Simulation | Setting) -> dict[str, object]:
    start = time.perf_counter()
    groups = setting.groups if isinstance(setting, Setting) else None
    ours = estimate_noise(setting.labels, setting.probabilities, groups=groups)
    low, high = ours.rate_interval
    joint = cleanlab_joint(setting)
    return {
        "family": setting.family if isinstance(setting, Simulation) else setting.kind,
        "kind": setting.kind if isinstance(setting, Simulation) else "network",
        "noise": setting.noise if isinstance(setting, Simulation) else setting.kind,
        "samples": len(setting.labels),
        "blur": setting.blur if isinstance(setting, Simulation) else np.nan,
        "grades": setting.probabilities.shape[1],
        "true rate": float(setting.wrong.mean()),
        "rate": ours.rate,
        "low": low,
        "high": high,
        "lower bound": ours.lower_bound,
        "determined": ours.identifiable,
        "cleanlab": 1.0 - float(np.trace(joint)),
        "matrix ours": matrix_error(ours.transition, setting.matrix),
        "matrix cleanlab": matrix_error(joint.T, setting.matrix),
        "seconds": time.perf_counter() - start,
    }


def summary(found: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    truth = found["true rate"]
    columns = {
        "settings": 1,
        "true rate": truth,
        "error ours": (found["rate"] - truth).abs(),
        "cleanlab": (found["cleanlab"] - truth).abs(),
        "covered": (found["low"] <= truth) & (truth <= found["high"]),
        "width": found["high"] - found["low"],
        "lower bound holds": found["lower bound"] <= truth,
        "determined": found["determined"],
        "matrix ours": found["matrix ours"],
        "matrix cleanlab": found["matrix cleanlab"],
        "seconds": found["seconds"],
    }
    table = found[by].assign(**columns).groupby(by, sort=False)
    return table.mean().round(3).assign(settings=table.size())


def cleanlab_joint(setting: Simulation | Setting) -> np.ndarray:
    """p(label, true grade)."""
    from cleanlab.count import estimate_joint

    return np.asarray(estimate_joint(setting.labels, setting.probabilities))


def matrix_error(found: np.ndarray, true: np.ndarray) -> float:
    """Mean over the true grades of the total variation distance between two distributions of
    labels."""
    rows = found / np.maximum(found.sum(axis=1, keepdims=True), 1e-12)
    return float(np.abs(rows - true).sum(axis=1).mean() / 2)


def large(seed: int) -> None:
    for family, names in FAMILIES.items():
        one = simulate(family, names[0], seed=seed, kinds=("labels",), sizes=(100_000,))[0]
        start = time.perf_counter()
        found = estimate_noise(one.labels, one.probabilities)
        seconds = time.perf_counter() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        low, high = found.rate_interval
        print(
            f"{family}: true {one.rate:.3f}, estimated {found.rate:.3f} ({low:.3f} to {high:.3f})",
            end="",
        )
        print(f", {seconds:.1f} s, {memory:.1f} GiB")


def verified(source: Iterable[Simulation | Setting], out: Path | None) -> None:
    rows = []
    for one in source:
        rate = float(one.wrong.mean())
        rng = np.random.default_rng(len(rows))
        order = rng.permutation(len(one.labels))
        for count in (0, 50, 100, 200):
            known = np.full(len(one.labels), -1)
            known[order[:count]] = one.true[order[:count]]
            found = estimate_noise(one.labels, one.probabilities, verified=known, bootstrap=100)
            wrong = one.wrong[order[:count]]
            alone = exact_interval(float(wrong.mean()), count) if count else (np.nan, np.nan)
            low, high = found.rate_interval
            rows.append(
                {
                    "family": one.family if isinstance(one, Simulation) else one.kind,
                    "verified": count,
                    "error": abs(found.rate - rate),
                    "covered": low <= rate <= high,
                    "width": high - low,
                    "width of the sample alone": alone[1] - alone[0],
                }
            )
    table = pd.DataFrame(rows)
    if out is not None:
        table.round(5).to_csv(out, index=False)
    print(table.groupby(["family", "verified"], sort=False).mean().round(3).to_string())


def one_sided(seeds: range) -> None:
    """Of the grades above the mildest a share is labelled one too low: what the estimate says by
    share and blur."""
    rows = []
    for blur, lowered, seed in product((0.1, 0.2, 0.4), (0.3, 0.4, 0.55, 0.65), seeds):
        one = simulate(
            "asymmetric",
            "one-sided",
            seed=seed,
            kinds=("labels",),
            sizes=(3000,),
            blurs=(blur,),
            lowered=lowered,
        )[0]
        found = estimate_noise(one.labels, one.probabilities, bootstrap=60)
        low, high = found.rate_interval
        joint = found.prior[:, None] * found.transition
        rows.append(
            {
                "blur": blur,
                "too low": lowered,
                "true rate": one.rate,
                "rate": found.rate,
                "covered": low <= one.rate <= high,
                "width": high - low,
                "found too low": np.tril(joint, -1).sum(),
                "found too high": np.triu(joint, 1).sum(),
                "form used": found.form in ("lowered", "raised"),
                "matrix": matrix_error(found.transition, one.matrix),
            }
        )
    print(pd.DataFrame(rows).groupby(["blur", "too low"]).mean().round(3).to_string())


def draw(found: pd.DataFrame, folder: Path) -> None:
    """The interval, the point and the truth of settings of each family, by rising true rate."""
    from srjt.reports.figures.canvas import (
        GREY,
        INK,
        PALETTE,
        CaptionedFigure,
        house_style,
        new_figure,
        save_figure,
    )

    @house_style
    def figure() -> CaptionedFigure:
        page = new_figure(7.2, 5.0)
        chosen = found[found["kind"] == KINDS[-1]]
        for place, (family, members) in enumerate(chosen.groupby("family", sort=False), start=1):
            axes = page.add_subplot(2, 2, place)
            members = members.sort_values("true rate").iloc[:: max(1, len(members) // 20)]
            x = np.arange(len(members))
            axes.vlines(x, members["low"], members["high"], color=PALETTE["sky"], linewidth=3)
            axes.plot(
                x,
                members["rate"],
                "o",
                color=PALETTE["blue"],
                markersize=4,
                label="estimate, with its interval",
            )
            axes.plot(x, members["true rate"], "_", color=INK, markersize=8, label="true rate")
            axes.plot(
                x, members["cleanlab"], "x", color=PALETTE["orange"], markersize=4, label="cleanlab"
            )
            axes.set_title(family)
            axes.set_ylim(0, 0.65)
            axes.set_xticks([])
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
            axes.tick_params(color=GREY)
            if place == 1:
                axes.legend(frameon=False, loc="upper left", fontsize=8)
        page.tight_layout()
        return CaptionedFigure(
            name="what-can-be-known",
            figure=page,
            caption="Share of wrong labels: true, estimated with its interval, and cleanlab's estimate.",
            alt="Four panels of intervals, many of which begin at 0; nearly all hold the true rate.",
        )

    save_figure(figure(), folder)[1].unlink()  # the documentation shows the SVG file alone


if __name__ == "__main__":
    main()
