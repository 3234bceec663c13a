"""Auditing a data set: cross-fit, estimate the noise, score every label."""
