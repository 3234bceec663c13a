"""The register of promises: populations, simulations and the entries. ``benchmarks/promises.py``
runs them."""
