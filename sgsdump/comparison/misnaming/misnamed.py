"""Misnamed pairs: tensors whose names agree although they are different ones, and which tensor each really is."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.misnaming.value_probes import Agreement, Probed, find_matches, probe
from sgsdump.comparison.real_values import readable, real_values
from sgsdump.comparison.row import Failed, Misnamed, Row
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.dumps.dump import Dump
from sgsdump.errors import SgsdumpError

WORTH = 1 << 16  # values of a tensor that is probed while its pages are mapped anyway
SURE = 1e-3  # an RMSE that no two different tensors have; other float runtimes agree to 1e-5


def find_misnamed(
    pairs: tuple[Pair, ...],
    results: list[Row | Failed],
    sample: Dump,
    benchmark: Dump,
    inputs: bool,
    probed: Probed | None = None,
) -> dict[int, Misnamed]:
    """By number of the pair, the tensor that agrees with one side of a pair that does not.

    A pair is misnamed when one side agrees with another tensor within the documented thresholds and ten times better
    than with its namesake: a layer that quantisation spoilt does not, one with a Relu folded in does, though
    its COS may well pass. Pairs with an error of at most ``SURE`` are not looked at, nor those with NaN or Inf.
    ``probed``: what ``probing`` kept.
    """
    errors = {i: float("inf") if isinstance(result, Failed) else result.error for i, result in enumerate(results)}
    unreadable = {i for i, result in enumerate(results) if isinstance(result, Row) and not result.finite}
    suspicious = {i: error for i, error in errors.items() if error > SURE and i not in unreadable}
    assert DOCUMENTED.min_cos is not None and DOCUMENTED.max_rmse is not None
    agreement = Agreement(DOCUMENTED.min_cos, DOCUMENTED.max_rmse)
    misnamed: dict[int, Misnamed] = {}
    probed = {} if probed is None else probed
    held = {
        side: {id(record): (record, values) for record, values in readable(dump, inputs)}
        for side, dump in (("sample", sample), ("benchmark", benchmark))
        if suspicious
    }
    for side, own in (("benchmark", "sample"), ("sample", "benchmark")):
        targets = {}
        for i in suspicious.keys() - misnamed.keys():
            record = pairs[i].sample if own == "sample" else pairs[i].benchmark
            if id(record) in held[own]:
                targets[i] = *held[own][id(record)], suspicious[i]
        if not targets:
            continue
        for i, match in find_matches(targets, held[side].values(), agreement, probed).items():
            r = match.record
            misnamed[i] = Misnamed(side, r.name, r.op_index, r.op_type, match.cos, match.rmse)
    return misnamed


def probing(result: Callable[[Pair], Row | Failed], probed: Probed) -> Callable[[Pair], Row | Failed]:
    """``result``, which also probes the pair's larger tensors: before they are read, while nothing has to be mapped for
    that alone."""

    def of_pair(pair: Pair) -> Row | Failed:
        held = []
        for record in (pair.sample, pair.benchmark):
            if math.prod(record.tensor.info.shape or ()) >= WORTH:
                with suppress(SgsdumpError):
                    held.append(real_values(record))
                    probed[id(record)] = probe(held[-1])
        return result(pair)

    return of_pair
