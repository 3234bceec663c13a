"""``python -m srjt`` is ``srjt``: needed by torchrun."""

from srjt.cli import main

if __name__ == "__main__":  # worker processes import this module again under another name
    main()
