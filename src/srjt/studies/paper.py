"""The results that the paper prints, and its names and order of the methods.

``paper_results.csv`` has the numbers of its nine tables: LIMUC and the private UC dataset with both noises, the
ablations (host: Co-teaching) and DR (means only). The paper has one inconsistency: the macro-F1 of hard/soft on the
private dataset, Quasi-Gaussian at ε = 0.4, is 0.555 ± 0.031 in the comparison and 0.555 ± 0.036 in the ablation. The
file keeps both as printed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

from srjt import methods as registered
from srjt.studies.noise_spec import parse_noise

__all__ = [
    "DISPLAY_NAMES",
    "display_name",
    "host_of",
    "is_ours",
    "is_recipe",
    "paper_dataset",
    "paper_order",
    "paper_results",
    "paper_value",
]

# In the order of the paper's tables, a host directly before its "+ Ours".
DISPLAY_NAMES = {
    "standard": "Standard",
    "sord": "Sord",
    "label-smooth": "Label-smooth",
    "f-correction": "F-correction",
    "reweight": "Reweight",
    "mixup": "Mixup",
    "cdr": "CDR",
    "garg": "Garg",
    "co-teaching": "Co-teaching",
    "co-teaching+ours": "Co-teaching + Ours",
    "jocor": "JoCor",
    "jocor+ours": "JoCor + Ours",
    "codis": "CoDis",
    "codis+ours": "CoDis + Ours",
}
OURS = "+ours"
_DR_RATE = 0.3  # assumed by the paper, not injected
_RATE_OF_RHO = {("quasi", 0.1): 0.2, ("quasi", 0.2): 0.4, ("truncated", 0.15): 0.2, ("truncated", 0.3): 0.4}


def paper_results() -> pd.DataFrame:
    """All 450 printed values: table (comparison | ablation), dataset (limuc | private | dr), noise, rate, method,
    select, update (both empty in the comparisons), metric, mean, std (nan for DR)."""
    table = pd.DataFrame(_rows())
    for column in ("rate", "mean", "std"):
        table[column] = pd.to_numeric(table[column])
    return table


@cache
def _rows() -> tuple[dict[str, str], ...]:
    file = resources.files("srjt.studies").joinpath("paper_results.csv")
    return tuple(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def paper_value(
    dataset: str, noise: str, method: str, metric: str, *, select: str = "", update: str = ""
) -> tuple[float, float | None] | None:
    """Mean and standard deviation that the paper prints for this setting; None if it prints none.

    noise: as in a study, "quasi:0.2" or with the paper's ρ "quasi:rho=0.1"; "none" for DR. select, update: for a
    value of the ablation, whose ``method`` is the host.
    """
    spec = parse_noise(noise)
    rate = _DR_RATE if spec.kind == "none" else spec.rate
    if spec.rho is not None:
        nominal = _RATE_OF_RHO.get((spec.kind, spec.rho))
        rate = nominal if rate in (None, nominal) else None
    if rate is None:
        return None
    return _lookup().get((dataset, spec.kind, rate, method, select, update, metric))


@cache
def _lookup() -> dict[tuple[str, str, float, str, str, str, str], tuple[float, float | None]]:
    return {
        (r["dataset"], r["noise"], float(r["rate"]), r["method"], r["select"], r["update"], r["metric"]): (
            float(r["mean"]),
            float(r["std"]) if r["std"] else None,
        )
        for r in _rows()
    }


def paper_dataset(facts: Mapping[str, Any]) -> str | None:
    """The paper's dataset whose preset a study uses; None for other data."""
    preset = facts.get("preset")
    return preset if preset in ("limuc", "dr") else None


def host_of(method: str) -> str | None:
    """ "co-teaching+ours" → "co-teaching"; None for a method that is not "+ours"."""
    return method.removesuffix(OURS) if method.endswith(OURS) else None


def is_recipe(method: str) -> bool:
    """Whether the method has its own training recipe, as ``srjt`` has; False for an unknown method."""
    return method in registered.names() and registered.lookup(method).is_recipe


def is_ours(method: str) -> bool:
    """Whether the method is "+ours" or a recipe, and so not a baseline."""
    return host_of(method) is not None or is_recipe(method)


def display_name(method: str, variant: str = "") -> str:
    """The name in tables and figures; the paper's name if it has one."""
    host = host_of(method)
    name = DISPLAY_NAMES.get(method) or (f"{display_name(host)} + Ours" if host else method)
    shown = variant.replace(",", ", ").replace("keep=best", "early stopping")
    return f"{name} ({shown})" if shown else name


def paper_order(methods: Iterable[str]) -> list[str]:
    """Methods in the paper's order; your own follow in the given order, each "+ours" directly after its host."""
    given = list(dict.fromkeys(methods))
    known = list(DISPLAY_NAMES)

    def place(method: str) -> tuple[int, int, int]:
        if method in DISPLAY_NAMES:
            return 0, known.index(method), 0
        host = host_of(method)
        return (1, given.index(host), 1) if host in given else (1, given.index(method), 0)

    return sorted(given, key=place)
