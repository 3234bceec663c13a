"""Score every label from a cross-fit and a noise estimate, and every single reading where several
readers graded; and say whether the networks have learnt enough for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from srjt.data.duplicates import contradictory_twins
from srjt.data.manifest import neutralise_formula
from srjt.data.sources.readings import combine
from srjt.errors import count_of
from srjt.noise.drawing import labels_needed
from srjt.noise.estimate import NoiseEstimate
from srjt.noise.group_rates import GroupRate, group_rates
from srjt.noise.quality import suggestion_shares, true_grade_posterior
from srjt.noise.verified import exact_interval, labels_to_verify, repetition
from srjt.ordinal import patient_codes
from srjt.ordinal.metrics import Floats, Ints, naive_baseline
from srjt.readers.consensus import Consensus
from srjt.readers.readings import Readings
from srjt.training.baselines import not_beaten
from srjt.training.crossfit import CrossFit

# Whether the networks of an audit have learnt enough to judge single labels, and what is said if
# they have not.

LEARNT_NOTHING = (
    "The networks have not learnt to tell the grades apart: no label is taken to be wrong by them,"
    " and the order of the labels may be chance."
)
RECOGNISED = 0.025  # how often a grade that networks do not know is said to be recognised, at most
READINGS_REMAIN = (
    "The networks have not learnt to tell the grades apart: what is said here rests on the"
    " readings."
)


def network_scores(
    labels: Ints,
    network_grades: Sequence[Ints],
    *,
    grades: Sequence[str],
    owner: Ints | None = None,
) -> dict[str, Any]:
    """How far the held-out grades of the networks equal the labels, beside a naive prediction, as
    JSON holds it.

    labels: (N,); network_grades: (N,) of each network; grades: (C,) names; owner: (N,) the patient
    of each sample. A grade is recognised if the networks say it more often of samples with this
    label than of others, by Fisher's exact test at the level of 2.5 %; samples of a patient whose
    answers repeat each other count less.
    """
    patient = np.arange(len(labels)) if owner is None else owner
    answers = np.stack(network_grades)
    counts = np.bincount(labels, minlength=len(grades))
    naive = naive_baseline(counts, counts)
    rows = []
    for code, name in enumerate(grades):
        labelled = labels == code
        answered = answers == code
        recall = 0.0
        if labelled.any():
            recall = float(answered[:, labelled].mean())
        clear = _said_more_often(answered.mean(axis=0), labelled, patient)
        rows.append(
            {
                "grade": name,
                "labels": int(labelled.sum()),
                "recall": round(recall, 4),
                "recognised": clear,
            }
        )
    scores = {
        "accuracy": float((answers == labels).mean()),
        "mae": float(np.abs(answers - labels).mean()),
        "naive_accuracy": naive.accuracy,
        "naive_mae": naive.mae,
    }
    return {name: round(value, 4) for name, value in scores.items()} | {"grades": rows}


def _said_more_often(said: Floats, true: npt.NDArray[np.bool_], patient: Ints) -> bool:
    """Whether something is said more often of some samples than of the others, by Fisher's exact
    test at 2.5 %.

    Two standard errors would not do: of a rare grade, one answer that fits by chance is beyond
    them. The counts are those of as many independent samples as tell as much.

    said: (N,) the share of the networks that say it; true: (N,) the samples it is right of;
    patient: (N,) codes.
    """
    from scipy.stats import hypergeom  # type: ignore[import-untyped]  # takes long to import

    repeated = repetition(said, patient)
    counts = (len(said), true.sum(), said.sum(), said[true].sum())
    samples, right, often, both = (round(float(count) / repeated) for count in counts)
    by_chance = float(hypergeom.sf(both - 1, samples, right, often))
    return by_chance <= RECOGNISED


def networks_caveat(networks: Mapping[str, Any], *, learnt: bool, readings: bool) -> str:
    """What the reader of an audit must know first about its networks; "" if they have learnt the
    grades.

    networks: see ``network_scores``. learnt: whether their probabilities say more about the labels
    than how common each grade is, the test that decides whether ``srjt train`` uses an estimate.
    readings: whether several readers graded the samples. The networks are judged by their absolute
    error, the metric that grades are for unless another is chosen.
    """
    sentences = []
    if not_beaten(networks["mae"], networks["naive_mae"], purpose="mae"):
        sentences.append(
            "The networks do not beat a naive prediction: on average their held-out grades are"
            f" {networks['mae']:.2f} grades from the labels, and always the median label would be"
            f" {networks['naive_mae']:.2f}."
        )
    if not learnt:
        sentences.append(READINGS_REMAIN if readings else LEARNT_NOTHING)
    return " ".join(sentences)


def judges_labels(summary: Mapping[str, Any]) -> bool:
    """Whether what the audit says of single labels rests on more than networks that have learnt
    nothing."""
    return bool(summary.get("learnt", True)) or "readings" in summary


NOTICES: list[tuple[Callable[[Mapping[str, Any]], bool], str]] = [  # the first that holds
    (
        lambda s: not judges_labels(s),
        "The networks of this audit have not learnt to tell the grades apart: they suggest nothing,"
        " and the order of the images may be chance.",
    ),
    (lambda s: not s["learnt"], READINGS_REMAIN),
    (
        lambda s: bool(s["caveat"]),
        "The networks do not beat one grade for all: trust your own reading.",
    ),
    (
        lambda s: not s["identifiable"],
        "How many labels are wrong is not known ({rate_interval[0]:.0%} to {rate_interval[1]:.0%}):"
        " the labels are in the order of doubt, without probabilities.",
    ),
    (
        lambda s: True,
        "The networks agree with {networks[accuracy]:.0%} of the labels; always giving the most"
        " frequent grade would agree with {networks[naive_accuracy]:.0%}.",
    ),
]


def review_notice(summary: Mapping[str, Any]) -> str:
    """What a reviewer must know first about an audit, in one sentence."""
    return next(template.format(**summary) for holds, template in NOTICES if holds(summary))


# Score every label from a cross-fit and a noise estimate, and sum the scores up to error rates.

WITHIN = 0.05  # how precisely the plan of a verification aims to know the rate
DIGITS = 6  # of probabilities: differences beyond are rounding, and must not decide the order


def score(
    fitted: CrossFit,
    estimate: NoiseEstimate,
    *,
    images: Sequence[str],
    reader: str | None = None,
    posterior: Floats | None = None,
) -> pd.DataFrame:
    """One row per sample, the most doubtful label first (ties by id), with the columns of
    ``audit.csv``.

    Contradictory twins (the same pixels with different labels) come before all others, each beside
    its twin: one of their labels is wrong for certain. Their column ``twins`` numbers the pairs.
    Verified labels come last: they are known, so they are neither doubtful nor suggested for.

    images: (N,) the file of each sample's image, "" if there is none. reader: the column that names
    the reader of each label. posterior: (N, C) p(true grade | image, all readings), if several
    readers graded the samples. The index is the sample's row in ``fitted.manifest``. ``suggested``
    is the most probable grade; "" where that is another than the label, but of such suggestions
    less than half are expected to be right, or where the networks do not recognise the one grade or
    the other. ``right`` is that share. What readings suggest does not rest on the networks alone.
    """
    manifest = fitted.manifest
    names = np.array(manifest.grades, dtype=object)
    labels = manifest.labels
    twins = contradictory_twins(manifest)
    right = None
    withheld = np.zeros(len(labels), dtype=bool)
    if posterior is None:
        posterior = _posterior(fitted, estimate, twins)
        right, withheld = _suggestions(fitted, estimate, posterior, twins)
    checked = np.zeros(len(labels), dtype=bool)
    verified = manifest.verified_labels
    if verified is not None:
        checked = verified >= 0
    suggested = posterior.argmax(axis=1)
    posterior = posterior.round(DIGITS)
    columns: dict[str, Any] = {
        "id": manifest.ids,
        "image": list(images),
        "grade": names[labels],
        "suggested": np.where(withheld | checked, "", names[suggested]),
        "quality": posterior[np.arange(len(labels)), labels],
        "distance": np.abs(suggested - labels),
    }
    if right is not None:
        columns["right"] = right.round(DIGITS)
    for grade in range(manifest.num_classes):
        columns[f"p_{grade}"] = posterior[:, grade]
    for number, answer in enumerate(fitted.grades, start=1):
        columns[f"network_{number}"] = names[answer]
    columns["fold"] = fitted.fold
    columns["selected"] = fitted.selected.round(DIGITS)
    if manifest.patients is not None:
        columns["patient"] = manifest.patients
    if reader is not None:
        readers = manifest.table[reader]
        columns["reader"] = ["" if pd.isna(name) else str(name) for name in readers]
    if manifest.true_labels is not None:
        columns["true_grade"] = names[manifest.true_labels]
    if verified is not None:
        columns["verified_grade"] = np.where(checked, names[verified], "")
    if manifest.verified_probability is not None:
        drawn = manifest.verified_probability
        columns["verified_probability"] = np.where(checked, drawn, np.nan)
    return _ranked(pd.DataFrame(columns), twins, checked)


def _posterior(fitted: CrossFit, estimate: NoiseEstimate, twins: Ints) -> Floats:
    """(N, C) the probability of each true grade, by the networks."""
    manifest = fitted.manifest
    options: dict[str, Any] = {}
    if twins.any():
        options["same_image"] = np.where(twins > 0, twins, -np.arange(len(twins)))
    # Verified labels tell of each given grade how many of its labels are wrong: what is said of
    # single labels must not contradict it.
    if estimate.verified_shares:
        options["label_rates"] = [rate for rate, _, _ in estimate.verified_shares]
    return true_grade_posterior(
        manifest.labels,
        fitted.probabilities,
        groups=manifest.groups,
        verified=manifest.verified_labels,
        rate=estimate.rate,
        **options,
    )


def _suggestions(
    fitted: CrossFit, estimate: NoiseEstimate, posterior: Floats, twins: Ints
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(N,) the share of such suggestions that are right, and (N,) which suggestions are not
    shown."""
    manifest = fitted.manifest
    labels = manifest.labels
    best = posterior.argmax(axis=1)
    right = suggestion_shares(
        labels, fitted.probabilities, best, estimate=estimate, groups=manifest.groups
    )
    owner = patient_codes(manifest.patients, len(labels))
    seen = network_scores(labels, list(fitted.grades), grades=manifest.grades, owner=owner)
    known = np.array([row["recognised"] for row in seen["grades"]])
    certain = twins > 0  # one label of a pair is wrong for certain
    withheld = ~certain & (best != labels) & ((right < 0.5) | ~known[best] | ~known[labels])
    return np.where(certain, posterior.max(axis=1), right), withheld


def _ranked(table: pd.DataFrame, twins: Ints, checked: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """The rows in their order: the pairs first, by their more doubtful label; what is verified
    last."""
    table["checked"] = checked
    table["lowest"] = table.groupby(twins)["quality"].transform("min").where(twins > 0, np.inf)
    table["pair"] = np.where(twins > 0, twins, twins.max() + 1)
    ranked = table.sort_values(["checked", "lowest", "pair", "quality", "id"], kind="stable")
    ranked = ranked.drop(columns=["checked", "lowest", "pair"])
    if twins.any():
        number: dict[int, int] = {0: 0}  # 1, 2, … in the order of the rows
        pairs = twins[ranked.index].tolist()
        ranked["twins"] = [str(number.setdefault(pair, len(number)) or "") for pair in pairs]
    ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
    return ranked


def error_rates(
    scores: pd.DataFrame, column: str, *, rates: Sequence[float] | None, unseen: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """For each value of a column: its labels, how many of them are expected to be wrong, and the
    error rate with its interval; the highest rate first (ties by name).

    rates: the lower end, the point and the upper end of the share of wrong labels; None where it is
    not determined. Then there is the order alone, by the mean doubt, without a rate. unseen: values
    that the networks do not recognise, of which nothing is said either.
    """
    value, names = pd.factorize(scores[column].astype(str), sort=True)
    verified = None
    if "verified_grade" in scores:
        verified = (scores["verified_grade"] != "").to_numpy()
    quality = scores["quality"].to_numpy(np.float64)
    doubt = np.bincount(value, 1.0 - quality) / np.bincount(value)
    known: dict[str, GroupRate] = {}
    if rates is not None:
        groups = group_rates(
            quality,
            value,
            rates=rates,
            verified=verified,
            by_label=column == "grade",
            repeated=_repeated(scores, column),
        )
        doubt = np.array([group.rate for group in groups])
        known = dict(zip(map(str, names), groups, strict=True))
    for name in unseen:
        known.pop(name, None)
    size = np.bincount(value)
    rows = []
    # a stable sort: ties stay in the order of names
    order = np.argsort(-doubt.round(DIGITS), kind="stable").tolist()
    for rank, place in enumerate(order, start=1):
        name = str(names[place])
        rate = _rate_facts(known.get(name))
        rows.append({column: name, "samples": int(size[place]), "rank": rank, **rate})
    return rows


def _rate_facts(group: GroupRate | None) -> dict[str, Any]:
    """What summary.json holds of a rate; None: it is not determined."""
    if group is None:
        return {"expected_errors": None, "rate": None, "interval": None}
    return {
        "expected_errors": round(group.errors, 2),
        "rate": round(group.rate, 4),
        "interval": [round(end, 4) for end in group.interval],
    }


def _repeated(scores: pd.DataFrame, column: str) -> float:
    """How many labels carry the information of one, because those of a patient are wrong
    together."""
    if column == "patient" or "patient" not in scores:
        return 1.0
    return repetition(
        1.0 - scores["quality"].to_numpy(np.float64), pd.factorize(scores["patient"])[0]
    )


def reader_rates(agreed: Consensus) -> list[dict[str, Any]]:
    """As ``error_rates``, of the readers of a consensus, whose intervals hold errors that readers
    share."""
    rows = []
    order = np.argsort(-agreed.noise_rate.round(DIGITS), kind="stable").tolist()
    for rank, reader in enumerate(order, start=1):
        count = int(agreed.readings[reader])
        rate = float(agreed.noise_rate[reader])
        ends = agreed.noise_rate_interval[:, reader]
        group = None
        if agreed.determined:
            group = GroupRate(count, rate * count, rate, (float(ends[0]), float(ends[1])))
        name = neutralise_formula(agreed.readers[reader])
        rows.append({"reader": name, "samples": count, "rank": rank, **_rate_facts(group)})
    return rows


def summarise(
    scores: pd.DataFrame,
    estimate: NoiseEstimate,
    *,
    grades: Sequence[str],
    agreed: Consensus | None = None,
) -> dict[str, Any]:
    """The contents of ``summary.json``, as values that JSON can hold.

    agreed: the consensus of the readers and the networks, if several readers graded. Then the
    scores are of consensus grades, and how many of them are wrong is what the consensus says.
    """
    networks = _networks(scores, grades)
    share = noise_facts(estimate) if agreed is None else consensus_facts(agreed, scores, estimate)
    rates = None
    if share["identifiable"] and (estimate.learnt or agreed is not None):
        low, high = share["rate_interval"]
        rates = (low, share["rate"], high)
    unseen = []
    if agreed is None:  # what several readings say does not rest on the networks alone
        unseen = [row["grade"] for row in networks["grades"] if not row["recognised"]]
    of_grades = error_rates(scores, "grade", rates=rates, unseen=unseen)

    def rates_by(column: str) -> list[dict[str, Any]] | None:
        if column not in scores:
            return None
        return error_rates(scores, column, rates=rates)

    summary: dict[str, Any] = {
        "samples": len(scores),
        "caveat": networks_caveat(networks, learnt=estimate.learnt, readings=agreed is not None),
        "networks": networks,
        "unrecognised": unseen,
        "learnt": estimate.learnt,
        **share,
        "form": estimate.form,
        "form_weight": estimate.form_weight,
        "matrix": estimate.transition.tolist(),
        "prior": estimate.prior.tolist(),
        "expected_errors": rates and round(float((1 - scores["quality"]).sum()), 2),
        "another_likelier": int((unverified(scores)["distance"] > 0).sum()),
        "grades": sorted(of_grades, key=lambda row: grades.index(row["grade"])),
        "patients": rates_by("patient"),
        "readers": rates_by("reader") if agreed is None else reader_rates(agreed),
        **_to_verify(scores, estimate),
    }
    if agreed is not None:
        summary |= _readings_facts(agreed)
    offered = suggestions(scores)
    if "right" in scores:
        mean = float(offered["right"].mean()) if len(offered) else 0.0
        summary["suggestions"] = {"count": len(offered), "expected_right": round(mean, 4)}
    if "verified_grade" in scores:
        sample = scores[scores["verified_grade"] != ""]
        wrong = (sample["grade"] != sample["verified_grade"]).to_numpy().astype(np.float64)
        weights = None
        if "verified_probability" in sample:
            weights = 1.0 / sample["verified_probability"].to_numpy()
        summary["verified"] = verified_summary(wrong, weights)
        if estimate.verified_shares:
            of_sample = _verified_grades(sample, estimate, grades)
            summary["verified"]["grades"] = of_sample
            summary["grades"] = _with_verified(summary["grades"], of_sample)
    if "twins" in scores:
        summary["twins"] = {
            "images": int(scores["twins"].replace("", None).nunique()),
            "labels": int((scores["twins"] != "").sum()),
        }
    if "true_grade" in scores:
        summary["known"] = _against_truth(scores)
    return summary


def _networks(scores: pd.DataFrame, grades: Sequence[str]) -> dict[str, Any]:
    """How far the networks' grades in the table equal its labels."""

    def codes(column: str) -> Ints:
        return np.asarray(scores[column].map(list(grades).index), dtype=np.int64)

    columns = [str(name) for name in scores if str(name).startswith("network_")]
    owner = None
    if "patient" in scores:
        owner = patient_codes(scores["patient"].tolist(), len(scores))
    return network_scores(codes("grade"), list(map(codes, columns)), grades=grades, owner=owner)


def noise_facts(estimate: NoiseEstimate) -> dict[str, Any]:
    """How many labels are wrong, as JSON holds it. ``rate`` is what the order of the labels, and a
    training, rest on: unless it is ``identifiable``, no more than the interval is known."""
    return {
        "rate": estimate.rate,
        "rate_interval": list(estimate.rate_interval),
        "identifiable": estimate.identifiable,
        "reason": estimate.reason,
        "lower_bound": estimate.lower_bound,
        "assumption": estimate.assumption,
    }


def consensus_facts(
    agreed: Consensus, scores: pd.DataFrame, estimate: NoiseEstimate
) -> dict[str, Any]:
    """As ``noise_facts``, of consensus grades.

    The consensus takes verified grades as known, so its own error is what remains of the others.
    How many of the audited grades are wrong is then what the verified ones say, as in the review;
    where they are too few for that, those that proved wrong are added to the error that remains.
    """
    wrong = 0.0
    if "verified_grade" in scores:
        if estimate.identifiable:
            return noise_facts(estimate)
        known = scores[scores["verified_grade"] != ""]
        wrong = float((known["grade"] != known["verified_grade"]).sum()) / len(scores)
    low, high = agreed.error_interval
    return {
        "rate": agreed.error + wrong,
        "rate_interval": [low + wrong, high + wrong],
        "identifiable": agreed.determined,
        "reason": agreed.reason,
        "lower_bound": low + wrong,
        "assumption": agreed.assumption,
    }


def _readings_facts(agreed: Consensus) -> dict[str, Any]:
    wrong: dict[str, Any] = {"rate": None, "interval": list(agreed.overall_noise_rate_interval)}
    if agreed.determined:
        wrong["rate"] = agreed.overall_noise_rate
    return {"readings": int(agreed.readings.sum()), "wrong_readings": wrong}


def unverified(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows whose true grade nobody has told."""
    if "verified_grade" not in scores:
        return scores
    return scores[scores["verified_grade"] == ""]


def suggestions(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows for which another grade is suggested."""
    return scores[(scores["suggested"] != "") & (scores["suggested"] != scores["grade"])]


# What ``caveat`` says of a row whose numbers only order the labels.
NOTHING_LEARNT = "the networks have not learnt to tell the grades apart"
RATE_UNKNOWN = "no probability, only an order: how many are wrong is not known"
UNRECOGNISED = "no probability, only an order: the networks do not recognise this grade"


def caveats(scores: pd.DataFrame, summary: Mapping[str, Any]) -> pd.Series:
    """Why the numbers of a row are no probabilities, "" where they are. What is verified is
    known."""
    said = pd.Series("", index=scores.index, dtype=object)
    said[scores["grade"].isin(summary.get("unrecognised", ()))] = UNRECOGNISED
    if not summary["identifiable"]:
        said[:] = RATE_UNKNOWN
    if "verified_grade" in scores:
        said[scores["verified_grade"] != ""] = ""
    if not judges_labels(summary):
        said[:] = NOTHING_LEARNT
    return said


def verified_alone(verified: Mapping[str, Any]) -> str:
    """The rate of the verified labels alone, in one sentence; ``verified``: that part of the
    summary."""
    low, high = verified["interval_without_model"]
    rate = verified["rate_without_model"]
    return (
        f"Wrong among {count_of(verified['labels'], 'verified label')}: {verified['wrong']:,},"
        f" {rate:.0%} (exact 95 % interval: {low:.0%} to {high:.0%}, without the model)."
    )


def verified_summary(wrong: Floats, weights: Floats | None = None) -> dict[str, Any]:
    """What a random sample of verified labels says by itself, without any model. The names say so:
    the rate of all labels, with its interval, is another number.

    wrong: (n,) 1 for wrong labels, else 0. weights: (n,) of labels that were not drawn alike.
    """
    counts: dict[str, Any] = {"labels": len(wrong), "wrong": int(wrong.sum())}
    if weights is None:
        rate = float(wrong.mean())
        size = float(len(wrong))
    else:
        shares = weights / weights.sum()
        rate = float(shares @ wrong)
        size = 1.0 / float((shares**2).sum())
        counts["by_doubt"] = True
    alone = {"rate_without_model": rate}
    return {**counts, **alone, "interval_without_model": list(exact_interval(rate, size))}


def _verified_grades(
    sample: pd.DataFrame, estimate: NoiseEstimate, grades: Sequence[str]
) -> list[dict[str, Any]]:
    """For each given grade that has verified labels: how many, and the share of wrong ones of all
    its labels."""
    rows = []
    for name, (share, low, high) in zip(grades, estimate.verified_shares, strict=True):
        of_grade = sample[sample["grade"] == name]
        wrong = int((of_grade["verified_grade"] != name).sum())
        known = {"rate": round(share, 4), "interval": [round(low, 4), round(high, 4)]}
        if len(of_grade):
            rows.append({"grade": name, "labels": len(of_grade), "wrong": wrong, **known})
    return rows


def _with_verified(
    rows: list[dict[str, Any]], verified: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The rates of all grades, where a grade has verified labels those that rest on them: one grade
    has one rate and one interval."""
    known = {row["grade"]: row for row in verified}
    merged = []
    for row in rows:
        found = known.get(row["grade"])
        if found is not None and row["rate"] is not None:
            errors = round(found["rate"] * row["samples"], 2)
            rate = {"rate": found["rate"], "interval": found["interval"]}
            row = {**row, "expected_errors": errors, **rate}
        merged.append(row)
    return merged


def _to_verify(scores: pd.DataFrame, estimate: NoiseEstimate) -> dict[str, int | None]:
    """How many labels to verify to know the rate within ± ``WITHIN``: ``verify_more`` by doubt, or
    more of a sample that is begun; 0: it is known. ``verify_random``: how many it would be at
    random; None where nothing is saved.
    """
    low, high = estimate.rate_interval
    if estimate.identifiable and high - low <= 2 * WITHIN:
        return {"verify_more": 0, "verify_random": None}
    # Undetermined: the rate that needs the largest sample of those in the interval.
    rate = estimate.rate
    if not estimate.identifiable:
        rate = min(max(0.5, low), high)
    verified = estimate.verified
    labels = estimate.samples
    needed = labels_to_verify(rate, within=WITHIN)  # of infinitely many, without the model
    # n verified labels are worth gain · n / (1 − n / N) of these: what is verified is no longer
    # uncertain.
    gain = 1.0
    if verified:
        gain = estimate.verified_worth * (1.0 - verified / labels) / verified
    more = max(0, math.ceil(needed / (gain + needed / labels)) - verified)
    if verified or not estimate.learnt:
        return {"verify_more": more, "verify_random": None}
    doubt = 1.0 - scores["quality"].to_numpy(np.float64)
    by_doubt = labels_needed(doubt.clip(0.0, 1.0), within=WITHIN, rate=rate)
    if by_doubt < more:
        return {"verify_more": by_doubt, "verify_random": more}
    return {"verify_more": more, "verify_random": None}


def _against_truth(scores: pd.DataFrame) -> dict[str, Any]:
    """How well the ranking finds the labels that are known to be wrong, and how many suggestions
    are right. Of verified labels the audit was told the true grade: they do not count."""
    from sklearn.metrics import average_precision_score

    judged = unverified(scores)
    offered = suggestions(scores)
    wrong = (judged["grade"] != judged["true_grade"]).to_numpy()
    right = offered["suggested"] == offered["true_grade"]
    count = int(wrong.sum())
    if not 0 < count < len(wrong):
        return {"wrong": count}
    return {
        "wrong": count,
        "rate": round(float(wrong.mean()), 4),
        "average_precision": round(float(average_precision_score(wrong, 1 - judged["quality"])), 4),
        "precision_at_wrong": round(float(wrong[:count].mean()), 4),
        "suggested": len(right),
        "suggested_right": round(float(right.mean()), 4) if len(right) else None,
    }


# Readers and networks together: p(true grade | image, all its readings), and which reading is
# doubtful.


def combined_readings(readings: Readings, fitted: CrossFit) -> Consensus:
    """The consensus of the readers and the networks: the networks, which were not trained on the
    image, are a witness whose errors may be those of the readers (see ``srjt.readers.consensus``).
    Verified grades are references.
    """
    if (verified := fitted.manifest.verified_labels) is not None:
        known = -1 if readings.reference is None else readings.reference
        readings = replace(readings, reference=np.where(verified >= 0, verified, known))
    return combine(readings, probabilities=fitted.probabilities)


def score_readings(readings: Readings, posterior: Floats) -> pd.DataFrame:
    """One row per reading, the most doubtful first. Quality is the probability that the reading is
    right."""
    names = np.array(readings.grades, dtype=object)
    suggested = posterior.argmax(axis=1)[readings.item]
    readers = np.array(list(map(neutralise_formula, readings.readers)), dtype=object)
    table = pd.DataFrame(
        {
            "id": np.array(readings.items, dtype=object)[readings.item],
            "reader": readers[readings.reader],
            "grade": names[readings.grade],
            "suggested": names[suggested],
            "quality": posterior[readings.item, readings.grade].round(DIGITS),
            "distance": np.abs(suggested - readings.grade),
        }
    )
    ranked = table.sort_values(["quality", "id", "reader"], kind="stable")
    ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
    return ranked.reset_index(drop=True)
