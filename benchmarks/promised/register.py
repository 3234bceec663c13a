"""The register: every interval, range, level and guarantee that a page, a table, a docstring or a
document prints.

A promise has a name, what it promises, the condition that is printed with it, and where it is
printed: the names of the functions, constants and fields of ``src/srjt`` that make or show it
("file: name"). ``tests/test_promises.py`` collects these names from the source and fails if one is
missing here.

How each promise is simulated is in ``promised/simulations.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from promised.population import Setting


@dataclass(frozen=True, kw_only=True)
class Promise:
    name: str
    says: str  # the promise, in words
    where: str  # command or page, for the documentation
    promised: float
    at_most: bool = False  # a level or an error, and not a probability that is at least this
    condition: str = ""  # printed with the promise
    meets: Callable[[Setting], bool] = lambda setting: (
        True
    )  # whether a setting fulfils the condition
    printed_by: tuple[str, ...] = ()


def _right(setting: Setting) -> bool:
    return setting.noise == "none"


def _own_errors(setting: Setting) -> bool:
    return setting.noise != "shared"


def _near_errors(setting: Setting) -> bool:
    return not setting.far


def _every_grade_is_frequent(setting: Setting) -> bool:
    """Whether ten patients or more are expected to have the rarest grade."""
    return bool(setting.patients * setting.shares.min() >= 10) and _near_errors(setting)


def _far_errors_are_seen(setting: Setting) -> bool:
    """Among ten grades errors by several are common, and in a small group some have not occurred."""
    return setting.grades < 10 or min(setting.groups) >= 20


def _by_true_grade(setting: Setting) -> bool:
    return setting.noise in ("none", "class")


NOT_SHARED = "networks do not repeat the errors of the readers"

PROMISES = (
    Promise(
        name="macro-intervals",
        says="95 % intervals of scores that average over grades, and of κ",
        where="evaluate, train, card, checklist",
        promised=0.95,
        condition="every grade has ten patients or more and rare errors are by one grade",
        meets=_every_grade_is_frequent,
        printed_by=("reports/pages/evaluation.py: notes_of",),
    ),
    Promise(
        name="score-intervals",
        says="95 % intervals of the metrics of a run",
        where="evaluate, train, card, checklist",
        promised=0.95,
        condition="rare errors are by one grade",
        meets=_near_errors,
        printed_by=(
            "inference/answers.py: Answers.intervals",
            "inference/evaluate.py: Evaluation",
            "inference/evaluate.py: evaluate",
            "inference/subgroups.py: Scores.intervals",
            "ordinal/intervals.py: bootstrap_metrics",
            "ordinal/intervals.py: percentile_interval",
            "ordinal/intervals.py: score_interval",
            "reports/checklist.py: _side_facts",
            "reports/pages/evaluation.py: notes_of",
            "reports/aspects/second_centre.py: _sections",
            "cli/__init__.py: SUMMARIES",
            "cli/predict.py: evaluate",
            "run.py: Run",
        ),
    ),
    Promise(
        name="difference-interval",
        says="95 % intervals of the difference between two runs",
        where="compare, analyse",
        promised=0.95,
        printed_by=(
            "inference/compare.py: Difference.difference",
            "ordinal/intervals.py: effective_counts",
            "ordinal/intervals.py: t_interval",
            "cli/predict.py: compare",
            "reports/demo.py: Learnt",
            "reports/pages/analysis.py: analysis_facts",
        ),
    ),
    Promise(
        name="difference-level",
        says="two runs that do not differ are said to, at the level of 5 %",
        where="compare",
        promised=0.05,
        at_most=True,
        printed_by=(
            "inference/compare.py: Difference.p_value",
            "inference/compare.py: Difference",
            "inference/compare.py: Difference.adjusted",
            "ordinal/intervals.py: holm",
            "reports/pages/evaluation.py: comparison_notes",
        ),
    ),
    Promise(
        name="subgroup-differs",
        says="groups that do not differ: at least one is said to, at the level of 5 % (Holm)",
        where="evaluate --by",
        promised=0.05,
        at_most=True,
        printed_by=(
            "inference/subgroups.py: Gap.p_value",
            "inference/subgroups.py: Gap.adjusted",
            "inference/subgroups.py: Subgroups",
            "inference/subgroups.py: _correct",
            "reports/aspects/subgroups.py: comparison_of",
            "reports/aspects/subgroups.py: _sections",
        ),
    ),
    Promise(
        name="subgroup-gap",
        says="95 % intervals of the gap of a group to all others",
        where="evaluate --by",
        promised=0.95,
        condition="the group has twenty patients or rare errors are by one grade",
        meets=_far_errors_are_seen,
        printed_by=(
            "inference/subgroups.py: Gap",
            "inference/subgroups.py: Gap.difference",
            "inference/subgroups.py: gap_interval",
        ),
    ),
    Promise(
        name="subgroup-score",
        says="95 % intervals of the metrics of a group",
        where="evaluate --by",
        promised=0.95,
        condition="the group has twenty patients or rare errors are by one grade",
        meets=_far_errors_are_seen,
        printed_by=(
            "inference/subgroups.py: Subgroup.scores",
            "inference/subgroups.py: _if_known",
            "reports/aspects/subgroups.py: subgroup_figure",
        ),
    ),
    Promise(
        name="referral-intervals",
        says="95 % intervals of sensitivity, specificity, predictive values and areas",
        where="evaluate --refer-from",
        promised=0.95,
        printed_by=(
            "inference/aspects/referral.py: Decision.operating_point",
            "inference/aspects/referral.py: Decision.areas",
            "inference/aspects/referral.py: ReferralRule",
            "inference/aspects/referral.py: ReferralRule.sensitivity_of_patients",
            "ordinal/decisions.py: operating_point",
            "ordinal/decisions.py: proportion_interval",
            "ordinal/decisions.py: areas",
        ),
    ),
    Promise(
        name="kept-accuracy",
        says="95 % interval of the accuracy of the answers that are kept",
        where="evaluate --abstain",
        promised=0.95,
        printed_by=("inference/aspects/abstention.py: Abstention.kept",),
    ),
    Promise(
        name="sensitivity-threshold",
        says="a threshold for a sensitivity of 0.9 reaches it on new patients",
        where="predict --sensitivity",
        promised=0.9,
        condition="the validation labels are right",
        meets=_right,
        printed_by=(
            "inference/aspects/referral.py: _rule_for_sensitivity",
            "ordinal/decisions.py: SensitivityThreshold",
            "ordinal/decisions.py: threshold_for_sensitivity",
        ),
    ),
    Promise(
        name="ranges-default",
        says="ranges contain the true grade with probability 0.9",
        where="predict --coverage",
        promised=0.9,
        condition=NOT_SHARED,
        meets=_own_errors,
        printed_by=(
            "inference/aspects/ranges.py: Ranges",
            "inference/calibrated_run.py: CalibratedRun",
            "inference/range_evidence.py: Assumption",
            "inference/range_evidence.py: Evidence",
            "inference/ranges.py: RangePromise",
            "inference/ranges.py: RangeRule",
            "inference/range_evidence.py: _all_or_none",
            "inference/ranges.py: conservative_thresholds",
            "ranges.py: OrdinalRanges",
            "ordinal/ranges.py: range_threshold",
            "ordinal/ranges.py: widest_range_threshold",
            "reports/demo.py: _ranges",
            "reports/aspects/ranges.py: _for_each",
            "reports/aspects/ranges.py: _key_numbers",
            "reports/aspects/ranges.py: predicted_promise",
            "reports/aspects/ranges.py: promise_in_words",
        ),
    ),
    Promise(
        name="ranges-class-conditional",
        says="the same with --label-noise class-conditional",
        where="predict --coverage",
        promised=0.9,
        condition="wrong labels depend on the true grade alone",
        meets=_by_true_grade,
        printed_by=("inference/ranges.py: RangeRule",),
    ),
    Promise(
        name="ranges-none",
        says="the same with --label-noise none",
        where="predict --coverage",
        promised=0.9,
        condition="the calibration labels are right",
        meets=_right,
        printed_by=("inference/ranges.py: RangeRule",),
    ),
    Promise(
        name="ranges-verified",
        says="the same with 50 verified grades or more",
        where="predict --coverage",
        promised=0.9,
        condition="the verified samples are drawn at random",
        printed_by=("inference/ranges.py: RangeRule",),
    ),
    Promise(
        name="ranges-by-grade",
        says="ranges contain the true grade with probability 0.9, for each true grade",
        where="predict --coverage-by grade",
        promised=0.9,
        condition=NOT_SHARED,
        meets=_own_errors,
        printed_by=(
            "inference/ranges.py: RangeRule",
            "reports/pages/answers.py: warnings_of",
            "reports/pages/answers.py: _outside_ranges",
            "reports/aspects/ranges.py: _warnings",
        ),
    ),
    Promise(
        name="ranges-per-patient",
        says="ranges contain the highest true grade of a new patient with probability 0.9",
        where="predict --coverage --per patient",
        promised=0.9,
        condition=NOT_SHARED,
        meets=_own_errors,
        printed_by=("inference/ranges.py: RangeRule",),
    ),
    Promise(
        name="ranges-judged",
        says="95 % intervals of the coverage and of the width of ranges",
        where="evaluate --coverage",
        promised=0.95,
        condition="there are fifteen patients or more",
        meets=lambda setting: setting.patients >= 15,
        printed_by=(
            "inference/ranges.py: RangeEvaluation",
            "inference/ranges.py: RangeEvaluation.coverage",
            "inference/ranges.py: RangeEvaluation.width",
            "inference/ranges.py: RangeEvaluation.grades",
            "reports/aspects/ranges.py: _by_grade",
            "reports/aspects/ranges.py: _facts",
        ),
    ),
    Promise(
        name="noise-rate",
        says="95 % interval of the share of wrong labels",
        where="audit, train --noise-rate auto",
        promised=0.95,
        condition=NOT_SHARED,
        meets=_own_errors,
        printed_by=(
            "inference/labels.py: ValidationLabels.noise_interval",
            "noise/estimate.py: NoiseEstimate.rate_interval",
            "noise/estimate.py: _Evidence.interval",
            "noise/estimate.py: estimate_noise",
            "auditing/folder.py: SummaryFile.rate_interval",
            "reports/checklist.py: run_facts",
            "reports/checklist.py: _audit_facts",
            "reports/pages/audit.py: verdict_of",
            "noise/estimate.py: rate_text",
            "reports/pages/study.py: NOISE_CAPTIONS",
            "reports/pages/study.py: NOISE_COLUMNS",
            "reports/demo.py: _with_verified",
            "studies/results.py: StudyResults",
            "training/noise_rate.py: describe",
        ),
    ),
    Promise(
        name="noise-lower-bound",
        says="at least so many labels are wrong (one-sided limit of 95 %)",
        where="audit",
        promised=0.95,
        printed_by=(
            "noise/estimate.py: NoiseEstimate.lower_bound",
            "noise/estimate.py: _Evidence.lower_bound",
        ),
    ),
    Promise(
        name="noise-matrix",
        says="95 % intervals of the noise matrix, mean over its cells",
        where="Python: NoiseEstimate",
        promised=0.95,
        condition="wrong labels depend on the true grade alone",
        meets=_by_true_grade,
        printed_by=("noise/estimate.py: NoiseEstimate.transition_interval",),
    ),
    Promise(
        name="noise-shares",
        says="95 % intervals of the shares of the true grades",
        where="Python: NoiseEstimate",
        promised=0.95,
        condition="wrong labels depend on the true grade alone",
        meets=_by_true_grade,
        printed_by=("noise/estimate.py: NoiseEstimate.prior_interval",),
    ),
    Promise(
        name="noise-rate-second",
        says="95 % interval of the share of wrong labels from a second reading of each image",
        where="Python: estimate_noise",
        promised=0.95,
        condition="two readers of an image err independently",
        printed_by=("noise/estimate.py: estimate_noise",),
    ),
    Promise(
        name="noise-rate-verified",
        says="95 % interval of the share of wrong labels from verified ones and the model",
        where="audit with verified grades",
        promised=0.95,
        condition="the verified labels are drawn at random",
        printed_by=(
            "noise/verified.py: VerifiedRate.interval",
            "noise/verified.py: VerifiedRate.lower_bound",
        ),
    ),
    Promise(
        name="noise-rate-sample",
        says="exact 95 % interval of the share of wrong labels in the verified sample",
        where="audit with verified grades",
        promised=0.95,
        condition="the verified labels are drawn at random; images of a patient are not",
        meets=lambda setting: setting.images == 1 or setting.noise != "patient",
        printed_by=(
            "auditing/scores.py: verified_alone",
            "auditing/folder.py: _Verified.interval_without_model",
        ),
    ),
    Promise(
        name="labels-to-verify",
        says="so many verified labels give the wanted half-width: its mean, over the wanted one",
        where="plan --metric noise-rate, audit",
        promised=1.0,
        at_most=True,
    ),
    Promise(
        name="audit-rates",
        says="95 % intervals of the share of wrong labels of a reader, a grade, a patient",
        where="audit",
        promised=0.95,
        condition=NOT_SHARED,
        meets=_own_errors,
        printed_by=(
            "noise/group_rates.py: GroupRate.interval",
            "reports/pages/audit.py: remarks_of",
            "auditing/folder.py: _Rate.interval",
            "reports/pages/audit.py: RATES",
            "reports/pages/audit.py: RATE_FORMATS",
        ),
    ),
    Promise(
        name="suggestions",
        says="at least half of the suggested grades are right",
        where="audit, review",
        promised=0.5,
        condition=NOT_SHARED,
        meets=_own_errors,
    ),
    Promise(
        name="learnt",
        says="networks that have learnt nothing are said to have learnt (two standard errors)",
        where="audit, train",
        promised=0.025,
        at_most=True,
    ),
    Promise(
        name="recognised",
        says="a grade that networks do not know is said to be recognised (exact test)",
        where="audit",
        promised=0.025,
        at_most=True,
    ),
    Promise(
        name="true-scores-verified",
        says="95 % intervals of scores against the true grades, from verified ones",
        where="evaluate",
        promised=0.95,
        condition="the verified samples are drawn at random",
        printed_by=(
            "inference/true_scores.py: TrueScores.scores",
            "inference/true_scores.py: _inside",
            "reports/aspects/true_scores.py: _sections",
        ),
    ),
    Promise(
        name="true-scores-matrix",
        says="bounds of scores against the true grades, from a noise matrix that is right",
        where="evaluate",
        promised=0.95,
        condition=NOT_SHARED,
        meets=_own_errors,
    ),
    Promise(
        name="true-scores-bounds",
        says="bounds of accuracy and MAE against the true grades, from the share of wrong labels",
        where="evaluate",
        promised=0.95,
        condition=NOT_SHARED,
        meets=_own_errors,
    ),
    Promise(
        name="true-scores-readings",
        says="bounds of scores against the true grades, from several readings",
        where="evaluate",
        promised=0.95,
        printed_by=(
            "inference/true_scores.py: TrueScores.apart",
            "inference/true_scores.py: TrueScores.alike",
            "inference/true_scores.py: _normal",
        ),
    ),
    Promise(
        name="agreement",
        says="95 % intervals of coefficients of agreement, of a pair and of a reader's bias",
        where="readers",
        promised=0.95,
        printed_by=(
            "readers/agreement.py: interval_of",
            "readers/agreement.py: _coefficient",
            "readers/agreement.py: interval_of_share",
            *(
                f"readers/agreement.py: Agreement.{name}"
                for name in (
                    "alpha",
                    "fleiss",
                    "ac2",
                    "icc_one_way",
                    "icc_agreement",
                    "icc_consistency",
                    "exact",
                )
            ),
            "readers/agreement.py: Agreement.within_one",
            "readers/agreement.py: Agreement.quadratic",
            "readers/reader_plan.py: ReaderPlan.agreement",
            "readers/repeats.py: Repeated.exact",
            "readers/repeats.py: Repeated.exact_between",
            "readers/repeats.py: _equal",
            "reports/pages/readers.py: remarks_of",
            "reports/pages/readers.py: _bias",
            "reports/pages/readers.py: PAIR_COLUMNS",
        ),
    ),
    Promise(
        name="reader-plan",
        says="the plausible numbers of items hold the one that is needed for the agreement of readers",
        where="plan READERS",
        promised=0.9,
        printed_by=("readers/reader_plan.py: ReaderPlan",),
    ),
    Promise(
        name="repeats",
        says="95 % intervals of a reader's agreement with themselves: κ, share, limits of agreement",
        where="readers",
        promised=0.95,
        printed_by=(
            "readers/repeats.py: Repeated.exact",
            "readers/repeats.py: Repeated.exact_between",
            "readers/repeats.py: _equal",
            "reports/pages/repeats.py: CAPTION",
            "reports/pages/repeats.py: repeats_sections",
        ),
    ),
    Promise(
        name="network-difference",
        says="95 % interval of κ of a network minus that of the readers",
        where="readers, evaluate",
        promised=0.95,
        printed_by=(
            "readers/network.py: NetworkComparison.difference",
            "readers/network.py: _Difference.interval",
            "readers/network.py: _mean_difference",
        ),
    ),
    Promise(
        name="not-inferior",
        says="a network that is inferior by the margin is said not to be, at the level of 2.5 %",
        where="readers, evaluate",
        promised=0.025,
        at_most=True,
    ),
    Promise(
        name="reader-rates",
        says="95 % intervals of the share of wrong readings, of each reader and of all",
        where="readers",
        promised=0.95,
        printed_by=(
            "readers/intervals.py: ReaderIntervals.noise_rate_interval",
            "readers/intervals.py: ReaderIntervals.overall_noise_rate_interval",
            "readers/intervals.py: ReaderIntervals.matrices_interval",
            "readers/intervals.py: reader_intervals",
            "readers/consensus.py: with_shared_errors",
            "reports/pages/readers.py: _readers",
        ),
    ),
    Promise(
        name="reader-rates-repeats",
        says="the same if readers read images twice, with the weight of second readings estimated",
        where='Python: consensus(repeats="estimated")',
        promised=0.95,
    ),
    Promise(
        name="reader-bias",
        says="95 % intervals of a reader's bias against the true grade",
        where="readers",
        promised=0.95,
        printed_by=("readers/intervals.py: ReaderIntervals.bias_interval",),
    ),
    Promise(
        name="consensus-error",
        says="interval of the share of wrong consensus grades",
        where="readers",
        promised=0.95,
        printed_by=("readers/consensus.py: Consensus.error_interval",),
    ),
    Promise(
        name="plan",
        says="so many patients give the wanted half-width: its mean, over the wanted one",
        where="plan",
        promised=1.0,
        at_most=True,
        condition="errors are by one grade or their spread is given",
        meets=lambda setting: setting.network != "weak",
        printed_by=("inference/planning.py: Planning",),
    ),
    Promise(
        name="plan-pilot",
        says="the plausible numbers of patients hold the one that is needed, from a pilot",
        where="plan PILOT",
        promised=0.9,
        printed_by=("inference/sample_size.py: SamplePlan",),
    ),
    Promise(
        name="beats-one-grade",
        says="answers that are no better than one grade for all are said to be (lower end of a 95 % interval)",
        where="every page",
        promised=0.025,
        at_most=True,
        printed_by=(
            "ordinal/baseline.py: Gain",
            "ordinal/baseline.py: _lowest",
            "reports/pages/evaluation.py: evaluation_facts",
        ),
    ),
    Promise(
        name="analyse-better",
        says="the same of two networks, by the test side or by all patients (two such intervals)",
        where="analyse",
        promised=0.05,
        at_most=True,
        printed_by=("reports/pages/analysis.py: verdict_of_both",),
    ),
    Promise(
        name="sides-apart",
        says="test and validation side are said to be apart by chance (95 % intervals)",
        where="train",
        promised=0.05,
        at_most=True,
        printed_by=("reports/pages/run.py: sides_apart",),
    ),
    Promise(
        name="study-interval",
        says="95 % intervals of the difference between two methods over folds",
        where="study",
        promised=0.95,
        printed_by=(
            "studies/results.py: PairedTest",
            "reports/study_tables.py: paired_caption",
        ),
    ),
    Promise(
        name="study-level",
        says="methods that do not differ are said to, at the level of 5 %",
        where="study",
        promised=0.05,
        at_most=True,
        printed_by=(
            "studies/results.py: PairedTest.p_value",
            "reports/study_tables.py: StudyTables",
            "reports/pages/study.py: _tested",
        ),
    ),
    Promise(
        name="learning-curve",
        says="more images and better labels gain equally, and one is said to help more, at the level of 5 %",
        where="study --learning-curve",
        promised=0.05,
        at_most=True,
    ),
    Promise(
        name="doubt-rate",
        says="95 % interval of the share of wrong labels from labels verified by doubt",
        where="review --sample, audit",
        promised=0.95,
        printed_by=(
            "auditing/verification.py: verified_so_far",
            "noise/verified.py: Share.interval",
            "noise/verified.py: Share.lower_bound",
        ),
    ),
    Promise(
        name="doubt-grades",
        says="95 % intervals of the share of wrong labels of each given grade, from labels verified by doubt",
        where="audit with verified grades",
        promised=0.95,
        printed_by=(
            "auditing/folder.py: _VerifiedGrade.interval",
            "reports/pages/audit.py: _by_grade",
        ),
    ),
    Promise(
        name="doubt-looks",
        says="the intervals of all looks hold the share of wrong labels together",
        where="review --within",
        promised=0.95,
        printed_by=("cli/review.py: _looked",),
    ),
    Promise(
        name="doubt-scores",
        says="95 % intervals of scores against the true grades, from labels verified by doubt",
        where="evaluate",
        promised=0.95,
    ),
    Promise(
        name="doubt-shorter",
        says="labels verified by doubt have no wider an interval than as many at random: its width, over theirs",
        where="review --sample",
        promised=1.0,
        at_most=True,
        condition="some labels are wrong",
        meets=lambda setting: setting.rate > 0.0,
    ),
    Promise(
        name="doubt-needed",
        says="so many labels verified by doubt give the wanted half-width: its mean, over the wanted one",
        where="audit, review --sample",
        promised=1.0,
        at_most=True,
        condition="wrong labels do not depend on the patient",
        meets=lambda setting: setting.images == 1 or setting.noise != "patient",
    ),
    Promise(
        name="doubt-at-worst",
        says="labels verified by doubt have an interval at most a tenth wider: its width, over 1.1 times theirs",
        where="review --sample",
        promised=1.0,
        at_most=True,
    ),
)

# They show intervals that others have made, whichever these are.
SHOWN_BY = (
    "integrations/dicom_sr.py: write_reports",
    "ordinal/intervals.py: Interval",
    "reports/figures/canvas.py: Estimate.interval",
    "reports/figures/results.py: bias_figure",
    "reports/figures/results.py: forest_figure",
    "reports/page.py: KeyNumber.interval",
    "reports/sections.py: interval_frame",
    "reports/sections.py: interval_text",
)
