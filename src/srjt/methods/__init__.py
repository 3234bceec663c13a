"""The methods of the paper, our recipe, and yours. ``names()`` lists them, ``create(name, …)`` makes one."""

# The order of these imports is the order of the paper's tables.
from srjt.methods.base import Loss, Method, SingleNetwork
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

from srjt.methods.standard import Standard  # isort: skip
from srjt.methods.sord import Sord  # isort: skip
from srjt.methods.label_smooth import LabelSmooth  # isort: skip
from srjt.methods.f_correction import ForwardCorrection  # isort: skip
from srjt.methods.reweight import Reweight  # isort: skip
from srjt.methods.mixup import Mixup  # isort: skip
from srjt.methods.cdr import Cdr  # isort: skip
from srjt.methods.garg import Garg  # isort: skip
from srjt.methods.joint import JointTraining  # isort: skip
from srjt.methods.co_teaching import CoTeaching  # isort: skip
from srjt.methods.jocor import JoCor  # isort: skip
from srjt.methods.codis import CoDis  # isort: skip
from srjt.methods import self_relaxed as _self_relaxed  # isort: skip  # noqa: F401
from srjt.methods import recipe as _recipe  # isort: skip  # noqa: F401

__all__ = [
    "Cdr",
    "CoDis",
    "CoTeaching",
    "ForwardCorrection",
    "Garg",
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
    "create",
    "lookup",
    "names",
    "options",
    "plain_names",
    "register",
]
