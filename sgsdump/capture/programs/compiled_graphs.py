"""Comparison of a program's compiled graphs with the same graphs run operator by operator, and which graphs are wrong.

The hook writes a line for each run of a graph (fields: ``hook/for_torch/sgsdump_torch_compiled.py``). A compiler fuses
and reorders sums, so the last digits differ. A float output counts as wrong if the norm of the difference exceeds
``sqrt(eps)`` of the output's norm, half of the digits of its type (3.5e-4 in float32, 0.088 in bfloat16). An integer
output counts as wrong if more than a tenth of its elements differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sgsdump.capture.programs.process_index import Line, Process, own_lines

EVENT = "graph"
# Distance from 1 to the next number of the type.
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
MOST_DIFFERING = 0.1


@dataclass(frozen=True)
class GraphRun:
    """A compiled graph in the step in which it differed most from its eager run.

    where     module in the network and line of the program, as far as known.
    output    index of the output that differs most; None if nothing could be compared (random numbers).
    relative  norm of the difference over the norm of the eager output; None if either is not finite.
    differing number of unequal elements among the output's ``elements``.
    """

    name: str
    backend: str
    where: str
    operators: int
    step: int
    output: int | None
    dtype: str
    relative: float | None
    differing: int
    elements: int

    @property
    def is_wrong(self) -> bool:
        if self.output is None or not self.differing:
            return False
        if self.dtype in EPS:
            return self.relative is None or self.relative > EPS[self.dtype] ** 0.5
        return self.differing > MOST_DIFFERING * self.elements

    @property
    def rank(self) -> tuple[bool, float]:
        return self.is_wrong, float("inf") if self.relative is None and self.differing else self.relative or 0.0


def graphs_of(process: Process) -> tuple[GraphRun, ...]:
    """Return a process's compiled graphs in the order of their first runs. Raises FormatError."""
    if not process.kinds.get(EVENT):
        return ()
    worst: dict[str, GraphRun] = {}
    for line in own_lines(process.folder):
        if line.get("event") == EVENT:
            run = _run_of(line)
            if run.name not in worst or run.rank > worst[run.name].rank:
                worst[run.name] = run
    return tuple(worst.values())


def _run_of(line: Line) -> GraphRun:
    where = [str(line.get(key) or "") for key in ("module", "line")]
    output, relative = line.get("output"), line.get("relative")
    return GraphRun(
        name=str(line.get("graph", "")),
        backend=str(line.get("backend", "")),
        where=", ".join(word for word in where if word),
        operators=_whole(line.get("operators")),
        step=_whole(line.get("step")),
        output=output if isinstance(output, int) else None,
        dtype=str(line.get("dtype", "")),
        relative=relative if isinstance(relative, float) else None,
        differing=_whole(line.get("differing")),
        elements=_whole(line.get("elements")),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def graph_notes(processes: Sequence[Process]) -> Iterator[tuple[bool, str]]:
    """Yield (is wrong, sentence) for each wrong graph, and one sentence for all others."""
    graphs = [graph for process in processes for graph in graphs_of(process)]
    wrong = [graph for graph in graphs if graph.is_wrong]
    for graph in wrong:
        yield True, _wrong(graph)
    compared = [graph for graph in graphs if graph.output is not None and not graph.is_wrong]
    if compared:
        largest = max(graph.relative or 0.0 for graph in compared)
        ran = f"{len(compared)} compiled graphs agree" if len(compared) > 1 else "the compiled graph agrees"
        yield (
            False,
            f"{ran} with torch run operator by operator (largest difference: {largest:.1e} of the norm)",
        )
    if len(graphs) > len(wrong) + len(compared):
        count = len(graphs) - len(wrong) - len(compared)
        yield False, f"compiled graphs that draw random numbers or return no tensor are not compared: {count}"


def _wrong(graph: GraphRun) -> str:
    off = (
        "is infinite or NaN on one side only"
        if graph.relative is None
        else f"differs by {graph.relative:.2g} of its norm"
    )
    if graph.dtype not in EPS:
        off = f"differs in {graph.differing} of {graph.elements} elements"
    return (
        f"{graph.name} ({graph.operators} operators compiled by {graph.backend}; {graph.where}) does "
        f"not match eager execution: output {graph.output} {off} in step {graph.step}. The compiler "
        "causes this difference, not the model"
    )
