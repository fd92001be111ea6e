"""Compiled graphs of programs compared with the same graphs run operator by operator: which are wrong.

The hook writes a line for each run of a graph (``hook/for_torch/sgsdump_torch_compiled.py`` has its fields). A compiler
fuses and reorders sums, so its last digits differ: an output of floats is called wrong where the norm of the difference
is more than ``sqrt(eps)`` of the output's own, half of the digits that its type has (3.5e-4 in float32, 0.088 in
bfloat16); one of integers where more than a tenth of its elements differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sgsdump.capture.programs.process_index import Line, Process, own_lines

EVENT = "graph"
# The distance from 1 to the next number of the type.
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
MOST_DIFFERING = 0.1


@dataclass(frozen=True)
class GraphRun:
    """A compiled graph in the step in which it was farthest from its eager run.

    where     its module in the network and the line of the program, as far as they are known.
    output    the number of the output that is farthest off; None where nothing could be compared (random numbers).
    relative  norm of the difference over the norm of the eager output; None where one of them is not finite.
    differing how many of the output's ``elements`` are not equal.
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
    """A process's compiled graphs, in the order in which they ran first. Raises FormatError."""
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
    """(whether something is wrong, a sentence) for each graph that is, and one for all the others."""
    graphs = [graph for process in processes for graph in graphs_of(process)]
    wrong = [graph for graph in graphs if graph.is_wrong]
    for graph in wrong:
        yield True, _wrong(graph)
    compared = [graph for graph in graphs if graph.output is not None and not graph.is_wrong]
    if compared:
        largest = max(graph.relative or 0.0 for graph in compared)
        ran = f"{len(compared)} compiled graphs give" if len(compared) > 1 else "the compiled graph gives"
        yield (
            False,
            f"{ran} what torch computes operator by operator (the largest difference is {largest:.1e} of the norm)",
        )
    if len(graphs) > len(wrong) + len(compared):
        count = len(graphs) - len(wrong) - len(compared)
        yield False, f"compiled graphs that draw random numbers or give no tensor are not compared: {count}"


def _wrong(graph: GraphRun) -> str:
    off = (
        "is infinite or NaN on one side alone"
        if graph.relative is None
        else f"is off by {graph.relative:.2g} of its norm"
    )
    if graph.dtype not in EPS:
        off = f"differs in {graph.differing} of {graph.elements} elements"
    return (
        f"{graph.name} ({graph.operators} operators compiled by {graph.backend}; {graph.where}) computes something "
        f"else than torch operator by operator: output {graph.output} {off} in step {graph.step}; the compiler is at "
        f"fault there, not the network"
    )
