"""The third stage of ``compare``: gather what is known of the pairs beside their figures, as evidence for the rules.

``rules.py`` has the rules themselves, one ordered list. They are applied when the limits are known:
``Comparison.findings`` and ``Comparison.verdict``.
"""

from __future__ import annotations

from sgsdump.comparison.align import Pairs
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.measure import Rows
from sgsdump.comparison.recordings import around, recorded


def conclude(pairs: Pairs, measured: Rows) -> Comparison:
    """Return the comparison of two dumps from the results of the first two stages."""
    causes = recorded(pairs, measured)
    sample, benchmark = pairs.dumps
    return Comparison(
        measured.rows,
        measured.alignment.only_in_sample,
        measured.alignment.only_in_benchmark,
        measured.failed,
        sample.notes,
        benchmark.notes,
        pairs.excluded,
        pairs.unwritten,
        pairs.completeness,
        causes=causes,
        environment=around(pairs, measured, causes),
    )
