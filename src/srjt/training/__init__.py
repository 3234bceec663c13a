"""Training: one loop for all methods, fast, and resumable at any step."""
