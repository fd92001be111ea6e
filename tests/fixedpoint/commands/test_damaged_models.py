"""Every command that reads a model says in one line what the onnx library cannot make of it."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

from sgsdump.cli import main

CONFIG = """[INPUT_CONFIG]
inputs='x';
input_formats='GRAY';
training_input_formats='GRAY';
quantizations='TRUE';
mean=127;
std_value=128;
[OUTPUT_CONFIG]
outputs='y';
dequantizations='TRUE';
"""
PICTURE = "-i p.png --input-config input_config.ini"
COMMANDS = {
    "dump": f"dump -m net.onnx {PICTURE} -o out/d.bin",
    "calibrate": f"calibrate -m net.onnx {PICTURE} -o out/fixed.onnx",
    "diagnose": f"diagnose -m net.onnx {PICTURE} -o out/r.html",
    "tune": f"tune -m net.onnx {PICTURE} -o out/tuned",
    "tune --first": f"tune --first -m net.onnx {PICTURE} -o out/first",
    "explain": "tune --explain -m net.onnx --input-config input_config.ini --ranges ranges.txt",
    "explain on pictures": f"tune --explain -m net.onnx {PICTURE} --ranges ranges.txt",
    "pipeline": "pipeline full -m net.onnx -o out/dump",
    "pipeline by the reference": "pipeline full -m net.onnx -f reference -o out/dump",
    "pipeline in float16": "pipeline full -m net.onnx -mt float16 -o out/dump",
    "simulate": f"simulate -m net.onnx -t Float {PICTURE}",
    "stages": "compare good.npz good.npz --stages net.onnx",
    "annotate": "compare good.npz good.npz --annotate net.onnx out/coloured.onnx",
    "operators": "show net.onnx --operators",
}


def whole():
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((4, 1, 3, 3), (4, 4, 1, 1))]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1] * 4, name="c"),
        helper.make_node("Relu", ["c"], ["r"], name="r"),
        helper.make_node("Conv", ["r", "w2"], ["y"], name="y"),
    ]
    x, y = (helper.make_tensor_value_info(name, 1, [1, n, 8, 8]) for name, n in (("x", 1), ("y", 4)))
    inside = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights, 1)]
    graph = helper.make_graph(nodes, "net", [x], [y], inside)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def opset(model):
    model.opset_import[0].version = 2**31


def negative_weight(model):
    model.graph.initializer[0].dims[0] = -4


def huge_weight(model):
    model.graph.initializer[0].dims[0] = 2**62


def huge_input(model):
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 2**62


def unknown_type(model):
    model.graph.initializer[0].data_type = 77


def short_weight(model):
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-8]


def location(model):
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="QQQQ")


def attribute(model):
    model.graph.node[0].attribute[0].name = "QQQQ"


def domain(model):
    model.graph.node[0].domain = "QQQQ"


def dimension(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "QQQQ"


def metadata(model):
    model.metadata_props.add(key="QQQQ", value="v")


def truncated(model):
    pass


DAMAGES = (
    opset, negative_weight, huge_weight, huge_input, unknown_type, short_weight, location, attribute, domain, dimension,
    metadata, truncated,
)  # fmt: skip
# Where only the graph or the ranges are read the model is as good as whole; pipeline's status 1 is of a tensor that an
# executor cannot compute, which it says of each.
OF_VALUES = (huge_input, unknown_type, short_weight)
ALSO = {"operators": (0,), "annotate": (0,), "explain": (0,)} | {
    name: (0, 1) for name in COMMANDS if "pipeline" in name
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_line_and_nothing_written(command, damage, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    model = whole()
    damage(model)
    content = model.SerializeToString().replace(b"QQQQ", b"Q\xff\xfeQ")
    (tmp_path / "net.onnx").write_bytes(content[: len(content) // 2] if damage is truncated else content)
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save("p.png")
    (tmp_path / "input_config.ini").write_text(CONFIG)
    (tmp_path / "ranges.txt").write_text("".join(f"Name:{name}, min: -1.0, max: 1.0;\n" for name in "xcry"))
    np.savez("good.npz", c=np.ones((1, 4, 8, 8), np.float32), y=np.ones((1, 4, 8, 8), np.float32))
    (tmp_path / "out").mkdir()
    before = sorted(tmp_path.rglob("*"))
    status = main(COMMANDS[command].split())
    said = capfd.readouterr().err
    if damage in OF_VALUES and status in ALSO.get(command, ()):
        assert "Traceback" not in said
        return
    lines = [line for line in said.splitlines() if not line.startswith("warning: ")]
    assert (status, len(lines)) == (2, 1), said
    assert lines[0].startswith("sgsdump: error: ")
    assert any(word in lines[0] for word in ("net.onnx", "weight 'w1'", "input 'x'", "the model"))
    assert sorted(tmp_path.rglob("*")) == before


def test_the_whole_model_is_taken(tmp_path, monkeypatch):
    """So that it is the damage that is refused above."""
    monkeypatch.chdir(tmp_path)
    onnx.save(whole(), "net.onnx")
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save("p.png")
    (tmp_path / "input_config.ini").write_text(CONFIG)
    assert main(COMMANDS["dump"].replace("out/", "").split()) == 0
    assert main(COMMANDS["calibrate"].replace("out/", "").split()) == 0
