"""Segment by segment must be bit for bit what one run with every output marked gives; the oracle is that one run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from sgsdump.errors import InputError, ModelError
from sgsdump.executors.onnx_runtime import segment_runner
from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner, SegmentSessions
from sgsdump.executors.runner import Layer
from sgsdump.models.model import Model, open_model
from sgsdump.models.passes.segment import cut

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Feed = dict[str, np.ndarray]


def one_run(model: onnx.ModelProto, feed: Feed, folder: Path | None = None) -> dict[str, np.ndarray]:
    """Every numeric node output of one session with all of them marked, optimisation off."""
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del marked.graph.output[:]
    marked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    if folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    session = ort.InferenceSession(marked.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = {n: ort.OrtValue.ortvalue_from_numpy(a) for n, a in feed.items()}
    found = {}
    for name, value in zip(names, session.run_with_ort_values(names, values)):
        if value.has_value() and value.is_tensor() and "string" not in value.data_type():
            try:
                found[name] = value.numpy()
            except RuntimeError:
                continue  # bfloat16 and the like
    return found


def as_model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    outputs: tuple[str, ...] = (),
    opset: int = 21,
) -> Model:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), Path("made"))


def value(name: str, elem_type: int = FLOAT, shape: tuple = (2, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type, shape)


def node(op_type: str, inputs: list[str], *outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, list(outputs), **attributes)


def edge_model() -> Model:
    """If and Loop with captured values, LSTM with unnamed outputs, sequences, optionals, dead nodes, odd outputs."""
    constant = numpy_helper.from_array(np.full((2, 3), 2.5, np.float32))
    then = helper.make_graph(
        [node("Add", ["relu", "w"], "inner_sum"), node("Neg", ["inner_sum"], "inner_neg")],
        "then",
        [],
        [onnx.ValueInfoProto(name="inner_neg")],
    )
    other = helper.make_graph([node("Identity", ["x"], "inner_x")], "else", [], [onnx.ValueInfoProto(name="inner_x")])
    body = helper.make_graph(
        [
            node("Identity", ["go"], "go_on"),
            node("Add", ["state", "const"], "next"),
            node("ReduceSum", ["next"], "scan", keepdims=0),
        ],
        "body",
        [value("i", INT64, ()), value("go", BOOL, ()), value("state")],
        [value("go_on", BOOL, ()), value("next"), value("scan", FLOAT, ())],
    )
    nodes = [
        node("Dropout", ["loop"], "dropped", ""),
        node("Relu", ["x"], "relu"),
        node("Constant", [], "const", value=constant),
        node("Greater", ["total", "zero"], "positive"),
        node("If", ["positive"], "if", then_branch=then, else_branch=other),
        node("ReduceSum", ["x"], "total", keepdims=0),
        node("Loop", ["trips", "", "if"], "loop", "scanned", body=body),
        node("Neg", ["relu"], "dead"),
        node("Shape", ["loop"], "shape"),
        node("Unsqueeze", ["x", "axis0"], "steps"),
        node("LSTM", ["steps", "lw", "lr"], "", "hidden", "", hidden_size=2),
        node("SequenceConstruct", ["relu", "dead"], "seq"),
        node("SequenceAt", ["seq", "one"], "at"),
        node("Optional", ["at"], "opt"),
        node("OptionalGetElement", ["opt"], "got"),
        node("Optional", [], "none", type=helper.make_tensor_type_proto(FLOAT, [2])),
        node("OptionalHasElement", ["none"], "has"),
        node("Optional", ["seq"], "optseq"),
        node("OptionalGetElement", ["optseq"], "seq2"),
        node("SequenceLength", ["seq2"], "length"),
        node("Cast", ["x"], "text", to=TensorProto.STRING),
        node("Cast", ["text"], "numbers", to=FLOAT),
        node("Cast", ["x"], "half", to=TensorProto.FLOAT16),
        node("TopK", ["x", "two"], "top", "where"),
        node("NonZero", ["x"], "nonzero"),
        node("Gather", ["nonzero", "one"], "column"),
        node("Compress", ["x", "none_of"], "empty"),
    ]
    weights = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "zero": np.float32(0),
        "trips": np.int64(3),
        "axis0": np.array([0]),
        "lw": np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 8, 3),
        "lr": np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 8, 2),
        "one": np.int64(1),
        "two": np.array([2]),
        "none_of": np.zeros(6, bool),
    }
    return as_model(nodes, [value("x")], weights, outputs=("loop", "x", "w", "if"))


X = np.array([[1.5, -2, 0.25], [0, 3, 1]], np.float32)


def dumped(model: Model, feed: Feed, **options: bool) -> tuple[list[Layer], dict[str, str]]:
    runner = SegmentRunner(model, **options)
    layers = list(runner.run(feed))
    return layers, {skip.name: skip.reason for skip in runner.skipped.values()}


def assert_same(layers: list[Layer], wanted: dict[str, np.ndarray]) -> None:
    assert sorted(layer.name for layer in layers) == sorted(wanted)
    for layer in layers:
        other = wanted[layer.name]
        assert (layer.array.dtype, layer.array.shape) == (other.dtype, other.shape), layer.name
        assert layer.array.tobytes() == other.tobytes(), layer.name


@pytest.fixture
def segment_length(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    cut = segment_runner.cut
    monkeypatch.setattr(segment_runner, "cut", lambda n, w, s, _, **more: cut(n, w, s, request.param, **more))
    return request.param


@pytest.mark.parametrize("segment_length", [1, 2, 3, 5, 100], indirect=True)
@pytest.mark.parametrize("keep_sessions", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_edge_model(segment_length: int, keep_sessions: bool, sign: int) -> None:
    model = edge_model()
    feed = {"x": X * sign}
    runner = SegmentRunner(model, keep_sessions=keep_sessions)
    for _ in range(2):
        assert_same(list(runner.run(feed)), one_run(model.proto, feed))
    reasons = {skip.name: skip.reason for skip in runner.skipped.values()}
    assert set(reasons) == {
        *("inner_sum", "inner_neg", "inner_x", "go_on", "next", "scan"),
        *("seq", "seq2", "optseq", "none", "text"),
    }
    assert reasons["inner_sum"] == "inside a body of the If node that computes 'if'"
    assert reasons["none"] == "an optional value that is absent"
    assert reasons["seq"] == "a sequence, not a tensor"
    assert reasons["text"] == "holds text, not numbers"


def test_order_names_and_progress() -> None:
    nodes = [
        helper.make_node("Neg", ["late"], ["y"], "last"),
        helper.make_node("Split", ["x"], ["a", "late"], "cut", axis=1, num_outputs=2),
        helper.make_node("Abs", ["a"], ["z"]),
    ]
    steps = []
    runner = SegmentRunner(as_model(nodes, [value("x", shape=(1, 4))]))
    layers = list(runner.run({"x": np.ones((1, 4), np.float32)}, advance=lambda *step: steps.append(step)))
    assert [(n.name, n.node, n.op_type) for n in layers] == [
        *(("a", "cut", "Split"), ("late", "cut", "Split")),
        *(("y", "last", "Neg"), ("z", "", "Abs")),
    ]
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_only_gives_what_is_asked_for() -> None:
    runner = SegmentRunner(edge_model())
    assert [layer.name for layer in runner.run({"x": X}, only={"loop", "relu", "seq"})] == ["relu", "loop"]
    assert "text" not in runner.skipped


def test_arrays_outlive_the_run() -> None:
    layers, _ = dumped(edge_model(), {"x": X})
    copies = [layer.array.copy() for layer in layers]
    for _ in range(3):
        dumped(edge_model(), {"x": -X})
    for layer, copy in zip(layers, copies):
        np.testing.assert_array_equal(layer.array, copy)


def test_every_tensor_of_a_real_model(shared: Path) -> None:
    model = open_model(shared / "ultraface" / "version-RFB-320_without_postprocessing.onnx")
    feed = {"input": np.random.default_rng(0).standard_normal((1, 3, 240, 320), np.float32)}
    wanted = one_run(model.proto, feed)
    assert len(wanted) == 217
    layers, skipped = dumped(model, feed)
    assert [layer.name for layer in layers] == list(wanted)
    assert_same(layers, wanted)
    assert not skipped


def test_half_precision_model_with_weights_as_constants(shared: Path) -> None:
    model = open_model(shared / "sdaa" / "model_sample.onnx")
    (name,) = [info.name for info in model.proto.graph.input]
    runner = SegmentRunner(model)
    shape = [1 if size is None else size for size in runner.inputs[0].shape]
    feed = {name: np.random.default_rng(0).standard_normal(shape).astype(runner.inputs[0].dtype)}
    wanted = one_run(model.proto, feed)
    layers = list(runner.run(feed))
    assert sorted(layer.name for layer in layers) == sorted(wanted)
    for layer in layers:
        assert layer.array.dtype == np.float16
        np.testing.assert_array_equal(layer.array, wanted[layer.name], err_msg=layer.name)


def test_many_feeds_of_other_shapes_share_the_sessions() -> None:
    weights = {"w": np.random.default_rng(0).standard_normal((40, 30), np.float32)}
    model = as_model(
        [node("MatMul", ["x", "w"], "y"), node("Relu", ["y"], "z")], [value("x", shape=("N", 40))], weights
    )
    runner = SegmentRunner(model, keep_sessions=True)
    for count in (1, 5, 2):
        feed = {"x": np.random.default_rng(count).standard_normal((count, 40), np.float32)}
        assert_same(list(runner.run(feed)), one_run(model.proto, feed))


ODD_TYPES = {
    **{"bf": TensorProto.BFLOAT16, "i4": TensorProto.INT4, "u4": TensorProto.UINT4},
    **{"e4": TensorProto.FLOAT8E4M3FN, "e4z": TensorProto.FLOAT8E4M3FNUZ},
    **{"e5": TensorProto.FLOAT8E5M2, "e5z": TensorProto.FLOAT8E5M2FNUZ},
}


def test_types_beyond_numpy_keep_their_type_and_values() -> None:
    """The oracle is onnxruntime's own Cast back to float32; each crosses a cut, so it is handed on as well."""
    nodes = [node("Cast", ["x"], name, to=kind) for name, kind in ODD_TYPES.items()]
    nodes += [node("Cast", [name], f"{name}_back", to=FLOAT) for name in ODD_TYPES]
    nodes += [node("Reshape", ["bf", "shape"], "folded")]
    model = as_model(nodes, [value("x", shape=(7,))], {"shape": np.array([7, 1])})
    x = np.array([1.1, -3.7, 0, 5.3, 6.6, -0.2, 2.49], np.float32)
    layers, skipped = dumped(model, {"x": x})
    got = {layer.name: layer.array for layer in layers}
    for name, kind in ODD_TYPES.items():
        assert got[name].dtype == helper.tensor_dtype_to_np_dtype(kind), name
        np.testing.assert_array_equal(got[name].astype(np.float32), got[f"{name}_back"], err_msg=name)
    assert got["folded"].shape == (7, 1)
    assert not skipped


def test_not_finite_bfloat16_and_empty_tensors() -> None:
    nodes = [node("Cast", ["x"], "bf", to=TensorProto.BFLOAT16), node("Cast", ["x"], "i4", to=TensorProto.INT4)]
    model = as_model(nodes, [value("x", shape=(None,))])
    (brain, _), _ = dumped(model, {"x": np.array([np.nan, np.inf, -np.inf, 1], np.float32)})
    np.testing.assert_array_equal(brain.array.astype(np.float32), [np.nan, np.inf, -np.inf, 1])
    (brain, nibbles), _ = dumped(model, {"x": np.empty(0, np.float32)})
    assert (brain.array.shape, nibbles.array.shape) == ((0,), (0,))


def test_bfloat16_input_is_fed_as_float_or_as_it_is() -> None:
    model = as_model([node("Cast", ["x"], "y", to=FLOAT)], [value("x", TensorProto.BFLOAT16, (5,))])
    x = np.array([1.00390625, 1.01171875, -3.1415926, np.inf, 1e-40], np.float32)
    brain = numpy_helper.to_array(helper.make_tensor("t", TensorProto.BFLOAT16, [5], x))
    for feed in (x, brain):
        (layer,), _ = dumped(model, {"x": feed})
        np.testing.assert_array_equal(layer.array, brain.astype(np.float32))
    with pytest.raises(InputError, match="got float16"):
        dumped(model, {"x": x.astype(np.float16)})


@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.INT4])
def test_inputs_of_types_beyond_numpy(kind: int) -> None:
    model = as_model([node("Cast", ["x"], "y", to=FLOAT)], [value("x", kind, (3,))])
    x = np.array([1, -3, 7], np.float32)
    (layer,), _ = dumped(model, {"x": x.astype(helper.tensor_dtype_to_np_dtype(kind))})
    np.testing.assert_array_equal(layer.array, x)


def test_sparse_weight() -> None:
    model = as_model([node("MatMul", ["x", "s"], "y")], [value("x")])
    values = numpy_helper.from_array(np.array([2, 5], np.float32), "s")
    model.proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 4])), [3, 2])
    )
    (layer,), _ = dumped(model, {"x": X})
    np.testing.assert_array_equal(layer.array, X @ np.array([[2, 0], [0, 0], [5, 0]], np.float32))


def test_functions_of_the_model_run() -> None:
    twice = helper.make_function(
        "my", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], "b")], [helper.make_opsetid("", 21)]
    )
    model = as_model(
        [node("Relu", ["x"], "r"), helper.make_node("Twice", ["r"], ["y"], "call", domain="my")], [value("x")]
    )
    model.proto.functions.append(twice)
    model.proto.opset_import.append(helper.make_opsetid("my", 1))
    layers, skipped = dumped(model, {"x": X})
    np.testing.assert_array_equal(layers[-1].array, 2 * np.maximum(X, 0))
    assert skipped == {"tensors inside node 'call' (my.Twice)": "they belong to a function of the model"}


def test_external_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((50, 50), np.float32) for i in range(3)}
    nodes = [node("MatMul", [f"t{i}" if i else "x", f"w{i}"], f"t{i + 1}") for i in range(3)]
    proto = as_model(nodes, [value("x", shape=(4, 50))], weights, outputs=("t3",)).proto
    feed = {"x": rng.standard_normal((4, 50), np.float32)}
    wanted = one_run(proto, feed)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    model = open_model(tmp_path / "m.onnx")
    assert model.folder == tmp_path
    layers, _ = dumped(model, feed)
    assert_same(layers, wanted)


def test_feeds_that_do_not_fit() -> None:
    runner = SegmentRunner(as_model([node("Relu", ["data"], "y")], [value("data", shape=(1, 3, None))]))
    good = np.zeros((1, 3, 9), np.float32)
    with pytest.raises(
        InputError, match=r"no value is given for the model's input 'data', which expects float32 \[1, 3, \?\]"
    ):
        runner.run({})
    with pytest.raises(InputError, match="no input 'date'; did you mean 'data'"):
        runner.run({"data": good, "date": good})
    with pytest.raises(InputError, match=r"expects float32 \[1, 3, \?\], got uint8 \[1, 3, 9\]"):
        runner.run({"data": good.astype(np.uint8)})
    with pytest.raises(InputError, match=r"expects float32 \[1, 3, \?\], got float32 \[1, 9, 3\]"):
        runner.run({"data": good.transpose(0, 2, 1)})
    (layer,) = runner.run({"data": good[:, :, ::2]})
    assert layer.array.shape == (1, 3, 5)


def fails(model: Model, message: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The model's run ends in one clear line and nothing on the terminal; the names it gave before that."""
    given = []
    with pytest.raises(ModelError, match=message) as caught:
        given.extend(layer.name for layer in SegmentRunner(model).run({"x": X}))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    return given


def test_the_node_at_fault_has_a_name(capfd: pytest.CaptureFixture[str]) -> None:
    good = node("Relu", ["x"], "r")
    unknown = as_model([good, helper.make_node("Odd", ["r"], ["y"], "odd", domain="my")], [value("x")])
    unknown.proto.opset_import.append(helper.make_opsetid("my", 1))
    fails(unknown, r"made: node 'odd' \(my.Odd\) cannot run: .*my:Odd", capfd)
    shapes = as_model([good, helper.make_node("MatMul", ["r", "r"], ["y"], "mm")], [value("x")])
    fails(shapes, r"made: node 'mm' \(MatMul\) cannot run: ", capfd)
    runtime = as_model([good, helper.make_node("Reshape", ["r", "s"], ["y"], "rs")], [value("x")], {"s": np.array([5])})
    fails(runtime, r"made: node 'rs' \(Reshape\) cannot run: ", capfd)
    future = as_model([good], [value("x")])
    future.proto.opset_import[0].version = 999
    fails(future, "has opset 999; onnxruntime .* supports opsets up to", capfd)


def test_a_weight_of_the_wrong_size(capfd: pytest.CaptureFixture[str]) -> None:
    big = np.zeros((40, 40), np.float32)
    model = as_model([node("Add", ["x", "w"], "y")], [value("x")], {"w": big})
    model.proto.graph.initializer[0].raw_data = bytes(100)
    fails(model, r"'w' of shape \[40, 40\] needs 6400 bytes, but the model holds 100", capfd)
    model.proto.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    fails(model, "'w' of shape", capfd)


def test_over_1_gib_of_external_weights_the_bits_are_those_of_one_run(tmp_path: Path) -> None:
    """Weights that lie over 1 GiB apart in a file with a hole."""
    generator = np.random.default_rng(0)
    weights = {f"w{n}": generator.standard_normal((1024, 1024), dtype=np.float32) for n in range(2)}
    nodes = [node("MatMul", ["x", "w0"], "y"), node("MatMul", ["y", "w1"], "z")]
    proto = as_model(nodes, [value("x", FLOAT, (4, 1024))], weights, ("z",)).proto
    feed = {"x": generator.standard_normal((4, 1024), dtype=np.float32)}
    wanted = one_run(proto, feed)
    far, unused = 3 << 29, onnx.TensorProto(name="unused", data_type=FLOAT, dims=[3 << 27])
    with open(tmp_path / "w.data", "wb") as file:
        for tensor, offset in zip(proto.graph.initializer, (0, far)):
            file.seek(offset)
            file.write(tensor.raw_data)
            outside(tensor, offset, len(tensor.raw_data))
        outside(unused, 0, far)
    proto.graph.initializer.append(unused)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    made = {layer.name: layer.array for layer in SegmentRunner(open_model(tmp_path / "m.onnx")).run(feed)}
    for name, array in wanted.items():
        np.testing.assert_array_equal(made[name], array)


def outside(tensor: onnx.TensorProto, offset: int, length: int) -> None:
    """Make a weight one that lies in w.data."""
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, word in (("location", "w.data"), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=word)


def test_a_session_makes_only_what_is_asked_for_or_read_later(monkeypatch):
    made = []
    new = SegmentSessions._new
    monkeypatch.setattr(
        SegmentSessions, "_new", lambda self, part, reads: made.append(part.makes) or new(self, part, reads)
    )
    monkeypatch.setattr(segment_runner, "cut", lambda n, w, s, _, **more: cut(n, w, s, 2, **more))
    names = [f"n{i}" for i in range(6)]
    nodes = [helper.make_node("Neg", [before], [name]) for before, name in zip(["x", *names], names)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", 1, [3])], [info("n5", 1, [3])])
    runner = SegmentRunner(Model(helper.make_model(graph, ir_version=8), Path("net.onnx")), keep_sessions=True)
    feed = {"x": np.arange(3, dtype=np.float32)}
    assert [layer.name for layer in runner.run(feed, only={"n2"})] == ["n2"]
    assert made == [("n1",), ("n2", "n3")]
    assert [layer.name for layer in runner.run(feed)] == names
    for layer in runner.run(feed, only={"n0", "n5"}):
        np.testing.assert_array_equal(layer.array, feed["x"] * (-1) ** (names.index(layer.name) + 1))
