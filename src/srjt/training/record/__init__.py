"""What a training writes and shows: the run folder, checkpoints, metrics, progress."""
