"""The parts of an epoch: batches, steps, CUDA graphs, evaluation."""
