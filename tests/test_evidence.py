"""The scripts behind docs/evidence.md: differences between methods, over patients and trainings."""

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from srjt.errors import SrjtError

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "evidence"
sys.path.append(str(SCRIPTS))
crossed_difference = importlib.import_module("differences").crossed_difference
Compare = Callable[..., str]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("compare")
    monkeypatch.setattr(module, "RESAMPLES", 200)
    return module


@pytest.fixture
def compare(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> Compare:
    def run(*words: object) -> str:
        script.main([str(word) for word in words])
        return capsys.readouterr().out

    return run


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Forty patients with five images each, two seeds. ``good`` is right everywhere; ``poor`` says
    one too many for every second patient, with both networks; ``single`` has one network and is
    always one too high."""
    true = np.tile([0, 0, 1, 2, 3], 40)
    patients = np.repeat([f"p{k:02}" for k in range(40)], 5)
    wrong = {"good": np.zeros(200), "poor": np.repeat(np.arange(40) % 2, 5), "single": np.ones(200)}
    for name, error in wrong.items():
        said = true + error.astype(int)
        columns = {"views 1, network 1": said, "views 1, both": said, "views 10, both": true}
        if name != "single":
            columns["views 1, network 2"] = true  # alone it is right
        for seed in (0, 1):
            table = pd.DataFrame({"patient": patients, "true": true, **columns})
            table = table.assign(method=name, variant="", noise="quasi:0.2", fold=0, seed=seed)
            table.to_csv(tmp_path / f"{name}{seed}.csv", index=False)
    return tmp_path


def test_differences_and_their_intervals(compare: Compare, tables: Path) -> None:
    said = compare(tables, "--of", "good", "--against", "poor", "--against", "single")
    # images of a patient are right or wrong together: √(¼/40) = 0.079, and not √(¼/400) = 0.025
    row = said.splitlines()[2]
    low, high = (
        float(part) for part in row.split("(")[1].split(")")[0].replace("−", "-").split(" to ")
    )
    assert 0.22 < high - low < 0.38  # ±1.96 · 0.079, by 200 draws
    assert "| quasi:0.2 | `poor` | 1.000, 0.500: **+0.500** (" in said
    assert "0.000, 0.500: **−0.500**" in said  # MAE
    assert "| `single` | 1.000, 0.000: **+1.000** (+1.000 to +1.000)" in said
    ten_views = compare(tables, "--of", "good", "--against", "poor", "--views", 10)
    assert "1.000, 1.000: +0.000 (+0.000 to +0.000)" in ten_views


def write(
    folder: Path, name: str, said: np.ndarray, *, fold: int, seed: int, patients: np.ndarray
) -> None:
    """A training of ``name`` whose true grades are all 0."""
    table = pd.DataFrame(
        {"patient": patients, "true": np.zeros(len(said), dtype=int), "views 1, both": said}
    )
    table = table.assign(method=name, variant="", noise="none", fold=fold, seed=seed)
    table.to_csv(folder / f"{name}{fold}{seed}.csv", index=False)


def interval(said: str, place: int = 1) -> tuple[float, float]:
    row = next(line for line in said.splitlines() if line.startswith("| as given"))
    low, high = row.split("(")[place].split(")")[0].replace("−", "-").split(" to ")
    return float(low), float(high)


def test_intervals_contain_trainings(compare: Compare, tmp_path: Path) -> None:
    """No patient differs from another, but one training is right about 90 % of the images, one
    about 50 %."""
    patients = np.repeat(np.arange(30), 10)
    for seed, right in enumerate([9, 5]):
        said = (np.tile(np.arange(10), 30) >= right).astype(int)
        write(tmp_path, "mine", said, fold=0, seed=seed, patients=patients)
        write(tmp_path, "other", np.ones(300, dtype=int), fold=0, seed=seed, patients=patients)
        if seed == 0:
            alone = compare(tmp_path, "--of", "mine")
            assert "0.900, 0.000: +0.900 (no interval)" in alone
            assert "there is one training, which says nothing about others" in alone
    said = compare(tmp_path, "--of", "mine")
    # d = 0.9 and 0.5: 0.7 ± 12.706 · 0.2
    assert interval(said) == pytest.approx((0.7 - 2.541, 0.7 + 2.541), abs=2e-3)
    assert "**" not in said
    assert "other patients (resampled) and other trainings (2 seeds)" in said


def test_several_folds_are_compared_by_the_corrected_t_test(
    compare: Compare, tmp_path: Path
) -> None:
    for fold, right in enumerate([8, 9, 10]):
        patients = np.arange(10) + 10 * fold
        write(
            tmp_path,
            "mine",
            (np.arange(10) >= right).astype(int),
            fold=fold,
            seed=0,
            patients=patients,
        )
        write(
            tmp_path,
            "other",
            (np.arange(10) >= 5).astype(int),
            fold=fold,
            seed=0,
            patients=patients,
        )
    said = compare(tmp_path, "--of", "mine")
    # 0.3, 0.4 and 0.5: t(2) · 0.1 · √(1/3 + 1/3)
    assert interval(said) == pytest.approx((0.4 - 0.351, 0.4 + 0.351), abs=2e-3)
    assert "the 3 folds, which have their own patients and trainings" in said


@pytest.mark.slow
def test_the_best_is_chosen_on_other_patients(compare: Compare, tmp_path: Path) -> None:
    """Twelve others are right at random: the best of them by the same patients looks better than
    one half."""
    random = np.random.default_rng(0)
    patients = np.arange(100)
    for seed in range(2):
        write(
            tmp_path,
            "mine",
            (random.random(100) < 0.5).astype(int),
            fold=0,
            seed=seed,
            patients=patients,
        )
    accuracy = []
    for number in range(12):
        wrong = (random.random(100) < 0.5).astype(int)
        accuracy.append(1 - wrong.mean())
        for seed in range(2):
            write(tmp_path, f"other{number}", wrong, fold=0, seed=seed, patients=patients)
    said = compare(tmp_path, "--of", "mine", "--best")
    found = float(said.split("`best of 12` | ")[1].split(", ")[1].split(":")[0])
    assert max(accuracy) > 0.58
    assert found < max(accuracy) - 0.03
    assert said.count("| as given |") == 1


def test_bold_is_corrected_for_the_number_of_differences(script: ModuleType) -> None:
    def row(*p_values: float) -> tuple:
        found = [script.Compared(0.6, 0.5, script.Difference(0.1, 0.01, 0.19, p)) for p in p_values]
        return script.Row("none", "other", dict(zip(script.SHOWN, found, strict=True)))

    def bold(*rows: tuple) -> list[str]:
        marked = script._marked(list(rows))
        return [metric for one in marked for metric, d in one.by_metric.items() if d.clear]

    assert bold(row(0.01, 0.9, 0.9)) == ["accuracy"]  # 3 · 0.01
    assert bold(row(0.01, 0.9, 0.9), row(0.9, 0.9, 0.9)) == []  # 6 · 0.01
    assert bold(row(0.01, 0.9, 0.001), row(0.9, 0.9, 0.9)) == ["macro_f1"]
    assert bold(row(np.nan, 0.03, 0.03)) == []
    assert bold(row(np.nan, np.nan, 0.03)) == ["macro_f1"]


def test_others_may_be_scored_as_in_the_paper(compare: Compare, tables: Path) -> None:
    said = compare(tables, "--of", "good", "--against", "poor", "--against", "single", "--plain")
    assert (
        "`poor` | 1.000, 0.750:" in said
    )  # the mean of a network that is half right and one that is right
    assert "`single` | 1.000, 0.000:" in said


@pytest.mark.slow
def test_the_figure_and_the_table_in_one_file(
    compare: Compare, tables: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "all.csv.xz"
    pd.concat(pd.read_csv(file) for file in sorted(tables.glob("*.csv"))).to_csv(whole, index=False)
    said = compare(whole, "--of", "good", "--figures", tmp_path / "figures")
    assert said.count("| quasi:0.2 |") == 2
    assert "quasi:0.2, single" in (tmp_path / "figures" / "differences.svg").read_text()


def test_what_cannot_be_compared_is_one_sentence(
    compare: Compare, tables: Path, tmp_path: Path
) -> None:
    with pytest.raises(SrjtError, match="did you mean 'good'"):
        compare(tables, "--of", "god")
    with pytest.raises(SrjtError, match="holds no tables"):
        compare(tmp_path / "nowhere", "--of", "good")
    (tables / "poor1.csv").unlink()
    with pytest.raises(
        SrjtError, match=r"quasi:0\.2: poor was not tested in the same folds and seeds"
    ):
        compare(tables, "--of", "good", "--against", "poor")


@pytest.fixture
def page() -> ModuleType:
    return importlib.import_module("page")


SETS = ("knee", "deepdrid", "acne", "appareal")
Score = Callable[[int, int, int], float]


def few_trainings(mae: Score, macro_f1: Score | None = None, **columns: object) -> list[dict]:
    """Rows of few_labels.csv for every set, fold and seed; scores are functions of these."""
    tables = importlib.import_module("few_labels_tables")
    noise = dict(tables.EVERY_SET)
    macro_f1 = macro_f1 or (lambda k, fold, seed: 0.5)
    rows = []
    for k, name in enumerate(SETS):
        for fold in (2, 3, 4):
            for seed in (0, 1):
                scores = {
                    tables.MAE: mae(k, fold, seed),
                    tables.ONE_NETWORK: 2 * mae(k, fold, seed),
                    tables.MACRO_F1: macro_f1(k, fold, seed),
                    **dict.fromkeys(tables.OTHER_RULE, 0.5),
                }
                facts = {"labels": 1000, "epochs": 40, "fold": fold, "seed": seed}
                rows.append({"set": name, "noise": noise[name], **facts, **scores, **columns})
    return rows


def test_few_labels_are_compared_over_data_sets(tmp_path: Path) -> None:
    tables = importlib.import_module("few_labels_tables")
    srjt, small = f"srjt:{tables.FIT}", {"labels": 300}
    sord, eae = (f"{name}:{tables.OPTIMISER}" for name in ("sord", "eae"))
    low_rate, other_rate = (sord.replace(tables.RATE, rate) for rate in ("0.0003", "0.003"))
    rows = [
        *few_trainings(lambda k, fold, seed: fold + seed, method=srjt),
        # differences that differ by set, and with the seed; macro-F1 has other ones
        *few_trainings(
            lambda k, fold, seed: fold + seed + 0.1 * k + 0.2 * seed,
            lambda k, fold, seed: 0.5 - 0.01 * k**2,
            method=sord,
        ),
        # with one seed; on the last set better than the first rate, by folds that differ
        *few_trainings(lambda k, fold, seed: fold + 0.1 + 0.2 * (fold - 3), method=other_rate)[::2],
        *few_trainings(lambda k, fold, seed: fold + 0.7, method=low_rate)[::2],
        *few_trainings(
            lambda k, fold, seed: fold + seed + 1 + 0.5 * k,
            lambda k, *_: 0.5 + 0.01 * (k % 2),
            method=eae,
        ),
        # few labels have their own batches; what has others is left out
        *few_trainings(lambda k, *_: 1.0, method=f"{srjt},batch_size=16", **small),
        *few_trainings(
            lambda k, *_: 1.5 + k,
            lambda k, *_: 0.4 + 0.02 * (k == 3),
            method=f"{sord},batch_size=16",
            **small,
        ),
        *few_trainings(lambda *_: 9.0, method=sord, **small),
        # another network, other folds and other lengths, too
        *few_trainings(lambda *_: 9.0, method=f"{sord},network=timm:inception_v3"),
        *few_trainings(lambda *_: 9.0, method=sord, fold=0),
        *few_trainings(lambda *_: 9.0, method=sord, epochs=20),
    ]
    for method, shift in ((srjt, 0.0), (sord, 1.0)):
        # a second case of the first set, with one seed: it counts as much as the first
        knee = few_trainings(lambda k, fold, seed, shift=shift: shift, method=method)[:6:2]
        rows += [{**row, "noise": "one-sided"} for row in knee]
        # a seed without all folds does not count
        rows += few_trainings(lambda *_, shift=shift: 9 * shift, method=method, seed=2, fold=2)[-1:]
    pd.DataFrame(rows).to_csv(tmp_path / "few_labels.csv", index=False)

    k = np.arange(4)
    mae = {"sord": -0.1 * k - 0.1, "eae": -1.0 - 0.5 * k, "300": -0.5 - k}
    mae["sord"][0] = (mae["sord"][0] - 1.0) / 2
    macro_f1 = 0.01 * k**2
    macro_f1[0] /= 2
    all_tested = (*mae.values(), macro_f1, -0.01 * (k % 2), 0.1 - 0.02 * (k == 3))
    p_values = sorted(float(stats.ttest_1samp(values, 0.0).pvalue) for values in all_tested)
    table = tables.few_labels_differences(tmp_path).splitlines()[2:]
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert [row[:3] for row in found] == [
        ["300", "`sord`", "4"],
        ["1,000", "`sord`", "4"],
        ["1,000", "`eae`", "4"],
    ]
    by_method = dict(zip(("300", "sord", "eae"), found, strict=True))
    for name, values in mae.items():
        row = by_method[name]
        assert row[3].startswith(f"{mean_and_interval(values)}, ")
        assert row[5] == mean_and_interval(2 * values)
    rates = tables.by_rate(tables.trainings(tmp_path).query("labels == 1000"), "`sord`")
    assert rates is not None
    rates = rates.loc[list(SETS)]
    assert rates["best"].to_numpy() == pytest.approx([0.0, -0.1, -0.1, -0.1])
    assert rates[tables.RATE].to_numpy() == pytest.approx(-0.1 * k)
    assert by_method["sord"][4] == f"{mean_and_interval(rates['best'].to_numpy())}; −0.150"
    assert by_method["eae"][4] == by_method["300"][4] == "–"
    assert by_method["sord"][6].startswith(f"{mean_and_interval(macro_f1)}, ")
    # Holm's correction is over every MAE and macro-F1 of the table
    adjusted = sorted(float(row[place].rpartition(", ")[2]) for row in found for place in (3, 6))
    assert adjusted[:2] == pytest.approx([6 * p_values[0], 5 * p_values[1]], abs=5e-4)
    assert len(set(adjusted[:3])) == 3


def test_other_settings_are_compared_in_the_same_trainings(tmp_path: Path) -> None:
    tables = importlib.import_module("few_labels_tables")
    present = f"srjt:{tables.FIT}"
    both_folds: list[dict] = [
        # folds and sets differ by far more than the settings
        *few_trainings(lambda k, fold, seed: fold + 10 * k, method=f"{present},batch_size=32"),
        *few_trainings(
            lambda k, fold, seed: fold + 10 * k + 0.1 * k - 0.13,
            lambda k, *_: 0.5 + 0.02 * k,
            method=f"{present},batch_size=32,augment=light",
        ),
        *few_trainings(lambda *_: 9.0, method=f"standard:{tables.OPTIMISER}"),
        *few_trainings(lambda *_: 9.0, method="srjt on features"),
        *few_trainings(lambda *_: 9.0, method=f"{present},batch_size=32,network=timm:other"),
    ]
    for row in both_folds:
        row["fold"] -= 2
    # an old weight, of two sets and one fold alone: compared with the present one in these
    before = few_trainings(lambda k, fold, seed: 10 * k + 2.5, method=f"srjt:{tables.TRAINING}")
    before = [{**row, "fold": 0} for row in before if row["fold"] == 2][:4]
    before[0]["noise_estimate"] = "earlier"
    rows = [*both_folds, *before]
    full = [{**row, "labels": labels} for labels in (300, 0) for row in both_folds[:24]]
    batch = {300: ",batch_size=16", 0: ""}
    for row in full:
        row["method"] = present + batch[row["labels"]]
        row["epochs"] = tables.LENGTHS[row["labels"]]
    pd.DataFrame([*rows, *full]).to_csv(tmp_path / "few_labels.csv", index=False)

    table = tables.few_labels_settings(tmp_path).splitlines()[2:]
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    assert [row[:3] for row in found] == [
        ["300", "**40 epochs, batches of 16, λ = 10**", "4"],
        ["1,000", "**40 epochs, batches of 32, λ = 10**", "4"],
        ["1,000", "`--augment light`", "4"],
        ["1,000", "batches of 64, λ = 4, grows with the epochs ¹", "2"],
        ["all", "**20 epochs, batches of 64, λ = 10**", "4"],
    ]
    k = np.arange(4)
    assert found[1][3:] == ["17.500", "0.500", "–"]
    assert found[2][3] == mean_and_interval(0.1 * k - 0.13)
    assert found[2][4] == mean_and_interval(0.02 * k)
    assert found[2][5] == "4 of 8"
    assert found[3][3:] == ["+0.500", "+0.000", "0 of 2"]


def mean_and_interval(by_set: np.ndarray) -> str:
    low, high = stats.ttest_1samp(by_set, 0.0).confidence_interval()
    return f"{by_set.mean():+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")


def test_tables_are_filled_in_place_and_unknown_names_are_errors(page: ModuleType) -> None:
    text = "before\n<!-- table: ramp -->\nold\n<!-- end of table -->\nafter <!-- end of table -->"
    assert page.filled(text, {"ramp": "| new |\n"}) == text.replace("old", "| new |")
    with pytest.raises(KeyError, match="ramp"):
        page.filled(text, {})


def test_tables_of_results_are_generated(page: ModuleType) -> None:
    """None on the page is typed, but for the one of situations above the first heading."""
    rest = page.PLACE.sub("", (page.ROOT / "docs/evidence.md").read_text(encoding="utf-8"))
    parts = rest.split("\n## ")
    assert [part.partition("\n")[0] for part in parts[1:] if "\n|" in part] == []


def test_a_table_that_no_page_shows_is_a_file_without_marks(page: ModuleType) -> None:
    table = "| method | MAE ↓ |\n| --- | :-: |\n| `a, b` | **0.470 ± 0.016** ¹ |\n"
    assert page.as_csv(table) == 'method,MAE ↓\n"a, b",0.470 ± 0.016\n'
    names = {
        match[2]
        for name in page.PAGES
        for match in page.PLACE.finditer((page.ROOT / name).read_text())
    }
    kept = {path.stem for path in (page.ROOT / page.TABLES).glob("*.csv")}
    made = {*page.STUDIES.values(), page.OURS, *page.HELD_OUT, *page.stored_tables.TABLES}
    assert kept == made - names
    text = (page.ROOT / "docs/evidence-tables.md").read_text()
    assert [name for name in kept if f"`{name.removesuffix('-ten-views')}`" not in text] == []


@pytest.mark.slow
def test_all_tables_are_those_of_the_stored_results(page: ModuleType) -> None:
    assert page.main(["--check"]) == 0


# Intervals of a difference that contain patients and trainings, by simulation and in closed form.
PATIENTS, RESAMPLES = 60, 200
DRAWS = (
    np.random.default_rng(0).multinomial(PATIENTS, np.full(PATIENTS, 1 / PATIENTS), RESAMPLES)
    / PATIENTS
)


def simulate(
    random: np.random.Generator, *, trainings: int, patient: float, training: float, both: float
):
    """Differences (trainings, 1 + resamples) of a metric that is a mean over patients, with a true
    mean of 0."""
    effect = (
        patient * random.normal(size=PATIENTS)
        + training * random.normal(size=(trainings, 1))
        + both * random.normal(size=(trainings, PATIENTS))
    )
    return np.concatenate([effect.mean(axis=1, keepdims=True), effect @ DRAWS.T], axis=1)


def coverage(simulations: int, **how) -> float:
    random = np.random.default_rng(7)
    found = (
        crossed_difference(simulate(random, **how), patients=PATIENTS) for _ in range(simulations)
    )
    return float(np.mean([one.low <= 0 <= one.high for one in found]))


@pytest.mark.parametrize("trainings", [2, 3, 5])
@pytest.mark.parametrize(
    "spread",
    [
        {"patient": 1.0, "training": 0.13, "both": 0.5},  # 1/√60: both parts alike
        {"patient": 1.0, "training": 0.05, "both": 0.0},
        # most of the variance between patients differs by training
        {"patient": 0.3, "training": 0.2, "both": 1.0},
    ],
)
def test_with_both_sources_the_interval_covers_at_least_its_level(
    trainings: int, spread: dict
) -> None:
    n = 600
    found = coverage(n, trainings=trainings, **spread)
    error = 3 * math.sqrt(0.95 * 0.05 / n)
    assert found >= 0.95 - error
    if trainings == 5:  # with two it covers up to 99 %
        assert found <= 0.97 + error


def test_trainings_alone_are_the_paired_t_test() -> None:
    values = np.array([0.02, 0.01, 0.03, 0.00, 0.04])
    found = crossed_difference(np.repeat(values[:, None], 5, axis=1), patients=100)
    known = stats.ttest_1samp(values, 0.0)
    interval = known.confidence_interval(0.95)
    assert found.value == pytest.approx(0.02)
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_patients_alone_are_the_standard_error_of_the_draws() -> None:
    draws = np.array([0.1, 0.05, 0.2, 0.1, 0.15, 0.0])
    found = crossed_difference(np.stack([draws, draws]), patients=41)
    half = stats.t.ppf(0.975, 40) * draws[1:].std(ddof=1)
    assert (found.low, found.high) == pytest.approx((0.1 - half, 0.1 + half))
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.1 / draws[1:].std(ddof=1), 40), rel=1e-6)


def test_what_patients_and_trainings_share_is_counted_once() -> None:
    """Two trainings whose draws are uncorrelated: each has the variance 0.04/3, their mean half, so
    the interaction is 0.02/3; between trainings it is 0.02/2. Together 0.02/3 + 0.01 − 0.02/3 =
    0.01."""
    found = crossed_difference([[0.1, 0.2, 0.0, 0.2, 0.0], [0.3, 0.4, 0.4, 0.2, 0.2]], patients=41)
    share = 0.01 / (0.01 + 0.02 / 3)  # of the trainings, before the interaction is taken out
    half = ((1 - share) * stats.t.ppf(0.975, 40) + share * stats.t.ppf(0.975, 1)) * 0.1
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.2 - half, 0.2 + half))


@given(st.integers(2, 5), st.integers(0, 10**6), st.floats(-2, 2))
def test_the_p_value_is_where_the_interval_touches_zero(
    trainings: int, seed: int, shift: float
) -> None:
    random = np.random.default_rng(seed)
    values = shift + simulate(random, trainings=trainings, patient=1.0, training=0.3, both=0.3)
    found = crossed_difference(values, patients=PATIENTS)
    if 1e-9 < found.p_value < 1 - 1e-9:
        edge = crossed_difference(values, patients=PATIENTS, level=1 - found.p_value)
        assert min(abs(edge.low), abs(edge.high)) == pytest.approx(0, abs=1e-6)
    mirrored = crossed_difference(-values, patients=PATIENTS)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
    assert mirrored.p_value == pytest.approx(found.p_value)


def test_one_training_has_no_interval_and_equal_ones_no_width() -> None:
    alone = crossed_difference([[0.1, 0.0, 0.2]], patients=10)
    assert alone.value == 0.1
    assert math.isnan(alone.low)
    assert math.isnan(alone.p_value)
    assert crossed_difference(np.zeros((2, 5)), patients=10) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"draws": [0.1, 0.2]}, "a row per training"),
        ({"draws": [[0.1, 0.2]]}, "at least two resampled"),
        ({"patients": 1}, "at least two patients; got 1"),
        ({"level": 95.0}, "between 0 and 1"),
    ],
)
def test_impossible_arguments_are_refused(wrong: dict, sentence: str) -> None:
    given = {"draws": [[0.1, 0.1, 0.2]] * 2, "patients": 9, **wrong}
    with pytest.raises(SrjtError, match=sentence):
        crossed_difference(given.pop("draws"), **given)
