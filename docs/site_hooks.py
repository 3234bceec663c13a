"""What the site shows differently from the files in the repository."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from typing import Any

import griffe

SETTINGS = (
    "training.config.TrainConfig", "inference.options.Answering", "inference.options.Evaluating",
    "inference.planning.Planning", "studies.config.Execution", "data.options.ReadOptions",
    "studies.config.StudyConfig",
)  # fmt: skip
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+[^)]+\)")


def on_page_markdown(markdown: str, **page: Any) -> str:
    """Links that leave docs/ lead to files of the repository, which the site does not have: their
    text stays."""
    return OUTSIDE.sub(r"\1", markdown)


def signature(settings: type) -> griffe.Function:
    """How settings are made: from all their fields, by keyword."""
    made = griffe.Parameters(
        griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    )
    for field in dataclasses.fields(settings):
        shown = inspect.formatannotation(field.type) if isinstance(field.type, type) else field.type
        made.add(
            griffe.Parameter(
                field.name,
                annotation=str(shown).replace("typing.", ""),
                kind=griffe.ParameterKind.keyword_only,
                default=repr(field.default),
            )
        )
    return griffe.Function("__init__", parameters=made)


class WrappedFunctions(griffe.Extension):
    """``srjt.run`` wraps functions of ``srjt.training``: the site shows their signatures and
    docstrings. What packages export is computed, which cannot be seen without importing them.
    """

    def on_package(self, *, pkg: griffe.Module, **context: Any) -> None:
        for package in ("data", "methods", "noise", "ordinal"):
            pkg[package].exports = list(importlib.import_module(f"srjt.{package}").__all__)
        for path in SETTINGS:  # their parameters are written from the fields
            module, _, name = path.rpartition(".")
            settings = getattr(importlib.import_module(f"srjt.{module}"), name)
            pkg[path].docstring = griffe.Docstring(settings.__doc__, parent=pkg[path])
            if hasattr(settings, "aspects"):  # whose options no file lists in one place
                pkg[path].set_member("__init__", signature(settings))
        for name, path in {
            "train": "training.train.train",
            "load_run": "training.trained.load_run",
        }.items():
            for shown in (pkg, pkg["run"]):
                shown.members[name] = griffe.Alias(name, pkg[path], parent=shown)
