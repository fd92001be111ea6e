"""Checks of ``diagnose --fixed`` on networks that other tools quantised: onnxruntime, NNCF and ModelOpt, as installed.

    python tools/quantised_networks.py NET.onnx INPUTS.npy FOLDER [--ways QDQ NNCF …]

INPUTS.npy holds inputs along its first axis, the first four of which calibrate. Nodes without names are named first.
Of each quantised copy it is checked, and said in a line of a table, that
  paired    every quantised tensor that the float network has is compared as the floats that its integers mean, by numpy
            from the model's own scales and integers;
  decibels  the figures are those of onnxruntime's qdq_loss_debug (QDQ by onnxruntime; the largest difference);
  planted   a weight whose integers are read with a scale four times too large is the first named, and so is the factor;
  advice    what is proposed, given to the same quantiser, takes effect (``compare`` names it) and lowers the outputs'
            error, which is told before and after.
The exit status is 1 where one of them fails. A way whose tool is not installed is left out, and said. A short draw of
it is in tests/fixedpoint, test_quantised_by_others.py and test_diagnose_quantised.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from quantised_nets import Feeds, quantise
from small_nets import run_all

from sgsdump.comparison.compare import compare
from sgsdump.comparison.quantisation_change import change_findings
from sgsdump.comparison.thresholds import Thresholds
from sgsdump.fixedpoint.quantisation.others.compared import ComparedNetworks, NetworkRunner, compared_networks
from sgsdump.fixedpoint.quantisation.others.link import QuantisedPair, float_proto
from sgsdump.fixedpoint.quantisation.others.quantisers import LeftFloat
from sgsdump.fixedpoint.quantisation.others.trial import SwitchedNetwork
from sgsdump.fixedpoint.tuning.exclusions import ExclusionTrial, MeasuredExclusions
from sgsdump.models.model import Model, graph_inputs, open_model

STRICT = Thresholds(0.99999, 0.001)  # so that something is always proposed
FLOAT32 = 110.0  # decibels
Feed = dict[str, np.ndarray]


def named(net: Path, folder: Path) -> Path:
    """The net at an opset that all quantisers take, every node named, weights no inputs."""
    proto = float_proto(open_model(net))
    for node in proto.graph.node:
        node.name = node.name or f"node_{node.output[0]}"
    onnx.save(proto, folder / "net.onnx")
    return folder / "net.onnx"


def by_onnxruntime(way: str) -> Callable[[Path, Path, list[Feed], LeftFloat], None]:
    def run(net: Path, quantised: Path, feeds: list[Feed], left: LeftFloat) -> None:
        quantise(net, quantised, feeds, way, nodes_to_exclude=list(left.nodes))

    return run


def by_nncf(net: Path, quantised: Path, feeds: list[Feed], left: LeftFloat) -> None:
    import nncf

    nncf.set_log_level(logging.ERROR)
    scope = nncf.IgnoredScope(names=list(left.nodes)) if left.nodes else None
    onnx.save(nncf.quantize(onnx.load(net), nncf.Dataset(feeds), ignored_scope=scope), quantised)


def by_modelopt(net: Path, quantised: Path, feeds: list[Feed], left: LeftFloat) -> None:
    from modelopt.onnx.quantization import quantize

    quantize(
        str(net),
        quantize_mode="int8",
        calibration_data=feeds[0],
        calibration_method="max",
        calibration_eps=["cpu"],
        high_precision_dtype="fp32",
        nodes_to_exclude=list(left.nodes),
        output_path=str(quantised),
    )


WAYS = {
    "QDQ": ("onnxruntime", by_onnxruntime("QDQ")),
    "QDQ per channel": ("onnxruntime", by_onnxruntime("QDQ per channel")),
    "QDQ 16 bits": ("onnxruntime", by_onnxruntime("QDQ 16 bits")),
    "QOperator": ("onnxruntime", by_onnxruntime("QOperator")),
    "dynamic": ("onnxruntime", by_onnxruntime("dynamic")),
    "NNCF": ("nncf", by_nncf),
    "ModelOpt": ("modelopt", by_modelopt),
}


class Checked:
    """One quantised copy beside the float net."""

    def __init__(self, net: Path, quantised: Path, feeds: list[Feed], folder: Path):
        self.models = open_model(net), open_model(quantised)
        self.path, self.net, self.feeds, self.folder = quantised, net, feeds, folder
        self.pair = QuantisedPair(float_proto(self.models[0]), self.models[1].proto)

    def compared(self) -> ComparedNetworks:
        labelled = [(str(number), feed) for number, feed in enumerate(self.feeds)]
        return compared_networks(self.pair, self.models, labelled, self.folder)

    def measured(self) -> MeasuredExclusions:
        return ExclusionTrial(SwitchedNetwork(self.pair), self.feeds[:2]).measure(STRICT, good=False)

    def error(self) -> float:
        return float(np.mean(self.compared().errors))

    def paired(self) -> tuple[int, int]:
        """How many tensors that the quantised model keeps as integers hold in the comparison what these mean, of how
        many."""
        feed = self.feeds[0]
        benchmark, sample = (NetworkRunner(model).dump(feed, self.folder) for model in self.models)
        comparison = compare(sample, benchmark)
        held = {row.sample_name for row in comparison}
        ran = run_all(self.models[1].proto, feed)
        right = total = 0
        floats = set(benchmark.outputs)
        for tensor in self.pair.tensors:
            if tensor.name not in floats:  # the network's input
                continue
            total += 1
            expected = self._meant(tensor.holder, ran)
            if tensor.holder in held and np.allclose(sample[tensor.holder].real(), expected, rtol=1e-5, atol=1e-7):
                right += 1
        return right, total

    def _meant(self, holder: str, ran: dict[str, np.ndarray]) -> np.ndarray:
        """By numpy, from the node that makes the holder, or the names that onnxruntime gives."""
        proto = self.models[1].proto
        known = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer} | ran
        maker = next(node for node in proto.graph.node if holder in node.output)
        if maker.op_type == "DequantizeLinear":
            codes, scale, zero = (known[name] for name in maker.input)
            axis = next((item.i for item in maker.attribute if item.name == "axis"), 1)
        elif maker.op_type == "DynamicQuantizeLinear":
            codes, scale, zero, axis = *(ran[name] for name in maker.output), 0
        elif maker.op_type == "QuantizeLinear":
            codes, scale, zero, axis = ran[holder], *(known[name] for name in maker.input[1:3]), 1
        else:
            stem = holder.removesuffix("_quantized")
            while f"{stem}_scale" not in known:  # moved, as a Transpose does: of the scale of what it reads
                maker = next(node for node in proto.graph.node if maker.input[0] in node.output)
                stem = maker.output[0].removesuffix("_quantized")
            codes, scale, zero, axis = ran[holder], known[f"{stem}_scale"], known[f"{stem}_zero_point"], 0
        shape = [-1 if index == axis else 1 for index in range(codes.ndim)] if scale.size > 1 else ()
        steps = codes.astype(np.float32) - zero.astype(np.float32).reshape(shape)
        return steps * scale.astype(np.float32).reshape(shape)

    def decibels(self) -> float:
        """The largest difference from qdq_loss_debug. Above FLOAT32 both are of the rounding of float32 products."""
        from onnxruntime.quantization import qdq_loss_debug as debug

        weights = debug.compute_weight_error(debug.create_weight_matching(str(self.net), str(self.path)))
        ran = []
        for number, path in enumerate((self.path, self.net)):
            augmented = str(self.folder / f"augmented{number}.onnx")
            debug.modify_model_output_intermediate_tensors(str(path), augmented)
            ran.append(debug.collect_activations(augmented, Feeds(self.feeds)))
        matched = {name: match for name, match in debug.create_activation_matching(*ran).items() if "float" in match}
        errors = debug.compute_activation_error(matched)
        networks = self.compared()
        rows = {row.name: row for row in networks.compared.comparison}
        ours = {weight.name: weight.sqnr for weight in self.pair.weights}
        both = [(ours[name], error) for name, error in weights.items()]
        for name, error in errors.items():
            both.append((networks.before_after[name], error["qdq_err"]))
            if name in rows:
                sums = rows[name].sums
                both.append((10 * np.log10(sums.bb / max(sums.dd, 1e-300)), error["xmodel_err"]))
        return max(abs(min(one, FLOAT32) - min(other, FLOAT32)) for one, other in both)


def planted(net: Path, quantised: Path, out: Path) -> str:
    """Write a copy in which the middle weight's integers are read with a scale four times too large; the name that the
    weight has in the float net, found by its values."""
    proto = onnx.load(quantised)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    scales = [*_weight_scales(proto, constants)]
    weight, node, slot = scales[len(scales) // 2]
    scale = numpy_helper.to_array(constants[node.input[slot]])
    node.input[slot] = f"{node.input[slot]}_planted"
    proto.graph.initializer.append(numpy_helper.from_array(scale * np.float32(4), node.input[slot]))
    onnx.save(proto, out)
    return _original(net, numpy_helper.to_array(constants[weight]))


def _weight_scales(
    proto: onnx.ModelProto, constants: dict[str, onnx.TensorProto]
) -> Iterator[tuple[str, onnx.NodeProto, int]]:
    """Of each weight its name, the operator that reads its integers, and where that reads their scale."""
    stored = {n.output[0]: n.input[0] for n in proto.graph.node if n.op_type == "QuantizeLinear"}
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear":
            source = stored.get(node.input[0], node.input[0])
            if source in constants and len(constants[source].dims) > 1 and node.input[1] in constants:
                yield source, node, 1
        elif node.op_type == "QLinearConv":
            yield node.input[3], node, 4


def _original(net: Path, stored: np.ndarray) -> str:
    """The float weight that goes with these integers best, by correlation."""

    def likeness(tensor: onnx.TensorProto) -> float:
        return float(np.corrcoef(numpy_helper.to_array(tensor).ravel(), stored.ravel())[0, 1])

    known = [tensor for tensor in onnx.load(net).graph.initializer if int(np.prod(tensor.dims)) == stored.size]
    return max(known, key=likeness).name


def check(way: str, net: Path, feeds: list[Feed], folder: Path) -> bool:
    module, run = WAYS[way]
    if importlib.util.find_spec(module) is None:
        print(f"{way}: skipped, because {module} is not installed")
        return True
    stem = way.replace(" ", "_")
    path = folder / f"{stem}.onnx"
    try:
        run(net, path, feeds[:4], LeftFloat(()))
    except Exception as error:
        print(f"{way}: skipped, because its tool cannot quantise this model:  {type(error).__name__}: {error}")
        return True
    checked = Checked(net, path, feeds, folder)
    right, total = checked.paired()
    of_onnxruntime = way.startswith("QDQ")
    decibels = checked.decibels() if of_onnxruntime else 0.0
    first, is_first = "-", True
    if way != "dynamic":
        weight = planted(net, path, folder / f"{stem}_planted.onnx")
        worst = Checked(net, folder / f"{stem}_planted.onnx", feeds, folder).measured().errors[0]
        first, is_first = worst.name, worst.name == weight and abs(worst.factor - 4) < 0.2
    exclusion = checked.measured().exclusion
    before = after = checked.error()
    took = True
    if exclusion is not None:
        left = folder / f"{stem}_after.onnx"
        run(net, left, feeds[:4], LeftFloat(exclusion.names))
        after = Checked(net, left, feeds, folder).error()
        networks = [NetworkRunner(open_model(file)).dump(feeds[0], folder).network() for file in (left, path)]
        found = change_findings((networks[0], networks[1]))
        took = any(finding.facts["what"] == "float" for finding in found) and after < before
    good = right == total and decibels < 0.01 and is_first and took
    print(
        f"{way:16} paired {right} of {total}  decibels {f'{decibels:.4f}' if of_onnxruntime else '-':7} planted "
        f"{'first' if is_first else f'NOT first, but {first}'}  advice "
        f"{len(exclusion.names) if exclusion else 0} nodes: {before:.4f} -> {after:.4f}  {'ok' if good else 'FAILED'}"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=None)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = args.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    net = named(args.net, folder)
    model: Model = open_model(net)
    (spec,) = graph_inputs(model.proto)
    feeds = [{spec.name: array[None]} for array in np.load(args.inputs)]
    results = [check(way, net, feeds, folder) for way in args.ways]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
