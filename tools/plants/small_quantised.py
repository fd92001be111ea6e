"""Tiny trained-like nets with a planted fault of quantisation, and its culprits by intervention in the integer model.

Weights are drawn, then every convolution is normalised over the pictures, so that a net without a fault is healthy at
8 bits. Faults leave the float model as it is, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

SIZE = 12
PICTURES = 10
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 64;
[OUTPUT_CONFIG]
outputs = {outputs};
dequantizations = {true};
"""


@dataclass
class Net:
    """``links``: a tensor that a fault may be planted in -> the convolution before it, and those that read it.

    A link's channels are those of the convolution before it, and nothing else reads it."""

    nodes: list[onnx.NodeProto]
    constants: dict[str, np.ndarray]
    outputs: list[str]
    links: dict[str, tuple[str, tuple[str, ...]]]

    def proto(self, further: tuple[str, ...] = ()) -> onnx.ModelProto:
        outputs = [*self.outputs, *further]
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("data", TensorProto.FLOAT, (1, 3, SIZE, SIZE))],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(array.astype(np.float32), name) for name, array in self.constants.items()],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        return onnx.shape_inference.infer_shapes(proto)


class Builder:
    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.net = Net([], {}, [], {})
        self._made: dict[str, str] = {}

    def conv(self, name: str, source: str, shape: tuple[int, ...], relu: bool = True, group: int = 1) -> str:
        """A convolution, and a Relu after it; gives the tensor it makes."""
        self.net.constants[f"{name}.w"] = self.rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)
        self.net.constants[f"{name}.b"] = np.zeros(shape[0])
        pad = shape[-1] // 2
        self._add("Conv", [source, f"{name}.w", f"{name}.b"], name, pads=[pad] * 4, group=group)
        if source in self._made:
            before, readers = self.net.links.get(source, (self._made[source], ()))
            self.net.links[source] = before, (*readers, name)
        made = self._add("Relu", [name], f"{name}/relu") if relu else name
        self._made[made] = name
        return made

    def add(self, op_type: str, inputs: list[str], name: str, **attributes: object) -> str:
        """Another operator; what it reads is no link any more."""
        for source in inputs:
            self.net.links.pop(source, None)
            self._made.pop(source, None)
        return self._add(op_type, inputs, name, **attributes)

    def _add(self, op_type: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.net.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name


def convolutional(b: Builder) -> None:
    x = b.conv("c0", "data", (8, 3, 3, 3))
    for number in range(1, int(b.rng.integers(4, 6))):
        x = b.conv(f"c{number}", x, (8, 8, 3, 3))
    b.net.outputs = [b.conv("head", x, (5, 8, 1, 1), relu=False)]


def residual(b: Builder) -> None:
    x = b.conv("c0", "data", (8, 3, 3, 3))
    for number in (1, 2):
        y = b.conv(f"a{number}", x, (8, 8, 3, 3))
        y = b.conv(f"b{number}", y, (8, 8, 3, 3), relu=False)
        x = b.add("Relu", [b.add("Add", [x, y], f"add{number}")], f"add{number}/relu")
    b.net.outputs = [b.conv("head", b.conv("c3", x, (8, 8, 3, 3)), (5, 8, 1, 1), relu=False)]


def branching(b: Builder) -> None:
    x = b.conv("c0", "data", (8, 3, 3, 3))
    left = b.conv("l2", b.conv("l1", x, (6, 8, 3, 3)), (6, 6, 3, 3))
    right = b.conv("r2", b.conv("r1", x, (6, 8, 1, 1)), (6, 6, 3, 3))
    x = b.add("Concat", [left, right], "cat", axis=1)
    b.net.outputs = [b.conv("head", b.conv("c3", x, (8, 12, 3, 3)), (5, 8, 1, 1), relu=False)]


def depthwise(b: Builder) -> None:
    x = b.conv("c0", "data", (8, 3, 3, 3))
    for number in (1, 2, 3):
        x = b.conv(f"dw{number}", x, (8, 1, 3, 3), group=8)
        x = b.conv(f"pw{number}", x, (8, 8, 1, 1))
    b.net.outputs = [b.conv("head", x, (5, 8, 1, 1), relu=False)]


def detector(b: Builder) -> None:
    x = b.conv("c1", b.conv("c0", "data", (8, 3, 3, 3)), (8, 8, 3, 3))
    x = b.conv("c3", b.conv("c2", x, (8, 8, 3, 3)), (8, 8, 3, 3))
    boxes = b.conv("boxes", b.conv("b1", x, (8, 8, 3, 3)), (4, 8, 1, 1), relu=False)
    scores = b.conv("logits", b.conv("s1", x, (8, 8, 3, 3)), (2, 8, 1, 1), relu=False)
    b.net.outputs = [boxes, b.add("Sigmoid", [scores], "scores")]


NETS: tuple[Callable[[Builder], None], ...] = (convolutional, residual, branching, depthwise, detector)


@dataclass(frozen=True)
class Planted:
    """A net in a folder, ready for the commands.

    ranges    what the commands are given in place of what calibration finds; {} where nothing.
    tensor    the one that the fault is planted in, "" for none.
    culprits  the first inputs of the domains that give back the largest part of the outputs' error, and the
              convolutions that read them.
    """

    net: Net
    level: str
    wrong: Mapping[str, tuple[float, float]]
    tensor: str
    culprits: frozenset[str] = frozenset()


def pictures(rng: np.random.Generator, folder: Path, count: int = PICTURES) -> np.ndarray:
    """Blurred noise of different strength and brightness, as PNG."""
    (folder / "pictures").mkdir(exist_ok=True)
    arrays = []
    for number in range(count):
        noise = rng.normal(0, 1, (SIZE + 2, SIZE + 2, 3))
        smooth = sum(np.roll(noise, (i, j), (0, 1)) for i in (0, 1, 2) for j in (0, 1, 2))[2:, 2:] / 3
        array = 127 + rng.uniform(25, 60) * smooth + rng.uniform(-40, 40, 3)
        array = np.clip(array, 0, 255).astype(np.uint8)
        Image.fromarray(array).save(folder / "pictures" / f"{number}.png")
        arrays.append((array.astype(np.float32).transpose(2, 0, 1)[None] - 127) / 64)
    return np.concatenate(arrays)


def healthy_net(rng: np.random.Generator, data: np.ndarray, build: Callable[[Builder], None] | None = None) -> Net:
    """A net of this kind, or of any."""
    builder = Builder(rng)
    (build or NETS[rng.integers(len(NETS))])(builder)
    net = builder.net
    for node in net.nodes:
        if node.op_type == "Conv":
            values = run(net, data, [node.output[0]])[node.output[0]]
            mean, std = values.mean((0, 2, 3)), values.std((0, 2, 3)) + 1e-6
            net.constants[node.input[1]] = net.constants[node.input[1]] / std[:, None, None, None]
            net.constants[node.input[2]] = (net.constants[node.input[2]] - mean) / std + rng.normal(0, 0.3, len(std))
    return net


def with_normalisations(rng: np.random.Generator, net: Net, data: np.ndarray) -> None:
    """A BatchNormalization after the first two convolutions that changes nothing, with the means and variances of these
    pictures as other pictures of their kind have them."""
    for node in [node for node in net.nodes if node.op_type == "Conv"][:2]:
        name = node.output[0]
        values = run(net, data, [name])[name]
        mean, spread = values.mean((0, 2, 3)), values.std((0, 2, 3)) + 1e-6
        other = mean + rng.normal(0, 0.15, len(mean)) * spread
        scale = spread * np.exp(rng.normal(0, 0.15, len(mean)))
        for word, array in (("gamma", scale), ("beta", other), ("mean", other), ("var", scale**2 - 1e-5)):
            net.constants[f"{name}.{word}"] = array
        node.output[0] = f"{name}.sum"
        parameters = [f"{name}.{word}" for word in ("gamma", "beta", "mean", "var")]
        layer = helper.make_node("BatchNormalization", [f"{name}.sum", *parameters], [name], name=f"{name}.bn")
        net.nodes.insert(net.nodes.index(node) + 1, layer)


def run(net: Net, data: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
    import onnxruntime as ort

    proto = net.proto(tuple(name for name in names if name not in net.outputs))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = [session.run(names, {"data": one[None]}) for one in data]
    return {name: np.concatenate([values[place] for values in runs]) for place, name in enumerate(names)}


def scale_channel(net: Net, tensor: str, channel: int, factor: float) -> None:
    """One channel so many times larger, and taken back where it is read."""
    before, readers = net.links[tensor]
    net.constants[f"{before}.w"][channel] *= factor
    net.constants[f"{before}.b"][channel] *= factor
    for reader in readers:
        weight = net.constants[f"{reader}.w"]
        depthwise = weight.shape[1] == 1
        if depthwise:
            weight[channel] /= factor
        else:
            weight[:, channel] /= factor


def shift_tensor(net: Net, tensor: str, channel: int, offset: float) -> None:
    """One channel higher by so much, and taken back in the biases of those that read it (but for the border)."""
    before, readers = net.links[tensor]
    net.constants[f"{before}.b"][channel] += offset
    for reader in readers:
        weight, bias = net.constants[f"{reader}.w"], net.constants[f"{reader}.b"]
        if weight.shape[1] == 1:
            bias[channel] -= offset * weight[channel].sum()
        else:
            bias -= offset * weight[:, channel].sum((1, 2))


def write(net: Net, folder: Path) -> None:
    onnx.save(net.proto(), folder / "net.onnx")
    outputs = ",".join(net.outputs)
    (folder / "input_config.ini").write_text(INI.format(outputs=outputs, true=",".join(["TRUE"] * len(net.outputs))))


@dataclass(frozen=True)
class Interventions:
    """error      of the outputs as they are.
    regained   by each domain's first input, the part of it that goes away with this domain alone at 16 bits and its
               range as calibrated.
    picture    the one whose outputs are furthest off.
    domains    by each domain's first input, its convolutions.
    above_l1   the part that goes away with a weight scale for each output channel.
    """

    error: float
    worst: float
    cos: float
    picture: int
    regained: Mapping[str, float]
    domains: Mapping[str, tuple[str, ...]]
    above_l1: float = 0.0


def intervene(
    folder: Path, data: np.ndarray, level: str, wrong: Mapping[str, tuple[float, float]], raised: bool = True
) -> Interventions:
    """Every domain in turn, in the integer model. ``wrong``: ranges that the fixed model is made with; ``raised``: with
    what the level itself raises to 16 bits, else with all at 8."""
    from sgsdump.fixedpoint.quantisation.calibration import calibrate
    from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.fixedpoint.verbs.network import open_float_model
    from sgsdump.models.feeds.feeds import PictureFeeds
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars import input_config
    from sgsdump.tensors.types import Range

    config = input_config.read(folder / "input_config.ini")
    model = open_float_model(folder / "net.onnx", None, config)
    feeds = PictureFeeds(str(folder / "pictures"), None, tuple(graph_inputs(model.proto)), config)
    found = calibrate(model, feeds, config, level)
    side = side_ranges(found.statistics)
    bad = {name: Range.of(*ends) for name, ends in wrong.items()}
    trial = PlanTrial(model, found.ranges, config, level != "L1")
    raw = np.clip(np.round(data * 64 + 127), 0, 255)

    pictures_errors: list[np.ndarray] = []

    def errors(arrays: tuple[str, ...], ranges: Mapping[str, Range], per_channel: bool = False) -> np.ndarray:
        import onnxruntime as ort

        fixed = make_fixed(model, ranges, replace(found.config, tensor_arrays=arrays), True, per_channel, side)
        session = ort.InferenceSession(fixed.proto.SerializeToString(), providers=["CPUExecutionProvider"])
        kind = session.get_inputs()[0].type
        feed = raw.astype(np.float32 if kind == "tensor(float)" else np.uint8)
        ours = [session.run(names, {"data": one[None]}) for one in feed]
        values = [np.concatenate([run[place] for run in ours]).astype(np.float64) for place in range(len(names))]
        far = [_sums(a - b) / _sums(b) for a, b in zip(values, true)]
        pictures_errors.append(np.max(far, axis=0))
        cosines = [np.sum(a * b) / np.sqrt(np.sum(a * a) * np.sum(b * b)) for a, b in zip(values, true)]
        return np.array([[np.abs(a - b).sum() / np.abs(b).sum() for a, b in zip(values, true)], cosines])

    import onnxruntime as ort

    names = [output.name for output in model.proto.graph.output]
    floats = ort.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    runs = [floats.run(names, {"data": one[None]}) for one in data]
    true = [np.concatenate([run[place] for run in runs]).astype(np.float64) for place in range(len(names))]
    own = found.config.tensor_arrays if raised else ()
    base, cos = errors(own, {**found.ranges, **bad})
    regained, domains = {}, {}
    for domain in trial.domains:
        cured = {name: ends for name, ends in bad.items() if name not in domain.inputs}
        now = errors((*own, domain.name), {**found.ranges, **cured})[0].mean()
        regained[domain.name] = 1 - now / base.mean()
        domains[domain.name] = domain.convolutions
    above = 1 - errors(own, {**found.ranges, **bad}, True)[0].mean() / base.mean()
    return Interventions(base.mean(), base.max(), cos.min(), int(pictures_errors[0].argmax()), regained, domains, above)


def _sums(values: np.ndarray) -> np.ndarray:
    """The sum of absolute values of each picture."""
    return np.abs(values).reshape(len(values), -1).sum(1)
