"""Pairs whose names agree but which are different tensors, and which tensor they really are."""

from __future__ import annotations

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.real_values import RealValues
from sgsdump.comparison.row import Failed, Row, Twin
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.comparison.value_probes import Agreement, find_matches
from sgsdump.errors import SgsdumpError

SURE = 1e-3  # an RMSE that no two different tensors have; other float runtimes agree to 1e-5


def find_twins(
    pairs: tuple[Pair, ...], done: list[Row | Failed], ours: RealValues, theirs: RealValues, inputs: bool
) -> dict[int, Twin]:
    """By number of the pair, the tensor that agrees with one side of a pair that does not.

    To be another tensor, one side must agree with another one within the documented thresholds and ten times better
    than with its namesake: a layer that quantisation spoilt does not, one with a Relu folded in does, though
    its COS may well pass. Pairs that agree to ``SURE`` are not looked at.
    """
    errors = {i: float("inf") if isinstance(found, Failed) else found.error for i, found in enumerate(done)}
    unreadable = {i for i, found in enumerate(done) if isinstance(found, Row) and not found.finite}
    suspicious = {i: error for i, error in errors.items() if error > SURE and i not in unreadable}
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
