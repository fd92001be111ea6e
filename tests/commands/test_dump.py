"""``sgsdump dump`` as a user types it, against the SDK's own dumper and against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.executors.dump import not_finite
from sgsdump.files.names import output_paths
from sgsdump.models.fixed_facts import FixedFacts, Origin, write_facts

PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(path, nchw=True):
    pixels = np.asarray(Image.open(path).convert("RGB").resize((320, 240)), np.float32)
    pixels = (pixels - 127) / 128
    return (pixels.transpose(2, 0, 1) if nchw else pixels)[None]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save_model(nodes: list[onnx.NodeProto], shape: tuple[int, ...] = (1, 2, 3, 4)) -> None:
    """``m.onnx``: float input x of this shape, weight ``one`` = 1."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
        [numpy_helper.from_array(np.array([1.0], np.float32), "one")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    Path("m.onnx").write_bytes(model.SerializeToString())
    np.save("x.npy", np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 3)


def test_equals_the_sdk_dumper(folder: Path, shared: Path) -> None:
    sdk = open_dump(shared / "sigmastar/reference_dumps/onnx/dump_bin_True/onnx_NHWC_outtensor_dump.bin")
    model = shared / "sigmastar/model"
    assert main(["dump", "-m", f"{model}/tiny.onnx", "-i", f"{model}/in_norm.txt"]) == 0
    ours = open_dump("dumpData/onnx_NHWC_outtensor_dump.bin")
    assert ours.variant == sdk.variant
    assert set(ours) == set(sdk)
    # The SDK lists the model's own outputs apart; ours stand where they are computed.
    assert [r.name for r in ours.records] == [n.output[0] for n in onnx.load(model / "tiny.onnx").graph.node]
    assert [r.op_index for r in ours.records] == list(range(len(sdk)))
    labels = {r.name: r.op_type for r in sdk.records}
    for record in ours.records:
        assert (record.io, record.slot, record.op_type) == ("out", 0, labels[record.name])
        assert record.tensor.info == sdk[record.name].info
        # The SDK run resized its picture by OpenCV's optimised path: the input differs by 1e-5.
        np.testing.assert_allclose(record.tensor.real(), sdk[record.name].real(), rtol=1e-4, atol=1e-4)


def test_a_real_detector_on_a_picture(folder: Path, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pre.py").write_text(PREPROCESS)
    path = shared / "ultraface/version-RFB-320_without_postprocessing.onnx"
    picture = sorted((shared / "ultraface/images").iterdir())[0]
    assert main(["dump", "-m", str(path), "-i", str(picture), "-n", "pre.py", "-o", "face.bin"]) == 0
    assert capsys.readouterr().out == f"face.bin: 217 tensors, {Path('face.bin').stat().st_size:,} bytes\n"
    model = onnx.load(path)
    names = [name for node in model.graph.node for name in node.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    space: dict = {}
    exec(PREPROCESS, space)
    dump = open_dump("face.bin")
    assert list(dump) == names
    for name, wanted in zip(names, session.run(names, {"input": space["get_image"](picture)})):
        wanted = wanted.transpose(0, 2, 3, 1) if wanted.ndim == 4 else wanted
        got = dump[name].real()
        assert got.shape == wanted.shape
        assert got.tobytes() == wanted.astype(np.float32).tobytes()


def test_integers_labels_skips_and_odd_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["log of:x"], "logger"),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Greater", ["x", "one"], ["more"], "is it"),
        helper.make_node("Cast", ["x"], ["words"], to=TensorProto.STRING),
        helper.make_node("Neg", ["x"], ["y"]),
    ]
    save_model(nodes)
    assert main(["dump", "-m", "m.onnx", "-i", "x.npy", "-o", "o.bin"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"o.bin: 4 tensors, {Path('o.bin').stat().st_size:,} bytes",
        "not finite: log of:x: 3 NaN, 1 Inf of 24 values",
        "not dumped: words (Cast): holds text, not numbers",
    ]
    dump = open_dump("o.bin")
    assert [(r.name, r.op_index, r.op_type) for r in dump.records] == [
        *(("log of:x", 0, "logger"), ("shape", 1, "Shape"), ("more", 2, "is it"), ("y", 3, "Neg")),
    ]
    x = np.load("x.npy")
    np.testing.assert_array_equal(dump["shape"].real(), [1, 2, 3, 4])
    np.testing.assert_array_equal(dump["more"].real(), (x > 1).transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(dump["y"].real(), -x.transpose(0, 2, 3, 1))
    assert dump["more"].info.dtype == dump["shape"].info.dtype == np.float32


def test_each_picture_has_its_own_dump(folder: Path) -> None:
    save_model([helper.make_node("Neg", ["x"], ["y"])], (1, 3, 4, 4))
    Path("in").mkdir()
    for number in range(2):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(f"in/p{number}.png")
    Path("config.ini").write_text(
        "[INPUT_CONFIG]\ninputs = x;\ntraining_input_formats = RGB;\ninput_formats = RGB;\n"
        "mean_red = 0;\nmean_green = 0;\nmean_blue = 0;\nstd_value = 1;\n[OUTPUT_CONFIG]\noutputs = y;\n"
    )
    assert main(["dump", "-m", "m.onnx", "-i", "in", "--input-config", "config.ini", "-o", "out.bin"]) == 0
    assert sorted(path.name for path in folder.glob("*.bin")) == ["out_p0.bin", "out_p1.bin"]
    for number in range(2):
        assert open_dump(f"out_p{number}.bin")["y"].real().min() == -number


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_the_ending_selects_the_format(folder: Path, ending: str) -> None:
    save_model([helper.make_node("Add", ["x", "one"], ["sum"], "a"), helper.make_node("Relu", ["sum"], ["y"], "r")])
    assert main(["dump", "-m", "m.onnx", "-i", "x.npy", "-o", "out.bin"]) == 0
    assert main(["dump", "-m", "m.onnx", "-i", "x.npy", "-o", f"out.{ending}"]) == 0
    binary, other = open_dump("out.bin"), open_dump(f"out.{ending}")
    assert (binary.format, other.format) == ("sigmastar_bin", ending)
    assert [r.name for r in other.records] == [r.name for r in binary.records] == ["sum", "y"]
    for name, tensor in other.items():
        assert np.array_equal(tensor.in_layout("NHWC").real(), binary[name].real())


def test_names_of_several_dumps_never_meet() -> None:
    assert output_paths(Path("d/o.bin"), ["a/cat.jpg"]) == [Path("d/o.bin")]
    several = output_paths(Path("d/o.bin"), ["a/cat.jpg", "b/cat.png", "cat_2.jpg", "x.y.npy"])
    assert [path.name for path in several] == ["o_cat.bin", "o_cat_2.bin", "o_cat_2_2.bin", "o_x.y.bin"]
    assert {path.parent for path in several} == {Path("d")}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, 2], ""),
        ([np.nan, np.inf, -np.inf, 0], "1 NaN, 2 Inf of 4 values"),
        ([3e38, 3e38], ""),
        ([], ""),
    ],
)
def test_not_finite(values: list[float], said: str) -> None:
    assert not_finite(np.array(values, np.float32)) == said
    assert not_finite(np.array([1, 2])) == ""


def test_trouble_is_one_line_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model([helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Reshape", ["n", "n"], ["y"], "bad")])
    Path("text.onnx").write_text("not a model")
    np.save("wide.npy", np.zeros((1, 2, 3, 5), np.float32))
    before = sorted(folder.iterdir())
    for argv, message in (
        (["-m", "absent.onnx", "-i", "x.npy"], "no such model file: absent.onnx"),
        (["-m", "text.onnx", "-i", "x.npy"], "not an ONNX file"),
        (["-m", ".", "-i", "x.npy"], "is a folder"),
        (["-m", "m.onnx", "-i", "absent.npy"], "absent.npy"),
        (["-m", "m.onnx", "-i", "wide.npy"], "[1, 2, 3, 5]"),
        (["-m", "m.onnx", "-i", "x.npy", "-o", "o.bin"], "node 'bad' (Reshape) cannot run"),
        (["-m", "m.onnx", "-i", "x.npy", "-o", "absent/o.bin"], "there is no folder absent"),
        (["-m", "m.onnx", "-i", "x.npy", "-o", "."], "is a folder"),
    ):
        assert main(["dump", *argv]) == 2
        error = capsys.readouterr().err
        assert error.startswith("sgsdump: error: ")
        assert message in error
        assert error.count("\n") == 1
        assert sorted(folder.iterdir()) == before


def test_outputs_have_their_slots_as_in_the_simulators_dump(folder: Path) -> None:
    """Those of Split, Dropout and TopK."""
    save_model(
        [
            helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
            helper.make_node("Dropout", ["a"], ["d", "mask"]),
            helper.make_node("TopK", ["b", "k"], ["top", "index"], axis=3),
            helper.make_node("Neg", ["d"], ["y"]),
        ]
    )
    model = onnx.load("m.onnx")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "k"))
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in ("y", "b", "mask", "index"))
    onnx.save(model, "m.onnx")
    assert main(["dump", "-m", "m.onnx", "-i", "x.npy", "-o", "dump.bin"]) == 0
    slots = {record.name: record.slot for record in open_dump("dump.bin").records}
    assert slots == {"a": 0, "b": 1, "d": 0, "mask": 1, "top": 0, "index": 1, "y": 0}
    Path("DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    assert main(["simulate", "-m", "m.onnx", "-t", "Float", "-i", "x.npy"]) == 0
    simulated = open_dump("sigma_outtensor_dump.bin").records
    assert {r.name: r.slot for r in simulated if r.io == "out"} == slots


def test_dumping_a_fixed_model_says_what_is_fed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model([helper.make_node("Add", ["x", "one"], ["y"], "add")])
    assert main(["dump", "-m", "m.onnx", "-i", "x.npy"]) == 0
    assert "note:" not in capsys.readouterr().out
    fixed = onnx.load("m.onnx")
    write_facts(FixedFacts({}, {}, {}, (), Origin(())), fixed)
    onnx.save(fixed, "fixed.onnx")
    assert main(["dump", "-m", "fixed.onnx", "-i", "x.npy"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("note: fixed.onnx is a fixed model: dump writes every node of its graph")
    assert "sgsdump simulate -m fixed.onnx -i x.npy -t Fixed" in said
