"""Misnamed pairs: tensors whose names agree although they are different ones, and which tensor each really is."""

from __future__ import annotations

import math
from collections.abc import Set

from sgsdump.comparison.misnaming.find_matches import Agreement, find_matches
from sgsdump.comparison.misnaming.match_by_value import AS_GOOD, Mapper
from sgsdump.comparison.misnaming.value_probes import Probes
from sgsdump.comparison.pairing.alignment import NAME_WAYS, Pair, compared
from sgsdump.comparison.row import Failed, Misnamed, Row
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.dumps.dump import Dump

SURE = 1e-3  # an RMSE that no two different tensors have; other float runtimes agree to 1e-5


def is_suspicious(result: Row | Failed) -> bool:
    """Whether a pair may be of different tensors."""
    return isinstance(result, Failed) or (result.finite and result.error > SURE)


def may_be_renamed(pair: Pair, outputs: Set[str]) -> bool:
    """Whether another tensor than the namesake may be meant: only names made the pair, and it is not one of the
    networks' ``outputs``."""
    return pair.how in NAME_WAYS and not {pair.sample.name, pair.benchmark.name} & outputs


def find_misnamed(
    pairs: tuple[Pair, ...],
    results: list[Row | Failed],
    sample: Dump,
    benchmark: Dump,
    inputs: bool,
    probes: Probes | None = None,
    run: Mapper = map,
) -> dict[int, Misnamed]:
    """By number of the pair, the tensor that agrees with one side of a pair that does not.

    A pair is misnamed when one side agrees with another tensor within the documented thresholds and ten times better
    than with its namesake: a layer that quantisation spoilt does not, one with a Relu folded in does, though
    its COS may well pass. Pairs with an error of at most ``SURE`` are not looked at, nor those with NaN or Inf.
    Where only the names made a pair, the tensor that agrees may well be the right one; a pair that a user, a rule or a
    graph made, and a network's output, is what it is: see ``may_be_renamed``.
    ``probes``: what was kept while the pairs were compared; ``run`` may spread work over
    threads.
    """
    suspicious = {
        i: result.error if isinstance(result, Row) else float("inf")
        for i, result in enumerate(results)
        if is_suspicious(result)
    }
    if not suspicious:
        return {}
    assert DOCUMENTED.min_cos is not None and DOCUMENTED.max_rmse is not None
    agreement = Agreement(DOCUMENTED.min_cos, DOCUMENTED.max_rmse)
    probes = probes or Probes()
    held = {side: compared(dump, inputs) for side, dump in (("sample", sample), ("benchmark", benchmark))}
    own_errors = {id(pair.sample): result.error for pair, result in zip(pairs, results) if isinstance(result, Row)}
    misnamed: dict[int, Misnamed] = {}
    for side, own in (("benchmark", "sample"), ("sample", "benchmark")):
        known = set(map(id, held[own]))
        targets = {}
        for i in suspicious.keys() - misnamed.keys():
            record = pairs[i].sample if own == "sample" else pairs[i].benchmark
            if id(record) in known:
                targets[i] = record, suspicious[i]
        for i, match in find_matches(targets, held[side], agreement, probes, run).items():
            r = match.record
            if side == "sample" and own_errors.get(id(r), math.inf) <= AS_GOOD * match.rmse:
                continue  # two tensors of the reference are equal, and this one has its own
            misnamed[i] = Misnamed(side, r.name, r.op_index, r.op_type, match.cos, match.rmse)
    return misnamed
