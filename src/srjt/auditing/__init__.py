"""Label audits: cross-fit, estimate the noise, score every label."""
