"""What an estimate of the noise rests on, and why it may not be determined: as facts, which are
kept in files and compared, and the sentence of each for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from srjt.json_values import DictMixin
from srjt.noise.matrices import SHARED_ERRORS
from srjt.noise.model import SYMMETRIC
from srjt.text import count_of
from srjt.validation import check_of


@dataclass(frozen=True, kw_only=True)
class Undetermined(DictMixin):
    """Why labels and probabilities do not determine the share of wrong labels.

    Attributes
    ----------
    kind : str
        "uninformed": the probabilities say no more than how common each grade is. "few_labels": too
        few labels have the ``grade``. "indistinct": the probabilities do not tell the ``grade``
        from others. "boundaries": readers who are unsure between two grades look like unclear
        images. "few_verified": too few labels are verified. "stored": a file of an earlier version,
        which has a sentence.
    grade : int or None
        The grade that it is about.
    labels : int
        How many labels have this grade, or are verified.
    text : str
        Of "stored": the sentence.
    """

    kind: Literal["uninformed", "few_labels", "indistinct", "boundaries", "few_verified", "stored"]
    grade: int | None = None
    labels: int = 0
    text: str = ""

    @property
    def clause(self) -> str:
        """The part of a sentence after "because", without a full stop."""
        clauses = {
            "uninformed": (
                "the probabilities say nothing about the labels beyond how common each grade is"
            ),
            "few_labels": (
                f"only {count_of(self.labels, 'label is', 'labels are')} of grade {self.grade}: too"
                " few to see how often it is mistaken"
            ),
            "indistinct": (
                "the probabilities find hardly any sample of grade"
                f" {self.grade}, which {count_of(self.labels, 'label has', 'labels have')}: how"
                " often it is mistaken cannot be seen"
            ),
            "boundaries": (
                "readers who are unsure between two neighbouring grades look like images that are"
                " unclear between them; better networks or verified labels can tell them apart,"
                " more labels cannot"
            ),
            "few_verified": (f"only {count_of(self.labels, 'label is', 'labels are')} verified"),
            "stored": self.text.rstrip("."),
        }
        return clauses[self.kind]


# What the rate takes for granted and labels and probabilities cannot show. Without numbers: a rate
# is a percentage in an audit and a setting (0.2) in a training.
_SHARED = (
    "Errors that the networks repeat are not counted, neither in the rate nor in its interval."
)
_BY_GRADE = (
    "The rate assumes that errors depend on an image only through its true grade; if readers also"
    " err near the boundary between two grades, it is higher, up to the upper end of the interval"
)
_ONE_SIDED = (
    "The rate allows most labels of a grade to be too {}: that alone explains the labels of clear"
    " images"
)
_BY_FORM = {
    **dict.fromkeys(SYMMETRIC, _BY_GRADE),
    "boundary": (
        "The rate assumes that any share of the doubt between two neighbouring grades, from none to"
        " all, is equally likely to be that of the readers and not of unclear images. Labels and"
        " probabilities alone cannot tell which"
    ),
    "lowered": _ONE_SIDED.format("low"),
    "raised": _ONE_SIDED.format("high"),
    "banded": (
        "The rate assumes that each grade has its own error rate in each direction. Whether readers"
        " are also unsure near the boundary between two grades is not known; the interval covers"
        " both cases"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Basis(DictMixin):
    """What the share of wrong labels rests on.

    Attributes
    ----------
    kind : str
        "labels": labels and probabilities, and the form of noise. "second_labels": how often two
        readers of an image differ. "verified": verified labels. "stored": a file of an earlier
        version, which has a sentence.
    form : str
        Of "labels": the likeliest form of noise.
    labels : int
        How many second, or verified, labels there are.
    at_random : bool
        Of "verified": whether all were drawn with the same probability.
    enough : bool
        Of "verified": whether they suffice for a rate; else only for its interval.
    text : str
        Of "stored": the sentence.
    """

    kind: Literal["labels", "second_labels", "verified", "stored"]
    form: str = ""
    labels: int = 0
    at_random: bool = True
    enough: bool = True
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind == "labels" and self.form not in _BY_FORM:
            raise ValueError(f"there is no form of noise {self.form!r}")

    @property
    def sentence(self) -> str:
        """What is taken for granted, in one sentence or two."""
        if self.kind == "labels":
            return f"{_BY_FORM[self.form]}. {_SHARED}"
        if self.kind == "second_labels":
            return (
                f"The rate rests on {count_of(self.labels, 'second label')}: how often two readers"
                " of an image differ. Errors that all readers share are not seen: they are taken"
                f" to be {SHARED_ERRORS:g} times as frequent as those of one reader, and in the"
                " interval at most as frequent."
            )
        if self.kind == "verified":
            return self._by_verified()
        return self.text

    def _by_verified(self) -> str:
        sample = count_of(self.labels, "verified label")
        if self.at_random:
            sample += ", which must be a random sample of all"
        else:
            sample += ", weighted by the probabilities of their draw"
        if self.enough:
            return (
                f"The rate rests on {sample}. The probabilities of the networks for all labels can"
                " make its interval shorter, and move it a little."
            )
        return (
            f"The interval rests on {sample}; they are too few for a rate, so it is the average of"
            " their share and the model's guess."
        )


def basis_of_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """The estimate of a file with ``Undetermined`` and ``Basis``; an earlier version wrote their
    sentences as ``reason`` and ``assumption``. A ValueError or TypeError if they are neither."""
    known = dict(values)
    if "basis" in known:
        known["basis"] = check_of(Basis | None, strict=False)(known["basis"])
        known["undetermined"] = check_of(Undetermined | None, strict=False)(known["undetermined"])
        return known
    reason = known.pop("reason")
    assumption = known.pop("assumption", "")
    if not isinstance(reason, str) or not isinstance(assumption, str):
        raise TypeError("reason and assumption are sentences")
    known["basis"] = Basis(kind="stored", text=assumption) if assumption else None
    known["undetermined"] = Undetermined(kind="stored", text=reason) if reason else None
    return known
