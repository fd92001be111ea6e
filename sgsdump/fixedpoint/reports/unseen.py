"""Sentences and findings on the expected error on held-out images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgsdump.comparison.finding import Finding
from sgsdump.models.feeds.by_content import FEWEST_HELD_OUT
from sgsdump.reports.text import counted

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.tuning.unseen import Expected, Unseen

OF_CALIBRATION = (
    f"the figures apply to the calibration images only; give {FEWEST_HELD_OUT} or more different images (-i), or "
    f"separate images (--validate)"
)


def unseen_findings(unseen: Unseen, limits: Thresholds) -> Iterator[Finding]:
    """Yield a finding for each fixed model."""
    for kind, outputs in unseen.ran.items():
        found = unseen.expected(kind)
        figures = dict(zip(("expected_error", "median_image", "worst_image"), found.figures))
        figures |= {"images": float(found.images), "folds": float(unseen.folds)}
        facts = {"model": kind, "within": "yes" if outputs.good(limits) else "no"}
        yield Finding("unseen", figures=figures, evidence="measured", facts=facts)


def unseen_text(found: Expected, folds: int) -> str:
    """Return the error of the median and the worst image, and how the images were held out."""
    images = counted(found.images, "image")
    how = f", held out in {folds} folds" if folds else " not used for calibration"
    return f"error {found.median:.3g} on the median image and {found.worst:.3g} on the worst image; {images}{how}"
