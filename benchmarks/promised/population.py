"""Simulated patients for whom everything is known: true grades, labels of one reader, and a
network.

The severity of an image is normal, 70 % of its variance between patients; thresholds cut it into
grades. The network sees the severity with an error, half of it the same for all images of a
patient, and is a little too sure. Labels are

- right (``none``);
- one grade off, with a rate and a direction of its own for each true grade (``class``);
- one grade off in the same direction for all images of a patient (``patient``);
- wrong where the severity is near a threshold, as by a reader who sees it with an error
  (``difficulty``);
- one grade off, and half of the wrong labels mislead the network as well (``shared``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from srjt.errors import count_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NETWORKS = {
    "nearly perfect": 0.05,
    "strong": 0.25,
    "weak": 1.0,
    "blind": 5.0,
}  # the error, in severities
TOO_SURE = 1.5  # the power of a network's probabilities
WITHIN = 0.3  # of the variance of the severity
RAREST = 0.03  # the rarest grade, relative to the most frequent one
MOST_IMAGES = 40
LARGE = 200


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is unfavourable; a simulation uses the fields that concern it."""

    grades: int = 4
    patients: int = 100
    images: int = 1  # 0: 1 to 40, very different numbers
    rare: bool = False
    network: str = "strong"
    noise: str = "none"
    rate: float = 0.0  # about this share of the labels is wrong
    groups: tuple[int, ...] = ()  # patients of each subgroup
    trainings: int = 1
    verified: int = 0
    readers: int = 0
    large: int = 0  # so many patients have LARGE images
    far: float = 0.0  # this share of the images the network sees upside down
    one_grade: int = 0  # so many patients, on average, have the lowest grade; 0: as many as others

    def __str__(self) -> str:
        images = {0: "1–40 images", 1: "1 image"}.get(self.images, f"{self.images} images")
        wrong = f" by {self.noise}" if self.noise != "none" else ""
        parts = [
            f"{self.patients:,} patients × {images}" if self.patients else "",
            f"groups of {', '.join(map(str, self.groups))} patients × {images}"
            if self.groups
            else "",
            f"{self.large} of them × {LARGE} images" if self.large else "",
            f"{self.grades} grades{' (some rare)' if self.rare else ''}" if self.grades else "",
            f"{self.one_grade} with the one grade" if self.one_grade else "",
            f"{self.network} network" if self.network else "",
            f"{self.far:.0%} far errors" if self.far else "",
            f"{self.rate:.0%} wrong{wrong}" if self.rate else "",
            count_of(self.trainings, "training")
            if self.trainings > 1 or not (self.grades or self.rate)
            else "",
            f"{self.verified} verified" if self.verified else "",
            f"{self.readers} readers" if self.readers else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def shares(self) -> Floats:
        """(C,) of the true grades."""
        if self.one_grade:
            lowest = self.one_grade / self.patients
            return np.append(lowest, np.full(self.grades - 1, (1.0 - lowest) / (self.grades - 1)))
        weights = np.geomspace(1.0, RAREST if self.rare else 1.0, self.grades)
        return np.asarray(weights / weights.sum())

    @property
    def thresholds(self) -> Floats:
        """(C − 1,) of the severity."""
        return np.asarray(ndtri(self.shares.cumsum()[:-1]))


@dataclass(frozen=True, kw_only=True)
class Sample:
    """N images."""

    owner: Ints  # (N,) patients from 0
    severity: Floats  # (N,)
    true: Ints
    labels: Ints
    probabilities: Floats  # (N, C)
    predicted: Ints

    def __len__(self) -> int:
        return len(self.true)

    @property
    def groups(self) -> list[str]:
        return [str(patient) for patient in self.owner.tolist()]


def seeded(*parts: object) -> np.random.Generator:
    """A generator that depends on these parts alone."""
    return np.random.default_rng([crc32(str(part).encode()) for part in parts])


def draw(setting: Setting, rng: np.random.Generator, *, patients: int | None = None) -> Sample:
    """Patients of this setting. patients: another number of them, for example of new ones."""
    number = setting.patients if patients is None else patients
    owner = np.repeat(np.arange(number), _sizes(setting.images, number, rng))
    if setting.large:
        owner = np.concatenate([owner, np.repeat(np.arange(setting.large), LARGE - setting.images)])
    severity = severities(owner, rng)
    true = np.searchsorted(setting.thresholds, severity)
    labels = read(setting, severity, true, owner, rng)
    shown = severity
    if setting.noise == "shared":  # the network sees what misled the reader
        misled = (labels != true) & (rng.random(len(owner)) < 0.5)
        shown = np.where(misled, _middle(setting)[labels], severity)
    probabilities = see(setting, shown, owner, rng)
    if setting.far:
        upside_down = rng.random(len(owner)) < setting.far
        probabilities[upside_down] = probabilities[upside_down, ::-1]
    return Sample(
        owner=owner,
        severity=severity,
        true=true,
        labels=labels,
        probabilities=probabilities,
        predicted=probabilities.argmax(axis=1),
    )


def severities(owner: Ints, rng: np.random.Generator) -> Floats:
    """(N,) those of the images of these patients."""
    of_patient = rng.normal(size=int(owner.max()) + 1)[owner]
    of_image = rng.normal(size=len(owner))
    return np.asarray(np.sqrt(1.0 - WITHIN) * of_patient + np.sqrt(WITHIN) * of_image)


def see(setting: Setting, severity: Floats, owner: Ints, rng: np.random.Generator) -> Floats:
    """(N, C) the probabilities of a network."""
    error = NETWORKS[setting.network or "strong"]
    patients = int(owner.max()) + 1
    off = (rng.normal(size=patients)[owner] + rng.normal(size=len(owner))) / np.sqrt(2.0)
    centre = (severity + error * off) / (1.0 + error**2)
    spread = error / np.sqrt(1.0 + error**2)
    below = ndtr((setting.thresholds - centre[:, None]) / spread)
    whole = np.concatenate([np.zeros((len(owner), 1)), below, np.ones((len(owner), 1))], axis=1)
    sharpened = np.maximum(np.diff(whole, axis=1), 1e-6) ** TOO_SURE
    return np.asarray(sharpened / sharpened.sum(axis=1, keepdims=True))


def read(
    setting: Setting, severity: Floats, true: Ints, owner: Ints, rng: np.random.Generator
) -> Ints:
    """(N,) the labels of one reader."""
    if setting.noise == "none":
        return true
    size, last = len(true), setting.grades - 1
    if setting.noise == "difficulty":
        # an error of this size moves about this share over a threshold
        density = np.exp(-(setting.thresholds**2) / 2.0).sum() / np.sqrt(2.0 * np.pi)
        blur = setting.rate / (np.sqrt(2.0 / np.pi) * density)
        return np.searchsorted(setting.thresholds, severity + blur * rng.normal(size=size))
    if setting.noise == "chance":  # any other grade
        other = (true + rng.integers(1, setting.grades, size=size)) % setting.grades
        return np.where(rng.random(size) < setting.rate, other, true)
    if setting.noise == "patient":
        patients = int(owner.max()) + 1
        wrong = (rng.random(patients) < setting.rate)[owner]
        step = rng.choice([-1, 1], patients)[owner]
    else:
        each = setting.rate * np.where(np.arange(setting.grades) % 2 == 0, 0.5, 1.5)
        wrong = rng.random(size) < np.minimum(each, 0.45)[true]
        upwards = np.where(np.arange(setting.grades) % 3 == 0, 0.8, 0.3)[true]
        step = np.where(rng.random(size) < upwards, 1, -1)
    step = np.where(true == 0, 1, np.where(true == last, -1, step))
    return np.where(wrong, true + step, true)


def random_rows(number: int, size: int, rng: np.random.Generator) -> Ints:
    """A simple random sample of places, all of them if there are not so many."""
    return np.sort(rng.permutation(number)[:size])


def _sizes(images: int, patients: int, rng: np.random.Generator) -> Ints:
    if images:
        return np.full(patients, images)
    return np.clip(np.floor(rng.lognormal(0.7, 1.2, patients)), 1, MOST_IMAGES).astype(np.int64)


def _middle(setting: Setting) -> Floats:
    """(C,) the median severity of each grade."""
    above = setting.shares.cumsum()
    return np.asarray(ndtri(above - setting.shares / 2.0))


@lru_cache(maxsize=1)
def many(setting: Setting) -> Sample:
    """About 200,000 images of new patients: what a statistic is on them is the truth."""
    each = setting.images or 4
    return draw(setting, seeded("population", setting), patients=max(10_000, 200_000 // each))
