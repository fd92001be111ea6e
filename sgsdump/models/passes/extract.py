"""Extraction of sub-models: the nodes that some outputs need, back to given inputs, and all that these nodes use.

``Extractor`` reads the graph once and then copies only the extracted part, so that one sub-model per tensor stays
cheap; ``extract`` is for a single extraction. Unlike onnx's own extractor, it keeps values that only bodies of If, Loop
and Scan capture, sparse weights, quantisation annotations, metadata and functions. External data stay references: save
or run the sub-model in the folder of the data files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, ModelError, hint
from sgsdump.models.graph import all_nodes, infer_types, inner_tensors, is_known, needs, tensor_type

if TYPE_CHECKING:
    import onnx


# Fields of a ModelProto and a GraphProto that an extraction rebuilds, or that do not apply to a part of the model.
_CUT_FIELDS = ("graph", "functions", "training_info")
_CUT_GRAPH_FIELDS = (
    *("node", "input", "output", "initializer", "sparse_initializer"),
    *("value_info", "quantization_annotation"),
)


def extract(
    proto: onnx.ModelProto,
    input_names: Sequence[str] | None,
    output_names: Sequence[str],
    types: Mapping[str, onnx.TypeProto] | None = None,
) -> onnx.ModelProto:
    """Return one sub-model; see ``Extractor.extract``."""
    return Extractor(proto).extract(input_names, output_names, types)


class Extractor:
    """Index over a model that extracts sub-models without changing or copying the model as a whole.

    ``proto`` must not change during its lifetime. Raises ModelError if two nodes compute the same tensor.
    """

    def __init__(self, proto: onnx.ModelProto):
        graph = proto.graph
        self._proto = proto
        self._nodes = list(graph.node)
        self._dense = {t.name: t for t in graph.initializer}
        self._sparse = {t.values.name: t for t in graph.sparse_initializer}
        self._inputs = {info.name: info for info in graph.input}
        self._declared = {info.name: info for info in (*graph.value_info, *graph.output)}
        self._annotations = {note.tensor_name: note for note in graph.quantization_annotation}
        self._needed = Dependencies(self._nodes)
        self._shell = ModelShell(proto)

    def extract(
        self,
        input_names: Sequence[str] | None,
        output_names: Sequence[str],
        types: Mapping[str, onnx.TypeProto] | None = None,
    ) -> onnx.ModelProto:
        """Return the sub-model that computes ``output_names`` (distinct, in that order) from ``input_names``.

        input_names   tensors at which the model is cut. They become the first inputs, in that order, needed or not.
                      Model inputs that are still needed follow. None: the model inputs that the outputs need.
        output_names  node outputs, or inputs and weights of the model. Their types are as declared, or absent if not
                      declared (runtimes infer them).
        types         type by tensor name, which overrides the model's: types of values from an actual run

        Raises ConfigError for an unknown name, and ModelError for an input whose element type is unknown.
        """
        types = types or {}
        if not output_names:
            raise ConfigError("the sub-model has no outputs; give the name of at least one tensor")
        cut = list(dict.fromkeys(input_names or ()))
        outputs = list(dict.fromkeys(output_names))
        for name in (*cut, *outputs):
            self._check(name)
        chosen, used = self._needed.of(outputs, set(cut))
        model = self._shell.around(self._nodes[index] for index in chosen)
        graph = model.graph
        fed = dict.fromkeys([*cut, *(name for name in self._inputs if name in used)])
        graph.node.extend(self._without(index, fed) for index in chosen)
        graph.input.extend(self._input(name, types) for name in fed)
        graph.output.extend(self._output(name, types) for name in outputs)
        self._add_weights(graph, used - set(cut))
        inner = self._declared.keys() & used - {*outputs, *fed}
        made = (name for index in chosen for name in self._needed.makes[index] if name in inner)
        graph.value_info.extend(self._declared[name] for name in made)
        return model

    def last_inputs(self, output_names: Sequence[str], depth: int | None) -> list[str] | None:
        """Return the cut for which the sub-model of ``output_names`` keeps the last ``depth`` nodes before them.

        Constant nodes are weights: they are not counted and never cut off. None means no cut. Raises ConfigError.
        """
        if depth is None:
            return None
        if depth < 1:
            raise ConfigError(f"a depth of {depth} selects no nodes; give a depth of 1 or more")
        for name in output_names:
            self._check(name)
        chosen, _ = self._needed.of(output_names, set())
        counted = [index for index in chosen if self._nodes[index].op_type != "Constant"]
        kept = counted[-depth:]
        made = {name for index in kept for name in self._needed.makes[index]}
        reads = dict.fromkeys(name for index in kept for name in self._needed.reads(index) if name not in made)
        reads |= dict.fromkeys(name for name in output_names if name not in made)
        return [name for name in reads if not self._is_weight(name)]

    def type_of(self, name: str) -> onnx.TypeProto | None:
        """Return the type of a tensor by inference over the whole model, or as declared; None if unknown."""
        declared = self._declared.get(name)
        for kind in (self._inferred.get(name), declared.type if declared else None):
            if kind is not None and is_known(kind):
                return kind
        return None

    def _without(self, index: int, cut: Mapping[str, None]) -> onnx.NodeProto:
        """Return a node with the outputs at which the model is cut renamed, if another output is needed."""
        node = self._nodes[index]
        if cut.keys().isdisjoint(self._needed.makes[index]):
            return node
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for slot, name in enumerate(node.output):
            if name in cut:
                copy.output[slot] = f"{name}/not_used"
        return copy

    def _is_weight(self, name: str) -> bool:
        maker = self._needed.producer.get(name)
        if maker is not None:
            return self._nodes[maker].op_type == "Constant"
        return name in self._dense or name in self._sparse

    def _check(self, name: str) -> None:
        if name in self._needed.producer or name in self._inputs or name in self._dense or name in self._sparse:
            return
        for node in self._nodes:
            if name in inner_tensors(node):
                raise ConfigError(
                    f"the tensor {name!r} is inside a body of a {node.op_type} node; choose a tensor outside the body"
                )
        names = [*self._needed.producer, *self._inputs, *self._dense, *self._sparse]
        raise ConfigError(f"the model has no tensor {name!r}{hint(name, names)}")

    @cached_property
    def _inferred(self) -> dict[str, onnx.TypeProto]:
        order = sorted(range(len(self._nodes)), key=self._needed.rank.__getitem__)
        return infer_types(self._proto, nodes=[self._nodes[index] for index in order])

    def _input(self, name: str, types: Mapping[str, onnx.TypeProto]) -> onnx.ValueInfoProto:
        import onnx

        if name not in types:
            for info in (self._inputs.get(name), self._declared.get(name)):
                if info is not None and is_known(info.type):
                    return info
        kind = types.get(name) or self.type_of(name)
        if kind is None:
            raise ModelError(
                f"cannot cut the model at {name!r}: the element type of this tensor is unknown, even "
                "after shape inference. Cut at another tensor, or declare the type in the model"
            )
        return onnx.ValueInfoProto(name=name, type=kind)

    def _output(self, name: str, types: Mapping[str, onnx.TypeProto]) -> onnx.ValueInfoProto:
        import onnx

        if name in types:
            return onnx.ValueInfoProto(name=name, type=types[name])
        declared = self._declared.get(name) or self._inputs.get(name)
        if declared is None and name in self._dense:
            return onnx.ValueInfoProto(name=name, type=tensor_type(self._dense[name]))
        return declared or onnx.ValueInfoProto(name=name)

    def _add_weights(self, graph: onnx.GraphProto, used: set[str]) -> None:
        """Add the used weights, and the annotations of used tensors with the weights that these name."""
        notes = [note for name, note in self._annotations.items() if name in used]
        needed = used | {entry.value for note in notes for entry in note.quant_parameter_tensor_names}
        graph.initializer.extend(tensor for name, tensor in self._dense.items() if name in needed)
        graph.sparse_initializer.extend(tensor for name, tensor in self._sparse.items() if name in needed)
        graph.quantization_annotation.extend(notes)


class Dependencies:
    """Nodes that tensors depend on, for repeated queries of one graph; nodes are identified by their index.

    producer  node that computes a tensor
    makes     tensors that a node computes
    needs     tensors that a node needs, including those that only its bodies capture

    Raises ModelError if two nodes compute the same tensor.
    """

    def __init__(self, nodes: Sequence[onnx.NodeProto]):
        self._nodes = nodes
        self.producer: dict[str, int] = {}
        self.makes = [tuple(filter(None, node.output)) for node in nodes]
        for index, makes in enumerate(self.makes):
            for name in makes:
                if name in self.producer:
                    raise ModelError(f"two nodes of the model compute the tensor {name!r}; cannot extract a sub-model")
                self.producer[name] = index
        self.needs: list[set[str]] = [needs(node) for node in nodes]

    def reads(self, index: int) -> list[str]:
        """Return the tensors that a node needs, its own inputs first and in order."""
        inputs = [name for name in dict.fromkeys(self._nodes[index].input) if name]
        return [*inputs, *sorted(self.needs[index].difference(inputs))]

    def of(self, outputs: Iterable[str], cut: set[str]) -> tuple[list[int], set[str]]:
        """Return the nodes that the outputs need with these cuts, in an executable order, and every tensor involved."""
        producer, indices = self.producer, set[int]()
        used = set(outputs)
        pending = [name for name in used if name not in cut]
        while pending:
            index = producer.get(pending.pop())
            if index is None or index in indices:
                continue
            indices.add(index)
            pending += self.needs[index] - used - cut
            used |= self.needs[index]
        used.update(name for index in indices for name in self.makes[index])
        return sorted(indices, key=self.rank.__getitem__), used

    @cached_property
    def rank(self) -> list[int]:
        """Position of each node in an executable order; the file's own order if executable."""
        order: dict[int, int] = {}
        for start in range(len(self._nodes)):
            path = [start]
            while path:
                index = path[-1]
                sources = {self.producer[name] for name in self.needs[index] if name in self.producer}
                waits = [source for source in sources if source not in order]
                if index in order or not waits:
                    order.setdefault(index, len(order))
                    path.pop()
                elif len(path) > len(self._nodes):
                    raise ModelError("the model's graph has a cycle; cannot extract a sub-model")
                else:
                    path.append(min(waits))
        return [order[index] for index in range(len(self._nodes))]


class ModelShell:
    """A model without the contents of its graph: versions, metadata, functions; a part of the graph is inserted."""

    def __init__(self, proto: onnx.ModelProto):
        self._proto = proto

    def around(self, nodes: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
        """Return a new model for these nodes, without the nodes but with the functions that they call."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self._bare)
        if self._functions:
            called = _calls(nodes) & self._functions.keys()
            pending = list(called)
            while pending:
                fresh = _calls(self._functions[pending.pop()].node) & self._functions.keys() - called
                called |= fresh
                pending += fresh
            model.functions.extend(function for key, function in self._functions.items() if key in called)
        return model

    @cached_property
    def _functions(self) -> dict[tuple[str, str, str], onnx.FunctionProto]:
        return {(f.domain, f.name, f.overload): f for f in self._proto.functions}

    @cached_property
    def _bare(self) -> onnx.ModelProto:
        """Model without its graph's contents and its functions."""
        import onnx

        bare = onnx.ModelProto()
        _copy_fields(self._proto, bare, _CUT_FIELDS)
        _copy_fields(self._proto.graph, bare.graph, _CUT_GRAPH_FIELDS)
        bare.graph.name = self._proto.graph.name or "sub_model"
        return bare


def _calls(nodes: Iterable[onnx.NodeProto]) -> set[tuple[str, str, str]]:
    """Return the operators of nodes and of the nodes in their bodies, by function key."""
    return {(node.domain, node.op_type, node.overload) for node in all_nodes(nodes)}


def _copy_fields(
    source: onnx.ModelProto | onnx.GraphProto, target: onnx.ModelProto | onnx.GraphProto, but: tuple[str, ...]
) -> None:
    """Copy every set field, repeated or single, that this version of ONNX knows."""
    for field, value in source.ListFields():
        if field.name in but:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)
