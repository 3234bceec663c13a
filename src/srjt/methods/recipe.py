"""``srjt``: "+Ours" on JoCoR, trained in the way that our search on real images favours. Not in the paper.

The paper trains all methods alike: five epochs until only 1 − ε is kept, each grade as often as it occurs, ε known.
On imbalanced photographs that keeps the commonest grade and nothing else, and outside a paper nobody knows ε.
Where no image shows a grade clearly its wrong labels look like unclear images, and the estimate of ε misses them:
there a share is discarded whatever the estimate. The networks are pulled together on the discarded images, too, which
needs no label.
What each change was worth stands in docs/results.md; to change one, change it here, and nowhere else.
"""

from __future__ import annotations

from srjt.methods.jocor import JoCor
from srjt.methods.registry import Recipe, register

register(
    "srjt",
    scores="as jocor+ours",
    updates="as jocor+ours, D on all; slow ramp, rare grades oftener, ε estimated",
    paper="this project",
    recipe=Recipe(noise_rate="auto", least_rate=0.3, balance=0.5, ramp_share=0.4),
    update="soft",
    agree="all",
    co_lambda=1.0,
)(JoCor)
