"""What a plan really gives: its fixed model, in the hardware's own integers, on the pictures that judged the search.

The search tries plans by fake quantisation, which is quick and near; the plan that is taken is run as it will be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from sgsdump.executors.onnx_runtime.repeated_graph import WholeGraph
from sgsdump.models.model import Model
from sgsdump.models.passes.rewrites import mark_outputs
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.fixed_facts import FixedFacts
from sgsdump.quantisation.fixed_metadata import read_facts
from sgsdump.quantisation.fixed_model import FixedModel
from sgsdump.quantisation.objective import Score, score, total
from sgsdump.tensors.tensor import Quant
from sgsdump.tuning.scoring.combined_error import CombinedError
from sgsdump.tuning.scoring.judge import Picture


@dataclass(frozen=True)
class Verified:
    """The plan to take as it will run: ``error`` as the search counts it, then each output's own figures."""

    error: float
    cos: Mapping[str, float]
    rmse: Mapping[str, float]


def verify(
    model: Model,
    fixed: FixedModel,
    pictures: Sequence[Picture],
    combined: CombinedError,
    outputs: Sequence[str],
    progress: Progress = SILENT,
) -> Verified:
    """Run the fixed model of ``model`` on every picture. Raises ModelError when onnxruntime will not load it."""
    exact = exact_score(model, fixed, pictures, progress)
    return Verified(
        combined.of(exact),
        {name: exact.cos(name) for name in outputs},
        {name: exact.rmse(name) for name in outputs},
    )


def exact_score(model: Model, fixed: FixedModel, pictures: Sequence[Picture], progress: Progress = SILENT) -> Score:
    """The sums over all pictures of every tensor that ``Picture.floats`` has."""
    facts = read_facts(replace(model, proto=fixed.proto))
    assert facts is not None, "a fixed model has its facts"
    names = list(pictures[0].floats)
    sources = {name: _source(facts, name) for name in names}
    graph = WholeGraph(mark_outputs(fixed.proto, sources.values()))
    scores = []
    with progress.bar("verify", "picture") as advance, threadpool_limits(limits=1, user_api="blas"):
        for number, picture in enumerate(pictures):
            ran = graph.run(picture.raw, list(dict.fromkeys(sources.values())))
            values = {name: _real(ran[sources[name]], facts, name) for name in names}
            scores.append(score(values, picture.floats))
            advance(number + 1, len(pictures))
    return total(scores)


def _source(facts: FixedFacts, name: str) -> str:
    return facts.tensors[name].stored if name in facts.tensors else name


def _real(array: np.ndarray, facts: FixedFacts, name: str) -> np.ndarray:
    if name not in facts.tensors:
        return array
    quant: Quant = facts.tensors[name].quant
    return (array.astype(np.float32) - np.float32(quant.zero_point)) * np.float32(quant.scale)
