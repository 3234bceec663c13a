"""Self-Relaxed Joint Training (Takezaki et al., WACV 2025), "+Ours" on three hosts.

Rank by the hard loss, sharpened by τ = 0.1; learn from the soft label (Algorithms 1–3).
A new host becomes "+ours" by one such line.
"""

from __future__ import annotations

from srjt.methods.co_teaching import CoTeaching
from srjt.methods.codis import CoDis
from srjt.methods.jocor import JoCor
from srjt.methods.registry import register

_PAPER = "Takezaki et al., WACV 2025"

register(
    "co-teaching+ours", scores="ℓ_h(τ)", updates="soft label, peer's choice", paper=_PAPER, update="soft"
)(CoTeaching)
register(
    "jocor+ours",
    scores="ℓ_h1(τ) + ℓ_h2(τ) + λD(τ)",
    updates="soft label + λD, common choice",
    paper=_PAPER,
    update="soft",
)(JoCor)
register(
    "codis+ours", scores="ℓ_h(τ) − λD(τ)", updates="soft label, peer's choice", paper=_PAPER, update="soft"
)(CoDis)
