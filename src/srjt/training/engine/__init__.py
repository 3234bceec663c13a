"""What runs inside an epoch: batches, steps, CUDA graphs, scores."""
