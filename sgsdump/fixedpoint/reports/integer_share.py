"""How much of a network became integers, in a sentence: calibrate and diagnose say it, and calibrate loads no more of
reports than this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgsdump.errors import listed
from sgsdump.reports.text import percent

if TYPE_CHECKING:
    from sgsdump.fixedpoint.quantisation.diagnosis.share import IntegerShare

MOST_NAMED = 4


def share_text(share: IntegerShare) -> str:
    """How much of a network became integers, and what stayed in float32; "" where all did."""
    if share.weights is None or not share.convolutions:
        return "no weight became an integer, so all of the network runs in float32 here"
    if share.whole:
        return ""
    kinds = listed([f"{count} {kind}" for kind, count in share.floats.items()], MOST_NAMED)
    macs = f" and {percent(share.macs)} of the multiplications" if share.macs is not None else ""
    return (
        f"{percent(share.weights)} of the weights{macs} became integers; {kinds} stayed in float32, which says nothing "
        f"of the chip"
    )
