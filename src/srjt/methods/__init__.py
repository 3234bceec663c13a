"""The methods of the paper, further baselines, our recipe, and yours.

``names()`` lists them, ``create(name, …)`` makes one.
Classes are imported on first use, because they load torch; the registry does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from srjt.methods import registry
from srjt.methods.registry import (
    METHODS,
    Recipe,
    RegisteredMethod,
    create,
    lookup,
    names,
    options,
    plain_names,
    register,
)

if TYPE_CHECKING:
    from srjt.methods.base import Loss, Method, SingleNetwork
    from srjt.methods.joint import CoDis, CoTeaching, ForwardAgreement, JoCor, JointTraining
    from srjt.methods.single import (
        Cdr,
        ClassDistanceWeighted,
        Corn,
        EarlyLearning,
        ExpectedAbsoluteError,
        ForwardCorrection,
        Garg,
        GeneralisedCrossEntropy,
        LabelSmooth,
        Mixup,
        Reweight,
        Sord,
        Standard,
        SymmetricCrossEntropy,
    )

__all__ = [
    "Cdr",
    "ClassDistanceWeighted",
    "CoDis",
    "CoTeaching",
    "Corn",
    "EarlyLearning",
    "ExpectedAbsoluteError",
    "ForwardAgreement",
    "ForwardCorrection",
    "Garg",
    "GeneralisedCrossEntropy",
    "JoCor",
    "JointTraining",
    "LabelSmooth",
    "Loss",
    "Method",
    "Mixup",
    "Recipe",
    "RegisteredMethod",
    "Reweight",
    "SingleNetwork",
    "Sord",
    "Standard",
    "SymmetricCrossEntropy",
    "create",
    "lookup",
    "names",
    "options",
    "plain_names",
    "register",
]

registry._REGISTRY.update((row.name, row) for row in METHODS)

# class → module that defines it
_CLASSES = {
    "JointTraining": "srjt.methods.joint",
    **dict.fromkeys(("Loss", "Method", "SingleNetwork"), "srjt.methods.base"),
    **{name: module for module, _, name in (row.location.partition(":") for row in METHODS)},
}


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module 'srjt.methods' has no attribute {name!r}")
    return getattr(importlib.import_module(_CLASSES[name]), name)
