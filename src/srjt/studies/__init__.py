"""Studies: methods × noises × folds × seeds, each trained once, and their results."""
