"""Find the first tensor in which two runs of a model differ, dumping a few tensors instead of all.

How the tensors to try are chosen: ``pipeline/bisection/search.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from sgsdump.models.graph import needs, sorted_nodes
from sgsdump.pipeline.bisection.result import Answer, Bisection, FirstDifference, Missing, Tried
from sgsdump.pipeline.bisection.search import Search
from sgsdump.pipeline.console_lines import tried_line
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    import onnx

THRESHOLD = 1e-3


def bisect(
    proto: onnx.ModelProto,
    differs: Callable[[str], Answer],
    threshold: float = THRESHOLD,
    progress: Progress = SILENT,
) -> Bisection:
    """The first tensor of the graph, on some way through it, whose difference is over the threshold.

    differs   the difference of a tensor, 0 for none; NaN is beyond any threshold, and so is one that only one side
              gives; None when it is not known.
    progress  says a line for each tensor tried.

    First the ends of the graph are tried, then about log2(N) tensors spread over it; when these agree nothing is found.
    Raises ModelError for a graph with a cycle.
    """
    nodes = [node for node in sorted_nodes(proto.graph) if node.op_type != "Constant"]
    makers = {name: node for node in nodes for name in node.output if name}

    missing: dict[str, Missing] = {}

    def ask(name: str) -> float | None:
        answer = differs(name)
        if isinstance(answer, Missing):
            missing[name] = answer
            answer = math.inf if answer.one_sided else None
        progress.say(tried_line(name, answer, missing[name].executors if name in missing else ()))
        return answer

    search = Search({name: [n for n in needs(node) if n in makers] for name, node in makers.items()}, threshold, ask)
    name = search.run()
    inputs = search.sources(name) if name is not None else []
    tried = {name: Tried(name, value, missing.get(name)) for name, value in search.tried.items()}
    first = None
    if name is not None:
        node = makers[name]
        difference = float(search.tried[name] or 0)
        sources = tuple(tried[each] for each in inputs)
        first = FirstDifference(name, node.name, node.op_type, difference, sources, missing.get(name))
    return Bisection(first, tuple(tried.values()), len(makers))
