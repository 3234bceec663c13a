"""How the promises are simulated: the grid of unfavourable settings, and one simulation for one
promise or several.

The trial of a simulation returns, for each "promise: quantity", 1 if the promise was kept and 0 if
not, or a share, or nan where nothing was said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from promised import noise, readers, scores, verification
from promised.population import Setting
from promised.scores import Held


@dataclass(frozen=True, kw_only=True)
class Simulation:
    name: str
    trial: Callable[[Setting, np.random.Generator], Held]
    trials: int
    promises: tuple[str, ...]  # the quantities name theirs, unless there is only one
    settings: tuple[Setting, ...]  # the first two are the quick version


# ---------------------------------------------------------------------- the grid


_FEW = Setting(patients=10, images=40, network="weak")
_SKEWED = Setting(patients=40, images=0, network="weak")
_PERFECT = Setting(patients=50, network="nearly perfect")
_RARE = Setting(patients=100, rare=True, network="weak")

SCORES = (
    _PERFECT,
    _RARE,
    _FEW,
    _SKEWED,
    Setting(patients=10),
    Setting(patients=30, grades=2, network="nearly perfect"),
    Setting(patients=100, grades=2, rare=True),
    Setting(patients=15, images=0),
    Setting(patients=100, images=4, network="blind"),
    Setting(patients=300, grades=10, rare=True, network="weak"),
    Setting(patients=1000, grades=10, images=1),
    Setting(patients=1000, images=0, rare=True),
    Setting(patients=50, network="nearly perfect", far=0.02),
)
RUNS = (
    Setting(patients=15, images=0, network="weak"),
    _PERFECT,
    Setting(patients=40, images=0),
    Setting(patients=40, images=0, network="weak", trainings=2),
    Setting(patients=40, large=3, network="weak"),
    Setting(patients=10, images=40),
    _RARE,
    Setting(patients=300, grades=10, images=0, network="blind"),
    Setting(patients=30, grades=2, trainings=5),
)
GROUPS = (
    Setting(patients=0, groups=(10, 200), network="nearly perfect"),
    Setting(patients=0, groups=(10, 10, 10, 10, 10, 200), network="nearly perfect"),
    Setting(patients=0, groups=(50, 50)),
    Setting(patients=0, groups=(20, 300), rare=True, network="weak"),
    Setting(patients=0, groups=(12, 12, 12, 200), images=0),
    Setting(patients=0, groups=(30, 100), grades=2, images=4),
    Setting(patients=0, groups=(10, 40), grades=10, network="blind"),
)
REFERRAL = (
    _PERFECT,
    _SKEWED,
    _FEW,
    _RARE,
    Setting(patients=20, grades=2),
    Setting(patients=100, grades=2, rare=True, images=0),
    Setting(patients=300, grades=10, images=4),
    Setting(patients=1000, rare=True),
)
THRESHOLDS = (
    Setting(patients=40, images=0, network="weak"),
    Setting(patients=100, rare=True, images=4),
    Setting(patients=30, grades=2),
    Setting(patients=300, grades=10, images=0),
    Setting(patients=1000, network="weak"),
    Setting(patients=300, noise="class", rate=0.2),
    Setting(patients=300, noise="patient", rate=0.2, images=4),
)
LABELS = (
    Setting(patients=300, rare=True, network="weak"),
    Setting(patients=300, noise="difficulty", rate=0.2),
    Setting(patients=100, network="weak"),
    Setting(patients=600, grades=5, rare=True, network="blind"),
    Setting(patients=300, grades=2, rare=True),
    Setting(patients=300, grades=10),
    Setting(patients=1000, network="nearly perfect"),
    Setting(patients=50, images=0),
    Setting(patients=300, noise="class", rate=0.2, network="weak"),
    Setting(patients=300, noise="class", rate=0.3, rare=True),
    Setting(patients=150, noise="patient", rate=0.2, images=4),
    Setting(patients=100, noise="difficulty", rate=0.3, images=0, network="weak"),
    Setting(patients=300, grades=2, noise="class", rate=0.1),
    Setting(patients=300, grades=10, noise="difficulty", rate=0.3),
    Setting(patients=1000, noise="class", rate=0.2),
    Setting(patients=300, noise="shared", rate=0.3),
)
# where labels alone tell how many are wrong, where verified ones do, and where nothing does
AUDITS = (
    Setting(patients=300, noise="chance", rate=0.3),
    Setting(patients=300, grades=10, noise="chance", rate=0.2),
    Setting(patients=1000, noise="chance", rate=0.05, rare=True, network="nearly perfect"),
    Setting(patients=150, images=4, grades=5, noise="chance", rate=0.4),
    Setting(patients=300, rare=True, network="weak", verified=100),
    Setting(patients=300, noise="difficulty", rate=0.2, verified=100),
    Setting(patients=300, noise="class", rate=0.3, network="weak", verified=50),
    Setting(patients=150, images=4, noise="patient", rate=0.2, verified=100),
    Setting(patients=60, images=0, noise="class", rate=0.2, verified=60),
    Setting(patients=300, grades=2, noise="class", rate=0.1, verified=100),
    Setting(patients=600, grades=5, rare=True, network="blind", verified=100),
    Setting(patients=300, noise="shared", rate=0.3, verified=100),
    LABELS[0],
    LABELS[13],
)
VERIFIED = (
    Setting(patients=300, verified=50, noise="class", rate=0.1),
    Setting(patients=300, verified=100),
    Setting(patients=300, verified=20, noise="class", rate=0.3, network="weak"),
    Setting(patients=60, images=0, verified=100, noise="patient", rate=0.2),
    Setting(patients=1000, verified=200, noise="difficulty", rate=0.05),
    Setting(patients=300, grades=10, verified=100, noise="shared", rate=0.3),
)
TRUTH = (
    Setting(patients=300, noise="class", rate=0.2, verified=100),
    Setting(patients=100, network="nearly perfect", verified=50),
    Setting(patients=300, rare=True, noise="difficulty", rate=0.2, verified=100),
    Setting(patients=60, images=0, noise="patient", rate=0.2, verified=60),
    Setting(patients=300, grades=2, network="weak", noise="class", rate=0.3, verified=30),
    Setting(patients=300, noise="shared", rate=0.3, verified=100),
)
BY_DOUBT = (
    Setting(patients=600, verified=100, noise="class", rate=0.2),
    Setting(patients=600, verified=50, noise="difficulty", rate=0.3, network="weak"),
    Setting(patients=600, verified=100),
    Setting(patients=600, verified=100, noise="class", rate=0.05, rare=True),
    Setting(patients=600, verified=100, noise="shared", rate=0.3),
    Setting(patients=120, images=0, verified=100, noise="patient", rate=0.2),
    Setting(patients=1000, grades=2, verified=200, noise="class", rate=0.4, network="weak"),
    Setting(patients=600, verified=100, noise="class", rate=0.2, network="blind"),
)
TWICE = (
    Setting(patients=300, noise="difficulty", rate=0.2, readers=2),
    Setting(patients=300, network="weak", readers=2),
    Setting(patients=300, noise="class", rate=0.2, network="weak", readers=2),
    Setting(patients=100, noise="difficulty", rate=0.3, images=0, readers=2),
    Setting(patients=300, grades=2, noise="class", rate=0.1, readers=2),
)
CHANCE = (  # how sure the network is; what it sees are other patients
    Setting(patients=100, network="blind"),
    Setting(patients=30, images=4, network="blind"),
    Setting(patients=20),
    Setting(patients=300, rare=True, network="weak"),
    Setting(patients=30, images=0, noise="patient", rate=0.2),
    Setting(patients=300, grades=10),
)
READERS = (
    Setting(network="", patients=30, readers=3),
    Setting(network="", patients=200, readers=4, rare=True),
    Setting(network="", patients=10, images=20, readers=3),
    Setting(network="", patients=60, images=0, readers=4),
    Setting(network="", patients=100, grades=2, readers=2),
    Setting(network="", patients=100, grades=10, readers=6),
)
CONSENSUS = (
    Setting(patients=100, readers=3),
    Setting(patients=60, images=0, readers=4, rare=True),
    Setting(patients=100, grades=2, readers=4),
    Setting(patients=100, grades=7, readers=5),
    Setting(patients=150, readers=3, noise="shared", rate=readers.MISLED),
)
READ_TWICE = (
    Setting(network="", patients=60, readers=3),
    Setting(network="", patients=30, images=0, readers=3, rare=True),
    Setting(network="", patients=100, grades=2, readers=2),
    Setting(network="", patients=100, grades=7, readers=4),
)
BESIDE = (
    Setting(network="", patients=100, readers=3),
    Setting(network="", patients=20, readers=3),
    Setting(network="", patients=30, images=0, readers=4),
    Setting(network="", patients=200, readers=3, rare=True),
)
PLANS = (
    Setting(patients=0),
    Setting(patients=0, rare=True, network="weak"),
    Setting(patients=0, grades=2, rare=True),
    Setting(patients=0, grades=10, network="weak"),
    Setting(patients=0, grades=7, rare=True),
)
PILOTS = (
    Setting(patients=10, network="weak"),
    Setting(patients=30, images=0, network="weak"),
    Setting(patients=100, rare=True),
    Setting(patients=100, images=4),
)
EQUAL = (
    Setting(patients=15, images=0, network="weak"),
    Setting(patients=50, grades=2, network="nearly perfect"),
    Setting(patients=10),
    Setting(patients=300, grades=10, images=4),
    Setting(patients=50, network="nearly perfect", far=0.02),
)
EQUAL += (  # where the verdict hangs on few patients: those with the one grade
    Setting(network="", patients=60, images=4, grades=10, one_grade=6),
    Setting(network="", patients=30, images=4, grades=10, one_grade=3),
    *(
        Setting(network="", patients=patients, images=4, grades=grades, one_grade=few)
        for grades in (4, 10)
        for patients in (30, 60, 100)
        for few in (3, 6, 9)
        if (grades, patients, few) not in ((10, 60, 6), (10, 30, 3))
    ),
    Setting(network="", patients=60, grades=10, one_grade=6),
    Setting(network="", patients=60, images=20, grades=10, one_grade=6),
    Setting(network="", patients=60, images=0, grades=10, one_grade=6),
    Setting(network="", patients=15, images=4, one_grade=4),
)
UNION = (
    Setting(patients=50, images=0),
    Setting(patients=60, images=20, rare=True),
    Setting(patients=100, grades=2),
    Setting(patients=300, grades=10, images=4),
    Setting(patients=300, far=0.02),
    Setting(patients=1000, rare=True),
)
FOLDS = (
    Setting(network="", patients=100),
    Setting(network="", patients=300, trainings=3),
    Setting(network="", patients=60, grades=2, rare=True),
    Setting(network="", patients=1000, grades=10),
)

RANGES = ("default", "class-conditional", "none", "verified", "by-grade", "per-patient")

SIMULATIONS = (
    Simulation(
        name="scores",
        promises=("score-intervals", "macro-intervals"),
        trial=scores.scores,
        trials=400,
        settings=SCORES,
    ),
    Simulation(
        name="runs",
        promises=("difference-interval", "difference-level"),
        trial=scores.two_runs,
        trials=400,
        settings=RUNS,
    ),
    Simulation(
        name="groups",
        promises=("subgroup-differs", "subgroup-gap", "subgroup-score"),
        trial=scores.equal_groups,
        trials=150,
        settings=GROUPS,
    ),
    Simulation(
        name="referral",
        promises=("referral-intervals",),
        trial=scores.referral,
        trials=400,
        settings=REFERRAL,
    ),
    Simulation(
        name="abstention",
        promises=("kept-accuracy",),
        trial=scores.abstention,
        trials=400,
        settings=REFERRAL,
    ),
    Simulation(
        name="threshold",
        promises=("sensitivity-threshold",),
        trial=scores.threshold,
        trials=300,
        settings=THRESHOLDS,
    ),
    Simulation(name="plans", promises=("plan",), trial=scores.planned, trials=60, settings=PLANS),
    Simulation(
        name="pilots", promises=("plan-pilot",), trial=scores.pilots, trials=300, settings=PILOTS
    ),
    Simulation(
        name="equal",
        promises=("beats-one-grade", "sides-apart"),
        trial=scores.by_chance,
        trials=2000,
        settings=EQUAL,
    ),
    Simulation(
        name="union",
        promises=("analyse-better",),
        trial=scores.by_test_side_or_all,
        trials=2000,
        settings=UNION,
    ),
    Simulation(
        name="folds",
        promises=("study-interval", "study-level"),
        trial=scores.folds,
        trials=600,
        settings=FOLDS,
    ),
    Simulation(
        name="curves",
        promises=("learning-curve",),
        trial=scores.learning_curve,
        trials=200,
        settings=tuple(
            Setting(patients=0, grades=0, network="", trainings=runs) for runs in (1, 2, 3, 5, 15)
        ),
    ),
    Simulation(
        name="labels",
        promises=(
            "noise-rate",
            "noise-lower-bound",
            "noise-matrix",
            "noise-shares",
            *(f"ranges-{kind}" for kind in RANGES),
        ),
        trial=noise.from_labels,
        trials=40,
        settings=LABELS,
    ),
    Simulation(
        name="audits",
        promises=("audit-rates", "suggestions"),
        trial=noise.audited,
        trials=20,
        settings=AUDITS,
    ),
    Simulation(
        name="judged",
        promises=("ranges-judged",),
        trial=noise.judged_ranges,
        trials=300,
        settings=REFERRAL,
    ),
    Simulation(
        name="verified",
        promises=("noise-rate-verified", "noise-rate-sample"),
        trial=noise.verified_rate,
        trials=30,
        settings=VERIFIED,
    ),
    Simulation(
        name="twice",
        promises=("noise-rate-second",),
        trial=noise.read_twice,
        trials=30,
        settings=TWICE,
    ),
    Simulation(
        name="needed",
        promises=("labels-to-verify",),
        trial=noise.labels_needed,
        trials=300,
        settings=tuple(
            Setting(patients=0, grades=0, network="", rate=rate) for rate in (0.02, 0.2, 0.5)
        ),
    ),
    Simulation(
        name="chance",
        promises=("learnt", "recognised"),
        trial=noise.chance,
        trials=80,
        settings=CHANCE,
    ),
    Simulation(
        name="truth",
        promises=("true-scores-verified", "true-scores-matrix", "true-scores-bounds"),
        trial=noise.against_truth,
        trials=30,
        settings=TRUTH,
    ),
    Simulation(
        name="agreement",
        promises=("agreement",),
        trial=readers.agree,
        trials=300,
        settings=READERS,
    ),
    Simulation(
        name="reader-plans",
        promises=("reader-plan",),
        trial=readers.planned,
        trials=200,
        settings=READERS,
    ),
    Simulation(
        name="repeats",
        promises=("repeats",),
        trial=readers.read_again,
        trials=300,
        settings=READERS,
    ),
    Simulation(
        name="consensus",
        promises=("reader-rates", "reader-bias", "consensus-error", "true-scores-readings"),
        trial=readers.agreed,
        trials=20,
        settings=CONSENSUS,
    ),
    Simulation(
        name="consensus-twice",
        promises=("reader-rates-repeats",),
        trial=readers.agreed_twice,
        trials=40,
        settings=READ_TWICE,
    ),
    Simulation(
        name="beside",
        promises=("network-difference", "not-inferior"),
        trial=readers.network_beside_readers,
        trials=40,
        settings=BESIDE,
    ),
    Simulation(
        name="by-doubt",
        promises=("doubt-rate", "doubt-grades", "doubt-scores", "doubt-shorter", "doubt-at-worst"),
        trial=verification.verified_by_doubt,
        trials=400,
        settings=BY_DOUBT,
    ),
    Simulation(
        name="needed-by-doubt",
        promises=("doubt-needed",),
        trial=verification.needed_by_doubt,
        trials=300,
        settings=BY_DOUBT,
    ),
    Simulation(
        name="looks",
        promises=("doubt-looks",),
        trial=verification.looked_at_again,
        trials=400,
        settings=BY_DOUBT[:4],
    ),
)
