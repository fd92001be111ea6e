"""Which convolutions the next round of a repair raises, of those that the advice names."""

from __future__ import annotations

from collections.abc import Iterable

from sgsdump.tuning.advice.advice import MAYBE, NO, YES, Advice, rules_text


def worth_raising(entries: Iterable[Advice], all_16_would_do: bool) -> list[Advice]:
    """What advise is sure of; else what it thinks likely; else, where all at INT16 would do, the worse half.

    Only what was measured counts, and one convolution for each domain.
    """
    advice: dict[str, Advice] = {}
    for entry in entries:
        if entry.measured and entry.signs.limits:
            advice.setdefault(entry.convolution.domain, entry)
    for verdict in (YES, MAYBE):
        chosen = [entry for entry in advice.values() if entry.verdict == verdict]
        if chosen:
            return chosen
    if not all_16_would_do:
        return []
    rest = sorted(
        (entry for entry in advice.values() if entry.verdict == NO),
        key=lambda entry: -entry.measured.brings,  # type: ignore[union-attr]
    )
    return rest[: -(-len(rest) // 2)]


def why(entry: Advice) -> str:
    """The evidence for raising a convolution, measured first."""
    assert entry.measured is not None
    share = f"its 8 bits alone bring {100 * entry.measured.brings_share:.0f} % of the error that was left"
    return ", ".join(filter(None, [share, rules_text(entry.signs)]))
