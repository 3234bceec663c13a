"""The methods of the paper, further baselines, our recipe, and yours.

``names()`` lists them, ``create(name, …)`` makes one.
Classes are imported on first use, because they load torch; the registry does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from srjt.methods import registry
from srjt.methods.catalogue import METHODS
from srjt.methods.registry import (
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
    from srjt.methods.agreement import ForwardAgreement
    from srjt.methods.base import Loss, Method, SingleNetwork
    from srjt.methods.cdr import Cdr
    from srjt.methods.cdw_ce import ClassDistanceWeighted
    from srjt.methods.co_teaching import CoTeaching
    from srjt.methods.codis import CoDis
    from srjt.methods.corn import Corn
    from srjt.methods.eae import ExpectedAbsoluteError
    from srjt.methods.elr import EarlyLearning
    from srjt.methods.f_correction import ForwardCorrection
    from srjt.methods.garg import Garg
    from srjt.methods.gce import GeneralisedCrossEntropy
    from srjt.methods.jocor import JoCor
    from srjt.methods.joint import JointTraining
    from srjt.methods.label_smooth import LabelSmooth
    from srjt.methods.mixup import Mixup
    from srjt.methods.reweight import Reweight
    from srjt.methods.sce import SymmetricCrossEntropy
    from srjt.methods.sord import Sord
    from srjt.methods.standard import Standard

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
