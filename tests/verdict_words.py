"""All sentences on a comparison, as its page and its table say them."""

from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.reports.three_lines import verdict_block
from sgsdump.reports.verdict import details, verdict_lines


def sentences(comparison, thresholds=DOCUMENTED):
    """The first lines, then the details."""
    concluded = comparison.verdict()
    return (*verdict_block(concluded), *details(comparison, thresholds, concluded))


def lines_of(comparison, thresholds=DOCUMENTED):
    """The first lines, then what follows the table."""
    concluded = comparison.verdict()
    return [*verdict_block(concluded), *verdict_lines(comparison, thresholds, concluded)]
