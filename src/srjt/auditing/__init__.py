"""Label audits: cross-fit, estimate the noise, score every label; and the page on which an expert
settles the doubtful ones.
"""

from __future__ import annotations
