"""The paper's protocol: a grid of runs, their results, and what follows from them."""
