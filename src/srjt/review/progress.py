"""How far the review has come, and what it has done to the labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from srjt.review.audit_folder import AuditFolder
from srjt.review.decisions import Present

__all__ = ["Progress", "measure"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    queue: int  # the most doubtful labels, which are to be looked at
    reviewed: int  # of them
    skipped: int  # of them
    beyond: int  # reviewed outside the queue
    changed: int  # labels that differ from the given ones, wherever
    remaining_noise: float  # expected share of wrong labels: Σ (1 − quality) over those not reviewed, / N

    def to_dict(self) -> dict[str, int | float]:
        return asdict(self)

    def __str__(self) -> str:
        beyond = f" and {self.beyond:,} beyond" if self.beyond else ""
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        return (
            f"{self.reviewed:,} of {self.queue:,} reviewed{beyond}, {self.changed:,} changed{skipped}, "
            f"estimated remaining noise {100 * self.remaining_noise:.1f} %"
        )


def measure(audit: AuditFolder, present: Present, *, queue: int) -> Progress:
    """A reviewed label counts as right, a skipped one as doubtful as before."""
    reviewed = skipped = beyond = changed = 0
    doubt = float((1 - audit.quality).sum())
    for decision in present.decided():
        line = audit.line_of.get(decision.id)
        if line is None:  # of an earlier audit with other samples
            continue
        if decision.action == "skip":
            skipped += line < queue
            continue
        reviewed += line < queue
        beyond += line >= queue
        changed += decision.to_grade != audit.grades[audit.labels[line]]
        doubt -= 1 - float(audit.quality[line])
    return Progress(
        queue=queue,
        reviewed=reviewed,
        skipped=skipped,
        beyond=beyond,
        changed=changed,
        remaining_noise=max(0.0, doubt / len(audit)),
    )
