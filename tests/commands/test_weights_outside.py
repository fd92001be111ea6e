"""A network whose weights stay in the file beside it gives what the same network gives that holds them."""

import pickle

import numpy as np
import onnx
import pytest
from PIL import Image
from small_nets import conv, model, node, weights

from sgsdump.cli import main
from sgsdump.errors import ModelError
from sgsdump.executors.onnx_runtime import segment_runner, session
from sgsdump.fixedpoint.quantisation import float_model
from sgsdump.fixedpoint.quantisation.integer import emitter
from sgsdump.fixedpoint.quantisation.ranges import measured_ranges
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import gather
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.models import external_data
from sgsdump.models.fixed_facts import METADATA_KEY
from sgsdump.models.graph import Graph, has_weights_outside, values_of
from sgsdump.models.model import open_model
from sgsdump.sidecars.input_config import InputConfig

INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = y;
dequantizations = TRUE;
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """inside.onnx holds its weights, outside.onnx has them beside it; the limits are such that these stay there."""
    constants = {
        **weights("c1", (8, 3, 3, 3), 1),
        **weights("c2", (8, 1, 3, 3), 2),
        **weights("c3", (8, 8, 3, 3), 3),
        **weights("fc", (5, 8 * 36), 4),
        "table": np.linspace(-1, 1, 8 * 36, dtype=np.float32).reshape(1, 8, 6, 6),
    }
    nodes = [
        conv("c1", "data", pads=[1] * 4),
        node("Relu", ["c1"], "r1"),
        conv("c2", "r1", pads=[1] * 4, group=8),
        node("Add", ["c2", "table"], "sum"),
        conv("c3", "sum", pads=[1] * 4),
        node("Flatten", ["c3"], "flat"),
        onnx.helper.make_node("Gemm", ["flat", "fc.w", "fc.b"], ["y"], name="y", transB=1),
    ]
    proto = model(nodes, constants, {"data": (1, 3, 6, 6)}, ["y"]).proto
    onnx.save(proto, tmp_path / "inside.onnx")
    onnx.save(proto, tmp_path / "outside.onnx", save_as_external_data=True, location="beside.bin", size_threshold=0)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (6, 6, 3)).astype(np.uint8)
        (tmp_path / "pictures").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
    (tmp_path / "input_config.ini").write_text(INI)
    (tmp_path / "DebugConfig.txt").write_text("dumpTensor\npath=.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(float_model, "MANY_BYTES", 1)
    # onnxruntime adds up for weights that are outside; so it does here for those that are not.
    monkeypatch.setattr(measured_ranges, "rules_of", lambda graph: {})
    for module in (external_data, emitter):
        monkeypatch.setattr(module, "LARGE_BYTES", 64)
    return tmp_path


def calibrated(name, level="L1", *more):
    words = [
        "calibrate",
        "-m",
        f"{name}.onnx",
        "-i",
        "pictures",
        "--input-config",
        "input_config.ini",
        "--quant-level",
        level,
        *more,
    ]
    return main([*words, "-o", f"{name}_fixed.onnx"])


@pytest.mark.parametrize(("level", "words"), [("L1", ()), ("L2", ()), ("L1", ("--quant-file", "q.pkl"))])
def test_the_fixed_model_is_the_same_with_its_weights_beside_it(folder, level, words):
    changed = np.linspace(-1, 1, 8 * 8 * 9, dtype=np.float32).reshape(8, 8, 3, 3)
    narrow = {"name": "r1", "min": [0.0], "max": [0.5], "bit": 8}
    entries = [narrow, {"name": "c3.w", "min": [-1.0], "max": [1.0], "bit": 8, "data": changed}]
    (folder / "q.pkl").write_bytes(pickle.dumps(entries))
    assert calibrated("inside", level, *words) == calibrated("outside", level, *words) == 0
    whole = onnx.load(folder / "inside_fixed.onnx")
    bare = onnx.load(folder / "outside_fixed.onnx", load_external_data=False)
    left = [tensor.name for tensor in external_data.external_tensors(bare.graph)]
    assert len(left) >= 4 and external_data.external_files(bare) == ["outside_fixed.onnx.data"]
    moved = onnx.load(folder / "outside_fixed.onnx")
    assert moved.graph.node == whole.graph.node
    held = {tensor.name: values_of(tensor) for tensor in whole.graph.initializer}
    assert [tensor.name for tensor in moved.graph.initializer] == list(held)
    for tensor in moved.graph.initializer:
        np.testing.assert_array_equal(values_of(tensor), held[tensor.name])
    facts = [{entry.key: entry.value for entry in proto.metadata_props} for proto in (whole, moved)]
    assert facts[0][METADATA_KEY] == facts[1][METADATA_KEY]


def test_simulating_it_gives_the_same_dump_fixed_and_float(folder):
    assert calibrated("inside") == calibrated("outside") == 0
    dumps = {}
    for name in ("inside", "outside"):
        for kind, file in (("Fixed", f"{name}_fixed.onnx"), ("Float", f"{name}.onnx")):
            words = ["simulate", "-m", file, "-i", "pictures/0.png", "-t", kind]
            assert main([*words, *(["--input-config", "input_config.ini"] if kind == "Float" else [])]) == 0
            dumps[name, kind] = (folder / "sigma_outtensor_dump.bin").read_bytes()
    for kind in ("Fixed", "Float"):
        assert dumps["inside", kind] == dumps["outside", kind]


def test_weights_that_stay_in_the_file_are_read_one_by_one(folder):
    opened = open_float_model("outside.onnx", None, InputConfig(()), outside=True)
    assert opened.folder is None and has_weights_outside(opened.proto)
    graph, whole = Graph(opened.proto), Graph(open_model("inside.onnx").proto)
    for name in whole.constants:
        np.testing.assert_array_equal(graph.value(name), whole.value(name))
    assert not has_weights_outside(open_float_model("outside.onnx", None, InputConfig(())).proto)


def test_a_file_that_is_cut_off_meanwhile_is_one_line(folder):
    opened = open_float_model("outside.onnx", None, InputConfig(()), outside=True)
    with open(folder / "beside.bin", "r+b") as file:
        file.truncate(100)
    with pytest.raises(ModelError, match=r"cannot read the weight 'fc\.w' in .*beside\.bin: the file became shorter"):
        Graph(opened.proto).value("fc.w")


def test_no_weights_beside_the_model_is_one_line_and_leaves_nothing(folder, capsys):
    (folder / "beside.bin").unlink()
    before = sorted(path.name for path in folder.iterdir())
    assert calibrated("outside") == 2
    assert "beside.bin" in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_pictures_go_through_together_and_each_weight_is_read_once(folder, monkeypatch):
    opened = open_float_model("outside.onnx", None, InputConfig(()), outside=True)
    rng = np.random.default_rng(0)
    feeds = [(str(n), {"data": rng.normal(size=(1, 3, 6, 6)).astype(np.float32)}) for n in range(5)]
    inside = gather(open_float_model("inside.onnx", None, InputConfig(())), feeds)
    monkeypatch.setattr(segment_runner, "max_nodes_of", lambda nodes, types: 1)
    read = []
    whole = session.read_outside
    monkeypatch.setattr(session, "read_outside", lambda t, *rest: read.append(t.name) or whole(t, *rest))
    assert gather(opened, feeds).whole == inside.whole
    assert len(read) == len(set(read)) >= 4
    read.clear()
    monkeypatch.setattr(measured_ranges, "STEP_BYTES", 1)
    assert gather(opened, feeds).whole == inside.whole
    assert len(read) == 5 * len(set(read))
