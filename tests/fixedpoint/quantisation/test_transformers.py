"""What the SDK refuses of transformers: products of other than two dimensions, and what is computed beside them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from small_nets import conv, model, node, weights

from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.quant_plan import Choice, decide
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.tuning.rules_of_thumb import convolutions
from sgsdump.tensors.types import Range

LENGTH, WIDTH, INNER = 12, 24, 48
SHAPE = (1, LENGTH, WIDTH)


def number(name, *shape, seed=0):
    rng = np.random.default_rng([seed, *name.encode()])
    return {name: rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32)}


def ones(*names):
    rng = np.random.default_rng(3)
    return {name: rng.normal(1, 0.1, WIDTH).astype(np.float32) for name in names}


def norm(source, name):
    return node("LayerNormalization", [source, f"{name}.g", f"{name}.b"], name, axis=-1)


def after(middle, constants, outputs=("sum",), shape=SHAPE):
    """x -> a product -> a LayerNormalization "n", and nodes that read it."""
    nodes = [node("MatMul", ["x", "w"], "first"), norm("first", "n"), *middle]
    own = {**number("w", WIDTH, WIDTH), **ones("n.g", "n.b")}
    return model(nodes, {**own, **constants}, {"x": shape}, list(outputs), opset=17)


PRODUCT = node("MatMul", ["n", "v"], "p")
ADDED = node("Add", ["p", "n"], "sum")
V = number("v", WIDTH, WIDTH)
ROWS = {"v": number("v", LENGTH, LENGTH)["v"]}
CASES = {
    "read beside a sum": (after([PRODUCT, ADDED], V), {"n": "int16", "n_reshape": "uint8"}),
    "turned before the product": (
        after(
            [
                node("Transpose", ["n"], "t", perm=[0, 2, 1]),
                node("MatMul", ["t", "v"], "p"),
                node("Transpose", ["p"], "q", perm=[0, 2, 1]),
                node("Add", ["q", "n"], "sum"),
            ],
            ROWS,
        ),
        {"n": "int16", "t": "uint8"},
    ),
    "products alone": (
        after([PRODUCT, node("MatMul", ["n", "u"], "s"), node("Add", ["p", "s"], "sum")], {**V, "u": V["v"].T.copy()}),
        {"n": "uint8"},
    ),
    "a convolution reads it too": (
        after(
            [PRODUCT, conv("c", "n"), node("Add", ["p", "c"], "s"), node("Mul", ["s", "n"], "sum")],
            {**V, **weights("c", (LENGTH, LENGTH, 1))},
        ),
        {"n": "uint8"},
    ),
    "an output of the network": (after([PRODUCT, ADDED], V, ("sum", "n")), {"n": "int16"}),
    "of two dimensions, as the SDK has it": (
        after([PRODUCT, ADDED], V, shape=(LENGTH, WIDTH)),
        {"n": "uint8", "n_reshape": "uint8"},
    ),
}  # fmt: skip


def analysed(net):
    simple = simplify(net)
    analysis = analyse(simple.proto, ())
    return analysis, {name: Range.of(-4, 4) for name in analysis.stored}


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_beside_a_product_stays_int16(case):
    net, expected = CASES[case]
    analysis, ranges = analysed(net)
    tensors = decide(analysis, ranges).tensors
    found = {name: str(quant.dtype) for name, quant in tensors.items() if name in ("n", "n_reshape", "t")}
    assert found == expected


def test_the_tensor_is_raised_for_its_product_by_its_own_name():
    analysis, ranges = analysed(CASES["read beside a sum"][0])
    assert [conv.config_names for conv in convolutions(analysis)] == [("x",), ("n",)]
    decided = decide(analysis, ranges, Choice(tensors=("n",)))
    assert {str(quant.dtype) for quant in decided.weights.values()} == {"int16"}
    assert decided.tensors["n"] == decided.tensors["n_reshape"]


def transformer(blocks=3):
    """Blocks of a sum and a LayerNormalization after every pair of products, as BERT's."""
    nodes, constants, source = [norm("x", "n")], ones("n.g", "n.b"), "n"
    for index in range(blocks):
        up, down, total, name = (f"{part}{index}" for part in ("up", "down", "sum", "n"))
        nodes += [
            node("MatMul", [source, f"{up}.w"], up),
            node("Relu", [up], f"{up}.r"),
            node("MatMul", [f"{up}.r", f"{down}.w"], down),
            node("Add", [down, source], total),
            norm(total, name),
        ]
        constants |= {**number(f"{up}.w", WIDTH, INNER), **number(f"{down}.w", INNER, WIDTH)}
        constants |= ones(f"{name}.g", f"{name}.b")
        source = name
    return model(nodes, constants, {"x": SHAPE}, [source], opset=17), source


def run(proto, feed, output):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run([output], feed)[0]


def rounded(proto, ranges):
    """The model with what its products read, and their weights, rounded to 8 bits: onnxruntime's own operators."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    weights_of = {each.name: numpy_helper.to_array(each) for each in copy.graph.initializer}
    del copy.graph.node[:]
    for each in proto.graph.node:
        new = onnx.NodeProto()
        new.CopyFrom(each)
        if each.op_type == "MatMul":
            source, weight = each.input
            low, high = min(ranges[source].low, 0.0), max(ranges[source].high, 0.0)
            step = np.float32((high - low) / 255)
            name = f"{each.output[0]}:rounded"
            constants = {f"{name}.s": step, f"{name}.z": np.uint8(round(-low / step))}
            top = np.abs(weights_of[weight]).max() / 127
            constants[f"{name}.w"] = (np.round(weights_of[weight] / top) * top).astype(np.float32)
            copy.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
            pair = [f"{name}.s", f"{name}.z"]
            copy.graph.node.append(helper.make_node("QuantizeLinear", [source, *pair], [f"{name}.q"]))
            copy.graph.node.append(helper.make_node("DequantizeLinear", [f"{name}.q", *pair], [name]))
            new.input[:] = [name, f"{name}.w"]
        copy.graph.node.append(new)
    return copy


def test_eight_bits_cost_a_transformer_what_its_products_inputs_and_weights_cost():
    net, last = transformer()
    simple = simplify(net)
    feeds = [
        (str(seed), {"x": np.random.default_rng(seed).normal(0, 1, SHAPE).astype(np.float32)}) for seed in range(6)
    ]
    ranges = measure_ranges(simple, feeds)
    fixed = make_fixed(simple, ranges).proto
    oracle = rounded(net.proto, ranges)

    def error(proto):
        pairs = [(run(proto, feed, last), run(net.proto, feed, last)) for _, feed in feeds]
        return sum(np.abs(a - b).sum() for a, b in pairs) / sum(np.abs(b).sum() for _, b in pairs)

    assert error(fixed) == pytest.approx(error(oracle), rel=0.1)
