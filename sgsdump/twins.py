"""Pairs whose names agree but which are different tensors, and which tensor they really are."""

from __future__ import annotations

from sgsdump.align import Pair
from sgsdump.errors import SgsdumpError
from sgsdump.fingerprint import Agreement, find_matches
from sgsdump.real_values import RealValues
from sgsdump.row import Failed, Row, Twin
from sgsdump.thresholds import DOCUMENTED


def find_twins(
    pairs: tuple[Pair, ...], done: list[Row | Failed], ours: RealValues, theirs: RealValues, inputs: bool
) -> dict[int, Twin]:
    """By number of the pair, the tensor that agrees with one side of a pair that does not.

    Suspicious is what the SDK's guide calls a bad layer; to be another tensor, it must agree with another one within
    that guide's limits and ten times better than with its namesake, so a layer that quantisation spoilt is not one.
    """
    suspicious = {
        i: float("inf") if isinstance(found, Failed) else found.rmse
        for i, found in enumerate(done)
        if isinstance(found, Failed) or (found.finite and not found.passes(DOCUMENTED))
    }
    assert DOCUMENTED.min_cos is not None and DOCUMENTED.max_rmse is not None
    agreement = Agreement(DOCUMENTED.min_cos, DOCUMENTED.max_rmse)
    twins: dict[int, Twin] = {}
    for side, own, other in (("benchmark", ours, theirs), ("sample", theirs, ours)):
        targets = {}
        for i in suspicious.keys() - twins.keys():
            record = pairs[i].sample if own is ours else pairs[i].benchmark
            try:
                targets[i] = own.of(record), suspicious[i]
            except SgsdumpError:
                continue
        if not targets:
            continue
        for i, match in find_matches(targets, other.readable(inputs), agreement).items():
            r = match.record
            twins[i] = Twin(side, r.name, r.op_index, r.op_type, match.cos, match.rmse)
    return twins
