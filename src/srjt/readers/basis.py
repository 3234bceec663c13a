"""What a consensus rests on, and why the readings may not tell how often readers err: as facts, and
the sentence of each for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srjt.json_values import DictMixin
from srjt.readers.readings import ENOUGH
from srjt.text import count_of


@dataclass(frozen=True, kw_only=True)
class Undetermined(DictMixin):
    """Why the readings do not tell how often readers err.

    Attributes
    ----------
    kind : str
        "one_reader": there is one reader, and no reference. "no_pairs": no item has two readings,
        or a reference. "few": some have.
    several : int
        Items with several readings.
    known : int
        Items with a reference.
    """

    kind: Literal["one_reader", "no_pairs", "few"]
    several: int = 0
    known: int = 0

    @property
    def sentence(self) -> str:
        """Why, and what would tell it."""
        return self.sentence_of("item")

    def sentence_of(self, noun: str) -> str:
        """The same of readings of images, or whatever the noun is."""
        if self.kind == "one_reader":
            return (
                f"One reader alone cannot be told from the truth; readings of the same {noun}s by a"
                " second reader can."
            )
        if self.kind == "no_pairs":
            return (
                f"No {noun} has two readings, so nothing tells how often readers err; a second"
                f" reading of some {noun}s does."
            )
        return (
            f"Only {count_of(self.several, f'{noun} has', f'{noun}s have')} several readings and"
            f" {self.known} a reference; about {ENOUGH} are the least that tells how often readers"
            " err."
        )


@dataclass(frozen=True, kw_only=True)
class Basis(DictMixin):
    """What a consensus takes for granted.

    Attributes
    ----------
    kind : str
        "reference": that it is the truth. "two_readers": nothing tells which of two is right.
        "unbiased": that the readers as a whole are. "shared_errors": how often all readers make
        the same error.
    items : int
        Of "two_readers": readings by a third reader, or verified grades, that would tell it.
    times : float
        Of "shared_errors": as a multiple of how often one reader errs alone.
    """

    kind: Literal["reference", "two_readers", "unbiased", "shared_errors"]
    items: int = 0
    times: float = 0.0

    @property
    def sentence(self) -> str:
        """What is taken for granted, in one sentence or two."""
        return self.sentence_of("item")

    def sentence_of(self, noun: str) -> str:
        """The same of readings of images, or whatever the noun is."""
        if self.kind == "reference":
            return (
                "The reference is taken as the truth; where there is none, readers err as they do"
                " where there is one."
            )
        if self.kind == "two_readers":
            return (
                "Two readings tell neither who is right nor which errors both make: the intervals"
                " reach from a reader who is never wrong to one who is always wrong where the two"
                f" differ, and where both err. A third reader of about {self.items} {noun}s, or"
                f" {self.items} verified grades, tells who is right."
            )
        if self.kind == "unbiased":
            return (
                "The readers as a whole are taken as unbiased: an error that all of them share is"
                " not seen."
            )
        times = "" if self.times == 1.0 else f"{self.times:g} times "
        return (
            f"Errors that all readers share are not seen: they are taken to be {times}as frequent"
            " as those of one reader, and in the intervals at most as frequent."
        )
