#!/usr/bin/env python3
"""Random networks whose operators change rank and layout, through every rewrite of a graph; each has to load and to
compute what onnxruntime computes of the original.

    python tools/rank_networks.py --networks 500 --seed 1
    python tools/rank_networks.py --networks 1 --seed 1 --first 37    # one of them again
    python tools/rank_networks.py --networks 40 --diagnose            # through ``diagnose`` as well: seconds a network

Networks are drawn by seed: Conv, Relu, Reduce*, Squeeze, Unsqueeze, Flatten, Reshape with 0 and -1, Transpose, Gather,
Expand, Split, Einsum, LSTM and MatMul, of opset 7 to the newest that the installed onnxruntime takes. The rewrites are
those that commands use: folded, lifted, as the SDK's converter writes it, marked, deployed, cut into segments, cut out.
Where the operators stay the same every bit has to; the shapes that a rewrite declares have to be the true ones.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

OPSETS = range(7, 24)
CLOSE = 1e-4  # of the largest value, what another order of sums leaves


class Drawn:
    """A network that is being drawn: its nodes, its weights, and the shape of the tensor at its end."""

    def __init__(self, rng: np.random.Generator, opset: int):
        self.rng, self.opset = rng, opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = (1, 3, int(rng.choice([8, 12])), int(rng.choice([8, 12])))
        self.input = self.shape
        self.at = "x"

    def add(self, kind: str, shape: tuple[int, ...], *further: str, outputs: int = 1, **attributes: object) -> None:
        names = [f"t{len(self.nodes)}_{i}" if i else f"t{len(self.nodes)}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, [self.at, *further], names, name=f"n{len(self.nodes)}", **attributes))
        self.at, self.shape = names[0], tuple(map(int, shape))

    def constant(self, values: np.ndarray) -> str:
        """As an initializer or as a Constant node."""
        name = f"k{len(self.weights)}_{len(self.nodes)}"
        tensor = numpy_helper.from_array(np.asarray(values), name)
        if self.rng.random() < 0.5:
            self.weights.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], name=f"c_{name}", value=tensor))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}_{len(self.nodes)}"
        values = self.rng.standard_normal(shape).astype(np.float32) / np.sqrt(max(np.prod(shape[1:]), 1))
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def with_axes(self, kind: str, since: int, axes: list[int], shape: tuple[int, ...], **attributes: object) -> None:
        """Axes are an attribute before this opset and an input from it on."""
        if self.opset >= since:
            self.add(kind, shape, self.constant(np.array(axes, np.int64)), **attributes)
        else:
            self.add(kind, shape, axes=axes, **attributes)


def _conv(net: Drawn) -> None:
    if len(net.shape) == 4 and min(net.shape[2:]) >= 3:
        channels = int(net.rng.choice([4, 8]))
        weight = net.weight(channels, net.shape[1], 3, 3)
        net.add("Conv", (net.shape[0], channels, *net.shape[2:]), weight, pads=[1] * 4)


def _relu(net: Drawn) -> None:
    net.add("Relu", net.shape)


def _reduce(net: Drawn) -> None:
    kind = str(net.rng.choice(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"]))
    rank = len(net.shape)
    if rank < 2:
        return
    axes = sorted(int(a) for a in net.rng.choice(np.arange(1, rank), int(net.rng.integers(1, rank)), replace=False))
    keep = int(net.rng.random() < 0.4)
    shape = tuple(1 if i in axes else n for i, n in enumerate(net.shape) if keep or i not in axes)
    if net.rng.random() < 0.3 and net.opset >= 11:
        axes = [a - rank for a in axes]
    since = {"ReduceSum": 13}.get(kind, 18)
    net.with_axes(kind, since, axes, shape, keepdims=keep)


def _squeeze(net: Drawn) -> None:
    ones = [i for i, n in enumerate(net.shape) if n == 1 and len(net.shape) > 1]
    if ones:
        axis = int(net.rng.choice(ones))
        net.with_axes("Squeeze", 13, [axis], (*net.shape[:axis], *net.shape[axis + 1 :]))


def _unsqueeze(net: Drawn) -> None:
    if len(net.shape) < 5:
        axis = int(net.rng.integers(0, len(net.shape) + 1))
        net.with_axes("Unsqueeze", 13, [axis], (*net.shape[:axis], 1, *net.shape[axis:]))


def _flatten(net: Drawn) -> None:
    axis = int(net.rng.integers(0, len(net.shape) + 1))
    net.add("Flatten", (np.prod(net.shape[:axis], dtype=int), np.prod(net.shape[axis:], dtype=int)), axis=axis)


def _reshape(net: Drawn) -> None:
    size = int(np.prod(net.shape))
    kept = int(net.rng.integers(0, len(net.shape)))
    head = net.shape[:kept]
    rest = size // int(np.prod(head, dtype=int))
    divisor = int(net.rng.choice([d for d in range(1, rest + 1) if rest % d == 0]))
    tail = [divisor, rest // divisor] if net.rng.random() < 0.7 else [rest]
    said = [0 if net.rng.random() < 0.5 else n for n in head] + tail
    if net.rng.random() < 0.6:
        said[int(net.rng.integers(len(head), len(said)))] = -1
    net.add("Reshape", (*head, *tail), net.constant(np.array(said, np.int64)))


def _transpose(net: Drawn) -> None:
    order = [int(i) for i in net.rng.permutation(len(net.shape))]
    net.add("Transpose", tuple(net.shape[i] for i in order), perm=order)


def _gather(net: Drawn) -> None:
    axis = int(net.rng.integers(0, len(net.shape)))
    if net.rng.random() < 0.5 and len(net.shape) > 1:
        index, middle = np.array(int(net.rng.integers(net.shape[axis])), np.int64), ()
    else:
        index = net.rng.integers(0, net.shape[axis], 2)
        middle = (2,)
    net.add("Gather", (*net.shape[:axis], *middle, *net.shape[axis + 1 :]), net.constant(index), axis=axis)


def _expand(net: Drawn) -> None:
    if net.opset >= 8 and np.prod(net.shape) < 2000:
        shape = tuple(2 if n == 1 and net.rng.random() < 0.5 else n for n in net.shape)
        net.add("Expand", shape, net.constant(np.array(shape, np.int64)))


def _split(net: Drawn) -> None:
    axes = [i for i, n in enumerate(net.shape) if n % 2 == 0]
    if axes:
        axis = int(net.rng.choice(axes))
        half = net.shape[axis] // 2
        shape = (*net.shape[:axis], half, *net.shape[axis + 1 :])
        if net.opset >= 13:
            net.add("Split", shape, net.constant(np.array([half, half], np.int64)), outputs=2, axis=axis)
        else:
            net.add("Split", shape, outputs=2, axis=axis, split=[half, half])


def _einsum(net: Drawn) -> None:
    if net.opset >= 12 and len(net.shape) == 3:
        weight = net.weight(4, net.shape[2])
        net.nodes.append(
            helper.make_node("Einsum", [net.at, weight], [f"t{len(net.nodes)}"], name=f"n{len(net.nodes)}",
                             equation="abc,dc->abd")
        )  # fmt: skip
        net.at, net.shape = net.nodes[-1].output[0], (*net.shape[:2], 4)


def _matmul(net: Drawn) -> None:
    if len(net.shape) in (2, 3):
        net.add("MatMul", (*net.shape[:-1], 6), net.weight(net.shape[-1], 6))


def _lstm(net: Drawn) -> None:
    if len(net.shape) == 3 and net.shape[2] <= 64 and net.shape[0] <= 64:
        weight, recurrence = net.weight(1, 20, net.shape[2]), net.weight(1, 20, 5)
        net.add("LSTM", (net.shape[0], 1, net.shape[1], 5), weight, recurrence, hidden_size=5)


# As often as they are listed: means along an axis, then a shape that depends on it, are what recognisers end in.
STEPS: tuple[Callable[[Drawn], None], ...] = (
    *[_reduce] * 4,
    *[_reshape] * 3,
    *[_matmul, _einsum, _lstm] * 2,
    *(_relu, _squeeze, _unsqueeze, _flatten, _transpose, _gather, _expand, _split),
)


def drawn(seed: int, number: int) -> onnx.ModelProto:
    """The network of this number: some convolutions, then operators that change rank."""
    rng = np.random.default_rng((seed, number))
    opset = int(rng.choice([version for version in OPSETS if version <= newest()]))
    net = Drawn(rng, opset)
    for step in (_conv, _relu, _conv):
        step(net)
    for _ in range(int(rng.integers(2, 8))):
        if np.prod(net.shape) <= 1 or np.prod(net.shape) > 20000:
            break
        STEPS[int(rng.integers(len(STEPS)))](net)
    graph = helper.make_graph(
        net.nodes, f"rank_{seed}_{number}",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, net.input)],
        [helper.make_tensor_value_info(net.at, onnx.TensorProto.FLOAT, net.shape)], net.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = min(model.ir_version, 8 if opset < 18 else 10)
    return model


def newest() -> int:
    """Return the newest opset of the default domain that onnx and onnxruntime both support."""
    major, minor = (int(part) for part in ort.__version__.split(".")[:2])
    of_runtime = 21 if (major, minor) < (1, 21) else 23
    return min(onnx.defs.onnx_opset_version(), of_runtime)


def run(proto: onnx.ModelProto, feed: dict[str, np.ndarray], names: list[str] | None = None) -> dict[str, np.ndarray]:
    """What onnxruntime computes, its own optimisations off: of the outputs, or of these tensors."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if names is not None:
        del copy.graph.output[:]
        copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [output.name for output in session.get_outputs()]
    return dict(zip(wanted, session.run(wanted, feed)))


def findings(proto: onnx.ModelProto, diagnose: bool = False) -> Iterator[str]:
    """A line for each rewrite of this network that does not load, gives another value, or declares another shape."""
    from sgsdump.executors.table import open_runner
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.fixedpoint.verbs.network import open_float_model
    from sgsdump.models.graph import infer_types, sizes_of
    from sgsdump.models.model import open_model
    from sgsdump.models.passes.extract import extract
    from sgsdump.models.passes.lift import lift
    from sgsdump.models.passes.rewrites import fold_constants
    from sgsdump.sidecars.input_config import InputConfig

    shape = sizes_of(proto.graph.input[0].type)
    feed = {"x": np.random.default_rng(0).standard_normal([n or 1 for n in shape or []]).astype(np.float32)}
    tensors = [name for node in proto.graph.node if node.op_type != "Constant" for name in node.output if name]
    real = run(proto, feed, tensors)
    output = proto.graph.output[0].name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.onnx")
        onnx.save(proto, path)
        opened = open_model(path)
        floats = open_float_model(path, None, InputConfig(()))

        def of_segments() -> dict[str, np.ndarray]:
            runner = open_runner(opened)
            return {layer.name: layer.array for layer in runner.run(feed, None, lambda *_: None)}

        rewrites: dict[str, tuple[Callable[[], dict[str, np.ndarray]], bool]] = {
            "folded": (lambda: run(fold_constants(opened.proto), feed), True),
            "lifted": (lambda: run(lift(opened.proto), feed), True),
            "segments": (of_segments, True),
            "as converted": (lambda: run(floats.proto, feed), False),
            "deployed, every tensor marked": (lambda: run(deployed(floats), feed, _made(deployed(floats))), False),
            "cut out": (lambda: run(extract(deployed(floats), None, [output]), feed), False),
        }
        for name, (made, same) in rewrites.items():
            try:
                values = made()
            except Exception as error:
                yield f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
                continue
            yield from (f"{name}: {line}" for line in _apart(values, real, same))
        for model in (opened.proto, floats.proto, deployed(floats)):
            names = _made(model)
            true = run(model, feed, names)
            for info, kind in infer_types(model).items():
                sizes = sizes_of(kind)
                if info in true and sizes is not None and not _fits(sizes, true[info].shape):
                    yield f"declared: {info} is {sizes}, it has {list(true[info].shape)}"
        if diagnose and real[output].any():  # of zeros no error can be measured
            yield from _diagnosed(path, feed)


def _diagnosed(path: Path, feed: dict[str, np.ndarray]) -> Iterator[str]:
    import sgsdump

    rng = np.random.default_rng(1)
    runs = [feed, *({"x": rng.standard_normal(feed["x"].shape).astype(np.float32)} for _ in range(2))]
    try:
        sgsdump.diagnose(path, runs)
    except sgsdump.SgsdumpError as error:
        yield f"diagnose: {error}"


def _made(proto: onnx.ModelProto) -> list[str]:
    return [name for node in proto.graph.node if node.op_type != "Constant" for name in node.output if name]


def _fits(sizes: list[int | None], shape: tuple[int, ...]) -> bool:
    return len(sizes) == len(shape) and all(said in (None, size) for said, size in zip(sizes, shape))


def _apart(values: dict[str, np.ndarray], real: dict[str, np.ndarray], same: bool) -> Iterator[str]:
    if not values.keys() & real.keys():
        yield "it returns none of the tensors"
    for name in values.keys() & real.keys():
        one, other = values[name], real[name]
        largest = max(np.abs(other).max(initial=0), 1e-6)
        if one.shape != other.shape:
            yield f"{name} has the shape {list(one.shape)} instead of {list(other.shape)}"
        elif (same and not np.array_equal(one, other)) or np.abs(one - other).max(initial=0) > CLOSE * largest:
            yield f"{name} differs by {np.abs(one - other).max():.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--diagnose", action="store_true", help="also run diagnose on each model")
    args = parser.parse_args()
    count, refused = 0, 0
    for number in range(args.first, args.first + args.networks):
        try:
            proto = drawn(args.seed, number)
            onnx.checker.check_model(proto)
            run(
                proto,
                {"x": np.zeros([d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim], np.float32)},
            )
        except Exception:  # this onnxruntime does not take it
            refused += 1
            continue
        lines = list(findings(proto, args.diagnose))
        count += bool(lines)
        kinds = " ".join(node.op_type for node in proto.graph.node if node.op_type != "Constant")
        for line in lines:
            print(f"{args.seed}:{number} opset {proto.opset_import[0].version} {kinds}: {line}", flush=True)
    ran = args.networks - refused
    print(f"{ran} networks, {count} with findings; {refused} that onnxruntime {ort.__version__} does not take")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
