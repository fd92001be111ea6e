"""Operators that two quantised copies of one network keep in integers: check whether an exclusion took effect.

A quantiser silently ignores names that match nothing. A copy that should keep some operators in float may thus equal
the previous copy bit for bit. Only the graphs are compared, no values.
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
    """Return one finding each for operators quantised only in the benchmark and only in the sample.

    If both quantise the same operators, return one finding that says so. Nothing is returned unless both sides are
    quantised networks with known graphs.
    """
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
    """Return operator -> number of its quantised inputs and outputs.

    Operators without a name are keyed by their output.
    """
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
