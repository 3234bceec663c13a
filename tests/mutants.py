"""Mutants of the statistics: one line is made wrong, and a test that is named here has to fail.

    python tests/mutants.py            all of them, some minutes
    python tests/mutants.py holm ppi   those whose names contain one of these words

``test_mutants.py`` checks that every old text still occurs exactly once, and that the named tests exist.
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
    tests: tuple[str, ...]  # under tests; at least one of them must fail


REGRESSION = "test_the_interval_is_that_of_a_regression_with_two_more_errors_in_a_finite_population"

MUTANTS = (
    # ------------------------------------------------------------------ metrics and calibration
    Mutant(
        "macro-F1 without grades that are only predicted",
        "ordinal/metrics.py",
        "counts.sum(axis=-2) + counts.sum(axis=-1), over=_involved(counts))",
        "counts.sum(axis=-2) + counts.sum(axis=-1), over=counts.sum(axis=-1) > 0)",
        ("ordinal/test_metrics.py::test_metrics_agree_with_scikit_learn",),
    ),
    Mutant(
        "quadratic kappa with linear weights",
        "ordinal/metrics.py",
        "squared = _distance(counts) ** 2",
        "squared = _distance(counts)",
        ("ordinal/test_metrics.py::test_every_metric_by_hand",),
    ),
    Mutant(
        "calibration error with bins that count alike",
        "ordinal/calibration.py",
        "sum(b.samples * abs(b.confidence - b.accuracy) for b in filled) / sum(b.samples for b in filled)",
        "sum(abs(b.confidence - b.accuracy) for b in filled) / len(filled)",
        ("ordinal/test_calibration.py::test_bins_by_hand",),
    ),
    Mutant(
        "recalibration to the labels instead of the true grades",
        "ordinal/calibration.py",
        "label_likelihood = matrix.T[labels]  # (N, C): p(label | true grade)",
        "label_likelihood = np.eye(len(matrix))[labels]",
        ("ordinal/test_calibration.py::test_through_wrong_labels_it_finds_the_same",),
    ),
    # ------------------------------------------------------------------ scores against the true grades
    Mutant(
        "true scores: verified samples that are not corrected",
        "inference/true_scores.py",
        "estimate = factor * by_label + true_part - factor * label_part",
        "estimate = (1.0 - factor) * true_part + factor * by_label",
        ("inference/test_true_scores.py::test_intervals_from_verified_grades_hold",),
    ),
    Mutant(
        "true scores: images that are independent",
        "inference/true_scores.py",
        "together = np.bincount(table.owner, influence)",
        "together = influence",
        ("inference/test_true_scores.py::test_copies_of_an_image_tell_nothing_new",),
    ),
    Mutant(
        "true scores: labels that the verified ones are not helped by",
        "inference/true_scores.py",
        "factor = _factor(true, by[rows]) / (1.0 + size / total)",
        "factor = 0.0",
        (
            "inference/test_true_scores.py::test_labels_of_all_make_the_interval_of_a_few_verified_ones_shorter",
        ),
    ),
    Mutant(
        "true scores: one extreme of a matrix only",
        "inference/true_scores.py",
        'if label_noise != "class-conditional" or not apart:',
        "if not apart:",
        ("inference/test_true_scores.py::test_a_matrix_undoes_errors_that_depend_on_the_true_grade_alone",),
    ),
    Mutant(
        "true scores: bounds without the share of wrong labels",
        "inference/true_scores.py",
        'most = {"accuracy": noise.rates[1], "mae": distance}',
        'most = {"accuracy": noise.rates[0], "mae": distance}',
        (
            "inference/test_true_scores.py::test_without_a_determined_noise_there_are_bounds_of_accuracy_and_error",
        ),
    ),
    Mutant(
        "plan: images of a patient as if they were independent",
        "inference/sample_size.py",
        "deviation = math.sqrt(variance * effect / (images * share))",
        "deviation = math.sqrt(variance / (images * share))",
        ("inference/test_sample_size.py::test_assumed_values_by_closed_forms",),
    ),
    Mutant(
        "plan: a pilot whose images are drawn, not patients",
        "inference/sample_size.py",
        'owner = patient_codes(rows["patient"].tolist() if "patient" in rows else None, len(rows))',
        "owner = patient_codes(None, len(rows))",
        ("inference/test_sample_size.py::test_a_pilot_counts_patients_and_agrees_with_the_design_effect",),
    ),
    Mutant(
        "plan: a half-width of one standard deviation",
        "inference/sample_size.py",
        "Z = 1.959964",
        "Z = 1.0",
        ("inference/test_sample_size.py::test_the_planned_number_reaches_the_half_width",),
    ),
    # ------------------------------------------------------------------ patients
    Mutant(
        "conformal threshold without the new patient",
        "ordinal/calibration.py",
        "need = coverage * float(w.sum()) + spare",
        "need = coverage * float(w.sum())",
        ("ordinal/test_calibration.py::test_two_grades_by_hand",),
    ),
    Mutant(
        "conformal threshold with images that count alike",
        "ordinal/calibration.py",
        "return np.asarray(1.0 / np.bincount(owner)[owner])",
        "return np.ones(samples)",
        ("ordinal/test_calibration.py::test_images_share_the_weight_of_their_patient",),
    ),
    Mutant(
        "bootstrap of images instead of patients",
        "ordinal/metrics.py",
        "owner = patient_codes(groups, len(y))",
        "owner = patient_codes(None, len(y))",
        ("ordinal/test_intervals.py::test_patients_whose_images_stand_and_fall_together_make_it_wider",),
    ),
    # ------------------------------------------------------------------ comparisons
    Mutant(
        "paired test as if folds shared no training data",
        "studies/paired_tests.py",
        "between_folds = std**2 * (1.0 / n + test_train_ratio)",
        "between_folds = std**2 / n",
        ("studies/test_paired_tests.py::test_by_hand",),
    ),
    Mutant(
        "best opponent chosen by the fold that it is judged on",
        "studies/paired_tests.py",
        "elsewhere = wide[fold_of != fold] if len(folds) > 1 else wide",
        "elsewhere = wide",
        ("studies/test_paired_tests.py::test_the_opponent_in_a_fold_is_the_best_of_the_other_folds",),
    ),
    Mutant(
        "holm without the maximum of the ones before",
        "ordinal/metrics.py",
        "np.maximum.accumulate(factors * p[order])",
        "factors * p[order]",
        ("ordinal/test_intervals.py::test_holm_by_hand",),
    ),
    Mutant(
        "percentile interval with one wide tail",
        "ordinal/metrics.py",
        "tails = [(1 - level) / 2, 1 - (1 - level) / 2]",
        "tails = [1 - level, 1 - (1 - level) / 2]",
        ("ordinal/test_intervals.py::test_the_tails_of_an_interval_are_equal",),
    ),
    # ------------------------------------------------------------------ the paper
    Mutant(
        "keep rate whose ramp begins one epoch too early",
        "ordinal/losses.py",
        "return 1.0 - noise_rate * min((epoch - 1) / steps, 1.0)",
        "return 1.0 - noise_rate * min(epoch / steps, 1.0)",
        ("ordinal/test_losses.py::test_keep_rate_of_the_published_code",),
    ),
    Mutant(
        "selection of one sample too many",
        "ordinal/losses.py",
        "scatter(-1, order, position) < keep",
        "scatter(-1, order, position) <= keep",
        ("ordinal/test_losses.py::test_selection_by_hand",),
    ),
    Mutant(
        "soft labels by squared distance",
        "ordinal/losses.py",
        "torch.softmax(-(grade[:, None] - grade[None, :]).abs(), dim=1)",
        "torch.softmax(-(grade[:, None] - grade[None, :]) ** 2, dim=1)",
        ("ordinal/test_losses.py::test_soft_labels_of_four_grades_by_hand",),
    ),
    Mutant(
        "quasi-Gaussian noise by squared distance",
        "noise/matrices.py",
        "lambda distance: 1.0 / distance,",
        "lambda distance: 1.0 / distance**2,",
        ("noise/test_matrices.py::test_quasi_by_hand",),
    ),
    # ------------------------------------------------------------------ several readers
    Mutant(
        "kappa of two readers with other weights",
        "readers/agreement.py",
        ".astype(np.float64) ** power",
        ".astype(np.float64)",
        ("readers/test_agreement.py::test_kappa_of_each_pair_equals_scikit_learn",),
    ),
    Mutant(
        "Fleiss' kappa with equal chances",
        "readers/agreement.py",
        "(share**2).sum(axis=-1))",
        "np.full(share.shape[:-1], 1.0 / share.shape[-1]))",
        ("readers/test_agreement.py::test_fleiss_and_gwet_of_the_published_example",),
    ),
    Mutant(
        "Gwet's AC2 with linear weights",
        "readers/agreement.py",
        "weight = 1.0 - distance**2",
        "weight = 1.0 - np.abs(distance)",
        ("readers/test_agreement.py::test_fleiss_and_gwet_of_the_published_example",),
    ),
    Mutant(
        "ICC(2,1) without the readers' bias",
        "readers/agreement.py",
        "consistent + bias)",
        "consistent)",
        ("readers/test_agreement.py::test_intraclass_correlations_of_the_published_example",),
    ),
    Mutant(
        "ICC(1,1) as if items had equally many readings",
        "readers/agreement.py",
        "(size - squared / size) / (items - 1)",
        "size / items",
        ("readers/test_agreement.py::test_intraclass_correlations_with_gaps",),
    ),
    Mutant(
        "limits of agreement by the population's deviation",
        "readers/agreement.py",
        "squares / (size - 1))",
        "squares / size)",
        ("readers/test_agreement.py::test_limits_of_agreement",),
    ),
    Mutant(
        "readers with their prior",
        "training/single_run.py",
        "(posterior / posterior.mean(dim=0))",
        "posterior",
        ("training/test_several_readers.py::test_readers_are_learnt_without_their_prior",),
    ),
    Mutant(
        "consensus without the shared deviation",
        "readers/model.py",
        "    matrices = _times(matrices, shared)\n",
        "",
        ("readers/test_consensus.py::test_a_reader_is_shrunk_to_what_all_readers_do_and_they_to_the_family",),
    ),
    Mutant(
        "consensus with pseudo-count 20",
        "readers/model.py",
        "evidence.single_readings + 1.0",
        "evidence.single_readings + 20.0",
        ("readers/test_consensus.py::test_the_shares_of_the_grades_are_laplaces",),
    ),
    Mutant(
        "variants' temperature 1",
        "readers/model.py",
        "_TEMPERATURE = 2.0",
        "_TEMPERATURE = 1.0",
        ("readers/test_consensus.py::test_a_variant_counts_by_the_root_of_its_likelihood",),
    ),
    Mutant(
        "reader interval without resampling",
        "readers/model.py",
        "_DRAWS = 10",
        "_DRAWS = 0",
        ("readers/test_consensus.py::test_resampling_gives_the_variance_of_a_share",),
    ),
    Mutant(
        "reader interval without what resampling varies",
        "readers/model.py",
        "beta_interval(rate, rate_variance + drawn.rate, confidence=confidence)",
        "beta_interval(rate, rate_variance, confidence=confidence)",
        ("readers/test_consensus.py::test_what_resampling_varies_is_added_to_every_interval",),
    ),
    # ------------------------------------------------------------------ how many labels are wrong, and what rests on it
    Mutant(
        "PPI with ddof 0",
        "noise/verified.py",
        "left.var(ddof=2)",
        "left.var(ddof=0)",
        (f"noise/test_verified.py::{REGRESSION}",),
    ),
    Mutant(
        "PPI without the finite-population factor",
        "noise/verified.py",
        "rest = max(1.0 - size / samples, 1.0 / samples)",
        "rest = 1.0",
        (f"noise/test_verified.py::{REGRESSION}",),
    ),
    Mutant(
        "PPI with an unclipped factor",
        "noise/verified.py",
        "return min(max(slope, 0.0), 1.0)",
        "return slope",
        ("noise/test_verified.py::test_the_model_is_trusted_between_not_at_all_and_fully",),
    ),
    Mutant(
        "lower end at 5 %",
        "noise/estimate.py",
        "for q in (tail, 2.0 * tail))",
        "for q in (2.0 * tail, 2.0 * tail))",
        (
            "noise/test_estimate.py::"
            "test_the_interval_begins_at_the_lower_tail_of_the_draws_and_the_one_sided_limit_at_twice_it",
        ),
    ),
    Mutant(
        "conservative ranges without beyond",
        "inference/ranges.py",
        "coverage=coverage + beyond",
        "coverage=coverage",
        (
            "inference/test_ranges.py::"
            "test_conservative_ranges_add_the_labels_that_may_be_wrong_by_more_to_the_promise",
        ),
    ),
    Mutant(
        "default ranges from the point instead of the highest rate",
        "inference/ranges.py",
        "candidates = [[posterior_weights(side.labels, noise.highest())]]",
        "candidates = [[posterior_weights(side.labels, noise.joint)]]",
        ("inference/test_ranges.py::test_the_default_takes_as_many_labels_for_wrong_as_are_plausible",),
    ),
    Mutant(
        "highest grade of a patient without 'at least one'",
        "noise/quality.py",
        "np.clip(np.exp(either - top) - np.exp(never - top), 0.0, None) / somewhere",
        "np.exp(either - top)",
        (
            "noise/test_quality.py::"
            "test_the_likelihood_is_the_sum_over_all_true_grades_of_which_one_is_the_highest",
        ),
    ),
    # ------------------------------------------------------------------ subgroups and seeds
    Mutant(
        "gap of a group to all samples instead of the rest",
        "inference/populations.py",
        "rest = _metrics(total - group, num_classes)",
        "rest = _metrics(total, num_classes)",
        ("inference/test_subgroups.py::test_scores_are_those_of_the_samples_of_the_group",),
    ),
    Mutant(
        "Holm for one group against the other as two tests",
        "inference/populations.py",
        "names[0] if len(names) == 2 else group.name",
        "group.name",
        ("inference/test_subgroups.py::test_the_site_whose_labels_are_a_grade_too_high_is_the_worst",),
    ),
    Mutant(
        "gaps without Holm's correction",
        "inference/populations.py",
        "adjusted = dict(zip(p_values, holm(list(p_values.values())).tolist(), strict=True))",
        "adjusted = p_values",
        ("inference/test_subgroups.py::test_scores_are_those_of_the_samples_of_the_group",),
    ),
    Mutant(
        "t interval without n / (n - 1)",
        "ordinal/metrics.py",
        "parts = [(float(known.var(ddof=1)) * patients / (patients - 1), patients - 1)]",
        "parts = [(float(known.var(ddof=1)), patients - 1)]",
        ("ordinal/test_intervals.py::test_the_interval_of_a_mean_is_students",),
    ),
    Mutant(
        "t interval without the variance between trainings",
        "ordinal/metrics.py",
        "parts.append((pooled * sum(1 / len(own) for own in scores), free))",
        "parts.append((0.0, free))",
        ("ordinal/test_intervals.py::test_the_variance_between_trainings_is_added",),
    ),
    Mutant(
        "paired test without the effect of a seed on all folds",
        "studies/paired_tests.py",
        "return max(0.0, variance) / seeds, seeds - 1",
        "return 0.0, seeds - 1",
        ("studies/test_paired_tests.py::test_an_effect_of_the_seed_on_all_folds_widens_the_interval",),
    ),
    Mutant(
        "effect of a seed with the chance of single runs in it",
        "studies/paired_tests.py",
        "variance = float(table.mean(axis=0).var(ddof=1)) - chance / folds",
        "variance = float(table.mean(axis=0).var(ddof=1))",
        ("studies/test_paired_tests.py::test_an_effect_of_the_seed_on_all_folds_widens_the_interval",),
    ),
)


def source(mutant: Mutant) -> Path:
    return Path("srjt", mutant.file)


def run(tests: set[str] | tuple[str, ...], *, src: Path) -> int:
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
    """Whether a named test fails on a copy of the source with this one mutation."""
    with tempfile.TemporaryDirectory() as folder:
        src = Path(folder, "src")
        shutil.copytree(ROOT / "src", src)
        text = (src / source(mutant)).read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            print(f"{mutant.name}: the old text occurs {text.count(mutant.old)} times in {mutant.file}")
            return False
        (src / source(mutant)).write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        return run(mutant.tests, src=src) == 1


def main(words: list[str]) -> int:
    chosen = [one for one in MUTANTS if not words or any(word.lower() in one.name.lower() for word in words)]
    if not chosen:
        print(f"No mutant's name contains {' or '.join(words)}.")
        return 1
    if run({test for one in chosen for test in one.tests}, src=ROOT / "src") != 0:
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
