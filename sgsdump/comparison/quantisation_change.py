"""Which operators two quantised copies of one network keep in integers: whether an exclusion took effect. Apart: it
looks at the graphs alone, at no value.

A quantiser ignores names that match nothing without a word, so a
copy that was to have operators float may be the one before, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

from sgsdump.comparison.finding import Finding
from sgsdump.dumps.dump import Network
from sgsdump.dumps.onnx_network import OnnxNetwork
from sgsdump.dumps.quantised_graph import QuantisedGraph, is_passed, on_integers

KIND = "quantisation"
FLOAT, QUANTISED, ALIKE = "float", "quantised", "alike"


def change_findings(networks: tuple[Network, Network]) -> tuple[Finding, ...]:
    """One finding for the operators that only the benchmark has quantised, one for those that only the sample has, or
    one that says that both have the same; nothing where a side is no quantised network of a known graph."""
    graphs = [network.quantised for network in networks if isinstance(network, OnnxNetwork)]
    if len(graphs) < 2 or not all(graph.is_quantised for graph in graphs):
        return ()
    sample, benchmark = map(quantised_inputs, graphs)
    shared = sample.keys() & benchmark.keys()
    fewer = tuple(name for name in benchmark if name in shared and sample[name] < benchmark[name])
    more = tuple(name for name in benchmark if name in shared and sample[name] > benchmark[name])
    figures = {"operators": float(len(shared))}
    if not shared:
        return ()
    if not (fewer or more):
        return (Finding(KIND, figures=figures, facts={"what": ALIKE}),)
    return tuple(
        Finding(KIND, names[0], figures=figures, names=names, facts={"what": what})
        for what, names in ((FLOAT, fewer), (QUANTISED, more))
        if names
    )


def quantised_inputs(graph: QuantisedGraph) -> Mapping[str, int]:
    """By operator how many of its inputs and outputs are quantised; by its name, else by what it makes."""
    held = {name for group in graph.groups.values() for name in (*group.codes, *group.reals)}
    counts: dict[str, int] = {}
    for node in graph.nodes:
        name, kind, reads, makes, *_ = node
        if is_passed(node) or not makes or kind == "Constant":
            continue
        count = len(held.intersection(reads)) + sum(
            graph.groups[graph.root(made)].is_quantised for made in makes if made
        )
        label = name.removesuffix("_quant") or makes[0].removesuffix("_quantized")
        counts[label] = max(counts.get(label, 0), len(reads) if on_integers(kind) else count)
    return counts
