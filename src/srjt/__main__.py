"""``python -m srjt`` is ``srjt``: needed by torchrun."""

from srjt.cli import main

main()
