"""Where the runs of a study are trained: processes on this machine, or tasks on a Ray cluster."""
