"""Networks of timm, and what timm knows about their pretrained weights."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from torch import nn

from srjt.errors import Option, SrjtError, UnknownNameError, missing_extra
from srjt.networks.backbone import TrainedInput
from srjt.networks.weights import INSTEAD
from srjt.text import reason_of

if TYPE_CHECKING:
    from srjt.networks.backbone import Maker


def timm_input(name: str) -> TrainedInput | None:
    """What the pretrained weights of ``timm:NAME`` were trained on; None if timm does not know
    it."""
    trained = _import_timm(name).get_pretrained_cfg(name.removeprefix("timm:"))
    if trained is None:
        return None
    return TrainedInput(
        size=int(trained.input_size[-1]),
        mean=tuple(trained.mean),
        std=tuple(trained.std),
        fixed=bool(trained.fixed_input_size),
    )


def _import_timm(name: str) -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise missing_extra("timm", "timm", f"The network {name!r}") from error
    except Exception as error:  # a torchvision for another version of torch raises various errors
        raise SrjtError(
            f"timm cannot be imported ({reason_of(error)}): install the torchvision that matches"
            " your torch.",
            code="missing_extra",
        ) from error
    return timm


def timm_maker(full_name: str, *, in_shape: tuple[int, ...], pretrained: bool) -> Maker:
    """A function that makes ``timm:NAME`` without its classifier; with ``pretrained`` timm loads
    its weights."""
    timm = _import_timm(full_name)
    name = full_name.removeprefix("timm:")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0.5)
        hint = f"did you mean 'timm:{near[0]}'? " if near else ""
        raise UnknownNameError(
            f"Unknown network 'timm:{name}': {hint}timm.list_models() lists all.",
            code="unknown_name",
        )
    trained = timm_input(full_name)
    size = {}
    if trained is not None and trained.fixed and trained.size != in_shape[-1]:
        size = {"img_size": in_shape[-1]}  # a transformer: its position embeddings are interpolated

    def make() -> nn.Module:
        try:
            options = {"pretrained": pretrained, "num_classes": 0, "in_chans": in_shape[0], **size}
            return timm.create_model(name, **options)  # type: ignore[no-any-return]
        except Exception as error:
            if size and trained is not None and not isinstance(error, OSError):
                raise SrjtError(
                    f"timm cannot make {name!r} for images of {in_shape[-1]} pixels"
                    f" ({reason_of(error)}): it was trained on {trained.size}, so set ",
                    Option("crop", trained.size),
                    ".",
                    code="unsupported",
                ) from error
            if not pretrained:
                raise
            raise SrjtError(
                f"timm could not download its pretrained weights of {name!r} ({reason_of(error)}):"
                " ",
                INSTEAD,
                ".",
                code="unreachable",
            ) from error

    return make
