"""How many labels are reviewed, and how much noise is estimated to remain."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from srjt.auditing.folder import AuditFolder
from srjt.review.decisions import CurrentDecisions

__all__ = ["Progress", "review_progress"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    queue: int  # number of labels to review, the most doubtful ones
    reviewed: int  # of the queue
    skipped: int  # of the queue
    beyond: int  # reviewed outside the queue
    changed: int  # labels that now differ from the given ones, in the queue or not
    # expected proportion of wrong labels: Σ (1 − quality) over those not reviewed, / N; None: the networks know nothing
    remaining_noise: float | None

    def to_dict(self) -> dict[str, int | float | None]:
        return asdict(self)

    def __str__(self) -> str:
        beyond = f" and {self.beyond:,} beyond" if self.beyond else ""
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        noise = self.remaining_noise
        remaining = "" if noise is None else f", estimated remaining noise {100 * noise:.1f} %"
        return f"{self.reviewed:,} of {self.queue:,} reviewed{beyond}, {self.changed:,} changed{skipped}{remaining}"


def review_progress(audit: AuditFolder, current: CurrentDecisions, *, queue: int) -> Progress:
    """A reviewed label counts as right, a skipped one as before."""
    reviewed = skipped = beyond = changed = 0
    doubt = float((1 - audit.quality).sum())
    for decision in current.all():
        line = audit.line_of.get(decision.id)
        if line is None:  # from an earlier audit of other samples
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
        remaining_noise=max(0.0, doubt / len(audit)) if audit.judged else None,
    )
