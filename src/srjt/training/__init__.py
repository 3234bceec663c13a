"""One loop for all methods, near the hardware's limit, that survives anything."""
