"""Faults of an executor: a plug-in that computes as onnxruntime does, but for one tensor; run as a user would.

``pipeline -cd`` against onnxruntime's dump, ``--bisect``, and the three-way comparison with a float16 and a golden run
(``pipeline -g``, and ``judge`` of the dumps alone), in turn. The healthy ones compute the same another way:
onnxruntime with all its fusing, the sums of convolutions in another order, the reference evaluator.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from plants.outcome import Outcome, sgsdump

FAULTY = '''
"""An executor of the user's own: onnxruntime, and what plan.json says is wrong with it."""
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from sgsdump.executors.base import Executor
from sgsdump.models.external_data import in_one_piece

PLAN = json.loads((Path(__file__).parent / "plan.json").read_text())


class Faulty(Executor):
    name = "faulty"

    def on_load(self, model, configs, folder):
        own = onnx.ModelProto()
        own.CopyFrom(in_one_piece(model, folder))
        if PLAN["kind"] == "reordered":
            _reorder(own.graph)
        elif PLAN["kind"] != "optimised" and _is_in(own.graph):
            _spoil(own.graph)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        if PLAN["kind"] != "optimised":
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(own.SerializeToString(), options)

    def on_execute(self, output_names, feed, configs):
        return self.session.run(output_names, dict(feed))


def _is_in(graph):
    made = {name for node in graph.node for name in node.output}
    asked = {info.name for info in graph.output}
    return PLAN["tensor"] in made and all(name in made and name not in asked for name in PLAN["inner"])


def _spoil(graph):
    index, node = next((i, n) for i, n in enumerate(graph.node) if PLAN["tensor"] in n.output)
    node.output[list(node.output).index(PLAN["tensor"])] = "right_"
    data = np.load(Path(__file__).parent / "factor.npy")
    graph.initializer.append(numpy_helper.from_array(data, "factor_"))
    new = []
    if PLAN["kind"] == "hidden":
        graph.initializer.append(numpy_helper.from_array(np.float32(0), "zero_"))
        new += [helper.make_node("Less", ["right_", "zero_"], ["below_"])]
        new += [helper.make_node("Mul", ["right_", "factor_"], ["wrong_"])]
        new += [helper.make_node("Where", ["below_", "wrong_", "right_"], [PLAN["tensor"]])]
    else:
        new += [helper.make_node("Mul", ["right_", "factor_"], [PLAN["tensor"]])]
    for offset, each in enumerate(new):
        graph.node.insert(index + 1 + offset, each)


def _reorder(graph):
    """Convolutions sum up their channels backwards."""
    weights = {t.name: t for t in graph.initializer}
    nodes = []
    for number, node in enumerate(graph.node):
        weight = weights.get(node.input[1]) if node.op_type == "Conv" else None
        groups = next((a.i for a in node.attribute if a.name == "group"), 1)
        if weight is not None and groups == 1:
            array = numpy_helper.to_array(weight)
            order = np.arange(array.shape[1])[::-1].copy()
            graph.initializer.append(numpy_helper.from_array(array[:, order].copy(), f"w_{number}"))
            graph.initializer.append(numpy_helper.from_array(order, f"order_{number}"))
            nodes.append(helper.make_node("Gather", [node.input[0], f"order_{number}"], [f"x_{number}"], axis=1))
            node.input[0], node.input[1] = f"x_{number}", f"w_{number}"
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
'''


class _Net:
    """A random net: convolutions plain, residual, depthwise and branching, and a detector's or a classifier's end."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.groups: list[tuple[str, ...]] = []
        last, channels = "x", 3
        for _ in range(int(rng.integers(3, 6))):
            last, channels = self._block(last, channels)
        end = self._detector if rng.random() < 0.5 else self._classifier
        outputs = end(last, channels)
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "net",
            [info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
            [info(name, TensorProto.FLOAT, None) for name in outputs],
            self.weights,
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self.proto = onnx.shape_inference.infer_shapes(proto)
        self.shapes = {
            v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
            for v in (*self.proto.graph.value_info, *self.proto.graph.output)
        }

    def _add(self, op: str, *sources: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(sources), [name], name=f"node_{name}", **attributes))
        return name

    def _weight(self, *shape: int, scale: float | None = None) -> str:
        name = f"w{len(self.weights)}"
        size = scale if scale is not None else float(np.sqrt(2 / np.prod(shape[1:])))
        self.weights.append(numpy_helper.from_array(self.rng.normal(0, size, shape).astype(np.float32), name))
        return name

    def _conv(self, x: str, ins: int, outs: int, size: int = 3, group: int = 1) -> str:
        weight, bias = self._weight(outs, ins // group, size, size), self._weight(outs, scale=0.1)
        return self._add("Conv", x, weight, bias, pads=[size // 2] * 4, group=group)

    def _activated(self, x: str) -> str:
        kind = self.rng.choice(["Relu", "SiLU", "HardSwish"], p=[0.6, 0.2, 0.2])
        if kind == "SiLU":
            return self._add("Mul", x, self._add("Sigmoid", x))
        out = self._add(str(kind), x)
        if kind == "Relu":
            self.groups.append((x, out))
        return out

    def _block(self, x: str, channels: int) -> tuple[str, int]:
        outs = int(self.rng.choice([4, 6, 8, 16]))
        kind = self.rng.choice(["plain", "residual", "depthwise", "branching"])
        first = self._activated(self._conv(x, channels, outs))
        if kind == "residual":
            second = self._conv(first, outs, outs)
            total = self._add("Add", second, first)
            self.groups.append((second, total))
            return self._activated(total), outs
        if kind == "depthwise":
            deep = self._activated(self._conv(first, outs, outs, group=outs))
            return self._activated(self._conv(deep, outs, outs, 1)), outs
        if kind == "branching":
            branches = [self._activated(self._conv(first, outs, 4, int(size))) for size in (1, 3)]
            return self._add("Concat", *branches, axis=1), 8
        return first, outs

    def _detector(self, x: str, channels: int) -> list[str]:
        """Coordinates in pixels beside scores, as detectors give them."""
        self.weights.append(numpy_helper.from_array(np.array([1, 4, 144]), "boxes_shape"))
        self.weights.append(numpy_helper.from_array(np.array([1, 3, 144]), "scores_shape"))
        self.weights.append(numpy_helper.from_array(np.float32(320), "stride"))
        boxes = self._add("Reshape", self._conv(x, channels, 4, 1), "boxes_shape")
        scores = self._add("Sigmoid", self._add("Reshape", self._conv(x, channels, 3, 1), "scores_shape"))
        both = self._add("Concat", self._add("Mul", boxes, "stride"), scores, axis=1)
        return [self._add("Transpose", both, perm=[0, 2, 1])]

    def _classifier(self, x: str, channels: int) -> list[str]:
        pooled = self._add("Flatten", self._add("GlobalAveragePool", x))
        logits = self._add("Gemm", pooled, self._weight(channels, 10), self._weight(10, scale=0.1))
        return [self._add("Softmax", logits, axis=1)] if self.rng.random() < 0.5 else [logits]


def _spoiled(kind: str) -> Callable[[np.random.Generator, Path], Outcome]:
    def plant(rng: np.random.Generator, folder: Path) -> Outcome:
        net = _Net(rng)
        tensor, inner = _tensor(net, kind, rng)
        shape = net.shapes[tensor]
        factor = np.ones(shape, np.float32)
        if kind == "one_percent":
            factor *= 1.01
        elif kind == "sign":
            channel = slice(None) if rng.random() < 0.5 or len(shape) < 3 else int(rng.integers(shape[1]))
            factor[:, channel] = -1
        elif kind == "nan":
            factor.flat[int(rng.integers(factor.size))] = np.nan
        elif kind == "hidden":
            factor *= rng.choice([0.5, 0.9, 2.0])
        else:
            factor *= rng.choice([1.03, 1.1, -1])
        _write(net, folder, {"kind": kind, "tensor": tensor, "inner": inner}, factor)
        return _told(folder, frozenset({tensor}), rng, "faulty")

    return plant


def _tensor(net: _Net, kind: str, rng: np.random.Generator) -> tuple[str, list[str]]:
    """The tensor that is wrong, and those that must not be asked for beside it."""
    read = [name for node in net.nodes for name in node.input]
    if kind == "fused":
        lone = [group for group in net.groups if read.count(group[0]) == 1]
        first, last = lone[int(rng.integers(len(lone)))] if lone else net.groups[0]
        return last, [first]
    if kind == "hidden":
        before = [n.input[0] for n in net.nodes if n.op_type == "Relu" and read.count(n.input[0]) == 1]
        if before:
            return str(rng.choice(before)), []
    computing = [n.output[0] for n in net.nodes if n.op_type not in ("Reshape", "Transpose", "Concat", "Flatten")]
    return str(rng.choice(computing)), []


def _healthy(rng: np.random.Generator, folder: Path) -> Outcome:
    kind = str(rng.choice(["optimised", "reordered", "reference"]))
    _write(_Net(rng), folder, {"kind": kind}, np.ones(1, np.float32))
    return _told(folder, frozenset(), rng, "reference" if kind == "reference" else "faulty")


def _write(net: _Net, folder: Path, plan: dict[str, object], factor: np.ndarray) -> None:
    onnx.save(net.proto, folder / "net.onnx")
    np.save(folder / "factor.npy", factor)
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "faulty.py").write_text(FAULTY)
    info = folder / "faulty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sgsdump.executors]\nfaulty = faulty:Faulty\n")


def _told(folder: Path, culprits: frozenset[str], rng: np.random.Generator, executor: str) -> Outcome:
    inputs = ["--seed", str(int(rng.integers(1000))), "--range", "-1", "1"]
    run = ["pipeline", "full", "-m", "net.onnx", *inputs]
    way = str(rng.choice(["two", "two_fast", "bisect", "golden", "compare"]))
    if way == "bisect":
        done = sgsdump(*run, "-f", executor, "--bisect", "ort", folder=folder)
        line = next((text for text in done.stdout.splitlines() if text.startswith("first difference: ")), "")
        named = (line.split()[2],) if line else ()
        more = [
            text
            for text in done.stdout.splitlines()
            if text.startswith("also computed incorrectly from correct inputs: ")
        ]
        named += tuple(more[0].partition(": ")[2].split(", ")) if more else ()
        return Outcome(culprits, named, line or done.stdout.splitlines()[-1])
    sgsdump(*run, "-o", "float", folder=folder)
    against = ["-cd", "float"]
    if way in ("golden", "compare"):
        sgsdump(*run, "-mt", "float16", "-o", "half", folder=folder)
    if way == "compare":
        return _compared(folder, culprits, run, executor)
    if way == "golden":
        against = ["-cd", "half", "-g", "float", "-t", "2"]
    mode = ["--mode", "fast"] if way == "two_fast" else []
    done = sgsdump(*run, "-f", executor, *mode, "-o", "dump", *against, folder=folder)
    document = json.loads((folder / "dump/compare_result.json").read_text())
    causes = [f["layer"] for f in document["findings"] if f["kind"] in ("cause", "not finite")]
    lines = [text for text in done.stdout.splitlines() if text.startswith("operators beyond their rounding bound")]
    line = lines[0] if lines else done.stdout.splitlines()[-2]
    if causes and f"; first {causes[0]} " not in line:
        causes = []  # the headline says something else
    if not culprits and done.returncode:
        causes = causes or ["exit 1"]
    return Outcome(culprits, tuple(causes), line)


def _compared(folder: Path, culprits: frozenset[str], run: list[str], executor: str) -> Outcome:
    """``judge`` of dumps alone: no model, nothing is computed again but the whole model at the dump."""
    dumped = sgsdump(*run, "-f", executor, "-o", "dump", folder=folder).stdout.splitlines()
    fused = [text.partition(": ")[2].split()[0] for text in dumped if text.startswith("wrong only when fused: ")]
    files = ["dump", "half", "float", "--times", "2", "--json", "golden.json"]
    done = sgsdump("judge", *files, folder=folder)
    findings = json.loads((folder / "golden.json").read_text())["findings"]
    causes = [f["layer"] for f in findings if f["kind"] in ("cause", "not finite")]
    line = next((text for text in done.stdout.splitlines() if text.startswith("Cause: ")), "")
    if causes and f"{causes[0]} (" not in line:
        causes = []
    if not culprits and done.returncode:
        causes = causes or ["exit 1"]
    return Outcome(culprits, (*fused, *causes), line)


PLANTS = {
    "one_percent": _spoiled("one_percent"),
    "sign": _spoiled("sign"),
    "nan": _spoiled("nan"),
    "hidden": _spoiled("hidden"),
    "fused": _spoiled("fused"),
    "healthy": _healthy,
}
