"""Where the runs of a study are trained: processes on this machine, or actors on a Ray cluster."""
