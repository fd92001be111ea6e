"""Cut a sub-model out of a model: the nodes that some outputs need, down to given inputs, and what these nodes use.

``Extractor`` reads the graph once and then copies only what it cuts out, so that one sub-model per tensor stays cheap;
``extract`` is for a single cut. What onnx's own extractor loses is kept: values that only the bodies of If, Loop and
Scan capture, sparse weights, quantisation annotations, metadata and functions. External data stay references: save
or run the sub-model where the data files are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, ModelError, hint
from sgsdump.models.graph import all_nodes, infer_types, inner_tensors, is_known, needs, tensor_type

if TYPE_CHECKING:
    import onnx


# Fields of a ModelProto and a GraphProto that a cut makes itself, or that say nothing about a part of the model.
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
    """One sub-model; see ``Extractor.extract``."""
    return Extractor(proto).extract(input_names, output_names, types)


class Extractor:
    """An index over a model that gives sub-models of it. The model is neither changed nor copied as a whole.

    ``proto`` must stay as it is while this lives. Raises ModelError when two nodes make the same tensor.
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
        """The sub-model that makes ``output_names`` (in that order, each once) from ``input_names``.

        input_names   tensors where the model is cut; they become the first inputs, in that order, needed or not. Inputs
                      of the model that are needed in spite of the cut follow. None cuts nowhere: the inputs are those
                      of the model's that the outputs need.
        output_names  node outputs; inputs and weights of the model too. Their types are what the model declares, or
                      none where it declares none (run-times infer them).
        types         TypeProto by tensor name, which override the model's: the types of values from an actual run.

        Raises ConfigError for an unknown name, ModelError for an input whose element type is unknown.
        """
        types = types or {}
        if not output_names:
            raise ConfigError("no output named for the sub-model; name at least one tensor")
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
        """Where to cut so that the sub-model of ``output_names`` keeps the last ``depth`` nodes that lead to them.

        Constant nodes are not counted and never cut off: they are weights. None cuts nowhere. Raises ConfigError.
        """
        if depth is None:
            return None
        if depth < 1:
            raise ConfigError(f"a depth of {depth} nodes leaves nothing of the graph; give 1 or more")
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
        """The type of a tensor by inference over the whole model, or as declared; None where it is unknown."""
        declared = self._declared.get(name)
        for kind in (self._inferred.get(name), declared.type if declared else None):
            if kind is not None and is_known(kind):
                return kind
        return None

    def _without(self, index: int, cut: Mapping[str, None]) -> onnx.NodeProto:
        """A node; where the model is cut at one output of it while another is needed, the one has a new name."""
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
                raise ConfigError(f"the tensor {name!r} is inside a body of a {node.op_type} node; name one outside")
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
                f"cannot cut the model at {name!r}: neither the model nor shape inference knows its element type; "
                f"cut at another tensor, or give its type"
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
        """The weights among the tensors used, and the annotations of those tensors with the weights these name."""
        notes = [note for name, note in self._annotations.items() if name in used]
        needed = used | {entry.value for note in notes for entry in note.quant_parameter_tensor_names}
        graph.initializer.extend(tensor for name, tensor in self._dense.items() if name in needed)
        graph.sparse_initializer.extend(tensor for name, tensor in self._sparse.items() if name in needed)
        graph.quantization_annotation.extend(notes)


class Dependencies:
    """Which nodes some tensors need, asked many times of one graph. Nodes are known by their index in the list.

    producer  the node that makes a tensor.
    makes     the tensors that a node makes.
    needs     the tensors that a node needs, those that only its bodies capture among them.

    Raises ModelError when two nodes make the same tensor.
    """

    def __init__(self, nodes: Sequence[onnx.NodeProto]):
        self._nodes = nodes
        self.producer: dict[str, int] = {}
        self.makes = [tuple(filter(None, node.output)) for node in nodes]
        for index, makes in enumerate(self.makes):
            for name in makes:
                if name in self.producer:
                    raise ModelError(f"two nodes of the model make the tensor {name!r}; no sub-model can be cut out")
                self.producer[name] = index
        self.needs: list[set[str]] = [needs(node) for node in nodes]

    def reads(self, index: int) -> list[str]:
        """The tensors a node needs, its own inputs first and in order."""
        inputs = [name for name in dict.fromkeys(self._nodes[index].input) if name]
        return [*inputs, *sorted(self.needs[index].difference(inputs))]

    def of(self, outputs: Iterable[str], cut: set[str]) -> tuple[list[int], set[str]]:
        """The nodes that the outputs need where the graph is cut, in an order in which they can run, and every tensor
        they meet."""
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
        """Each node's position in an order in which they can run: the file's own, where that is one."""
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
                    raise ModelError("the model's graph has a cycle; no sub-model can be cut out")
                else:
                    path.append(min(waits))
        return [order[index] for index in range(len(self._nodes))]


class ModelShell:
    """Everything of a model but its graph's contents: versions, metadata, functions; a part of the graph is put in."""

    def __init__(self, proto: onnx.ModelProto):
        self._proto = proto

    def around(self, nodes: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
        """A new model for these nodes, still without them, with those of the functions that they call."""
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
        """The model without its graph's contents and its functions."""
        import onnx

        bare = onnx.ModelProto()
        _copy_fields(self._proto, bare, _CUT_FIELDS)
        _copy_fields(self._proto.graph, bare.graph, _CUT_GRAPH_FIELDS)
        bare.graph.name = self._proto.graph.name or "sub_model"
        return bare


def _calls(nodes: Iterable[onnx.NodeProto]) -> set[tuple[str, str, str]]:
    """The operators of nodes, and of the nodes inside their bodies, by the key of a function."""
    return {(node.domain, node.op_type, node.overload) for node in all_nodes(nodes)}


def _copy_fields(
    source: onnx.ModelProto | onnx.GraphProto, target: onnx.ModelProto | onnx.GraphProto, but: tuple[str, ...]
) -> None:
    """Every field that is set, repeated or single, known to this version of ONNX."""
    for field, value in source.ListFields():
        if field.name in but:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)
