"""What is given to the commands and is not a dump: pictures, arrays, models, what is written in a fixed model, lists;
how each is read by itself, quickly, and by the commands that take it; and the commands' own words."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzzing import arguments, commands
from fuzzing.mutations import mutated
from fuzzing.trial import Contradiction, check_lines
from sgsdump.errors import SgsdumpError

CONFIG = "--input-config input_config.ini"
CALIBRATE = "calibrate -m {model} -i pictures --input-config {config} --quant-level L1 -o out.onnx"
# What each command line reads damaged, by the kind of file; ``{}`` is that file.
COMMANDS = {
    "calibrate_model": CALIBRATE.format(model="{}", config="input_config.ini"),
    "calibrate_config": CALIBRATE.format(model="digits.onnx", config="{}"),
    "pipeline_once": "pipeline once -m {} --name conv0 --print-ir --save-test-case case -o out",
    "pipeline_full": "pipeline full -m {} -o out",
    "dump_model": "dump -m {} -i x.npy -o out.bin",
    "simulate_fixed": "simulate -m {} -t Fixed -i digit.png",
    "simulate_metadata": "simulate -m {} -t Fixed -i digit.png",
    "dump_picture": f"dump -m digits.onnx -i {{}} {CONFIG} -o out.bin",
    "dump_array": "dump -m digits.onnx -i {} -o out.bin",
    "pipeline_array": "pipeline full -m digits.onnx -i image:{} -o out",
    "explain_ranges": f"tune --explain --ranges {{}} -m digits.onnx {CONFIG}",
}
SLOWER = {"arguments": 30, **dict.fromkeys(COMMANDS, 10)}
ATB = {
    "opName": "Layer_1",
    "opType": "Layer",
    "inTensors": ["x", "w"],
    "outTensors": ["y"],
    "nodes": [
        {
            "opName": "Linear_2",
            "opType": "LinearOperation",
            "param": {"transposeB": True, "a": [1, 2.5, "x"], "b": {"c": None}},
            "inTensors": ["x", "w"],
            "outTensors": ["m"],
        },
        {"opName": "Relu_3", "opType": "Activation", "param": {}, "inTensors": ["m"], "outTensors": ["y"]},
    ],
}
PROTOTXT = b"""name: "n"
input: "data" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }
layer { name: "c" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "f" type: "InnerProduct" bottom: "p" top: "f" inner_product_param { num_output: 5 } }
layer { name: "s" type: "Softmax" bottom: "f" top: "s" }
"""


def input_seeds() -> Iterator[tuple[str, Any]]:
    """(format, content) for each ``Seed``; content is (name, files by path, edit)."""
    whole = commands.project()
    pictures = dict(_pictures())
    for name, data in pictures.items():
        yield "picture", (name, {"": data}, mutated)
    for number, array in enumerate([np.eye(3, dtype=np.float32), np.zeros((1, 1, 8, 8), np.int64), np.array(True)]):
        yield "array", (f"x{number}.npy", {"": _npy(array)}, mutated)
    yield "onnx", ("digits.onnx", {"": whole["digits.onnx"]}, mutated)
    yield "onnx", ("small.onnx", {"": _small_model()}, mutated)
    yield "onnx_external", ("model", _external_model(), mutated)
    yield "fixed_facts", ("facts.json", {"": _facts(whole["fixed.onnx"])}, mutated)
    yield "picture_list", ("list.txt", {"": b"pictures/00.png\n  pictures/01.png\r\n\n"}, mutated)
    yield "topology", ("layer.json", {"": json.dumps(ATB).encode()}, mutated)
    yield "caffe", ("net", {"net.prototxt": PROTOTXT, "net.caffemodel": _caffemodel()}, mutated)
    for name in COMMANDS:
        edit = _metadata if name.endswith("metadata") else mutated
        for file, data in _taken(name, whole, pictures):
            yield name, (file, {"": data}, edit)
    for number, line in enumerate(arguments.LINES):
        yield "arguments", (f"{number}.json", {"": json.dumps(line.split()).encode()}, arguments.drawn)


def _taken(name: str, whole: dict[str, bytes], pictures: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """The files that a command line takes."""
    if name.endswith("_picture"):
        yield from pictures.items()
        return
    last = {"config": "input_config.ini", "array": "x.npy", "ranges": "log/tensor_min_max.txt"}
    fixed = name.startswith("simulate")
    path = last.get(name.rpartition("_")[2], "fixed.onnx" if fixed else "digits.onnx")
    yield Path(path).name, whole[path]


def _pictures() -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    draw = np.random.default_rng(0)
    colour = Image.fromarray(draw.integers(0, 255, (9, 8, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    for ending in ("png", "jpg", "bmp", "gif", "tif", "webp", "ppm"):
        file = io.BytesIO()
        colour.save(
            file, {"jpg": "jpeg", "tif": "tiff"}.get(ending, ending), **({"exif": exif} if ending == "jpg" else {})
        )
        yield f"colour.{ending}", file.getvalue()
    for mode, options in (("L", {}), ("P", {}), ("1", {}), ("LA", {}), ("I;16", {})):
        file = io.BytesIO()
        gray = colour.convert("L")
        if mode == "I;16":
            gray = Image.fromarray(np.asarray(gray).astype(np.uint16) << 8)
        (gray if mode == "I;16" else gray.convert(mode)).save(file, "png", **options)
        yield f"{mode.replace(';', '_')}.png", file.getvalue()
    file = io.BytesIO()
    colour.convert("CMYK").save(file, "tiff", compression="tiff_lzw")
    yield "cmyk.tif", file.getvalue()


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _small_model() -> bytes:
    """A graph with what a plain network lacks: a body, a constant, an attribute of each kind, an open size."""
    import onnx.parser

    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,2] x, bool b) => (float[N,2] y, int64[2] s)
        <float[2] w = {1.0, -2.5}> {
          a = Mul(x, w)
          t = Transpose<perm = [1, 0]>(a)
          i = If(b) <then_branch = p () => (float[2,M] q) { q = Relu(t) },
                     else_branch = r () => (float[2,M] u) { u = Neg(t) }>
          y = Transpose(i)
          s = Shape(y)
        }"""
    )
    return model.SerializeToString()


def _external_model() -> dict[str, bytes]:
    import onnx

    model = onnx.ModelProto.FromString(_small_model())
    (weight,) = model.graph.initializer
    data = np.array([1.0, -2.5], np.float32).tobytes()
    for field in ("float_data", "raw_data"):
        weight.ClearField(field)
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(len(data)))):
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    return {"model.onnx": model.SerializeToString(), "w.bin": data}


def _facts(fixed: bytes) -> bytes:
    import onnx

    return next(e.value for e in onnx.ModelProto.FromString(fixed).metadata_props if e.key == "sgsdump.fixed").encode()


def _metadata(data: bytes, donor: bytes, rng: Random) -> bytes:
    """The model whole, but for the text that says how it was made."""
    return _with_facts(data, mutated(_facts(data), _facts(data), rng))


def _with_facts(fixed: bytes, text: bytes) -> bytes:
    import onnx

    proto = onnx.ModelProto.FromString(fixed)
    for entry in proto.metadata_props:
        if entry.key == "sgsdump.fixed":
            entry.value = text.decode("utf-8", "replace")
    return proto.SerializeToString()


def _caffemodel() -> bytes:
    from sgsdump.models.caffe import schema

    net = schema.messages()["WeightsNet"]()
    for name, shapes in (("c", [(4, 3, 3, 3), (4,)]), ("f", [(5, 16), (5,)])):
        layer = net.layer.add(name=name.encode(), type=b"Any")
        for shape in shapes:
            blob = layer.blobs.add()
            blob.shape.dim.extend(shape)
            blob.data.append(np.linspace(-1, 1, int(np.prod(shape))).astype("<f4").tobytes())
    return net.SerializeToString()


def _read_picture(path: Path) -> None:
    from sgsdump.models.feeds.picture import decode

    assert decode(path).shape[2] == 3 and decode(path, gray=True).shape[2] == 1


def _read_array(path: Path) -> None:
    from sgsdump.models.feeds.drawn import array_of

    array_of(path)


def _read_model(path: Path) -> None:
    """Open a model, take its inputs, lift it and infer its shapes, as every command does before it runs one."""
    from sgsdump.fixedpoint.quantisation.float_model import simplify
    from sgsdump.models.fixed_facts import read_facts
    from sgsdump.models.graph import infer_types
    from sgsdump.models.model import graph_inputs, open_model
    from sgsdump.models.passes.lift import lift

    model = open_model(path / "model.onnx" if path.is_dir() else path)
    graph_inputs(model.proto)
    read_facts(model)
    infer_types(lift(model.proto))
    simplify(model)


def _read_facts(path: Path) -> None:
    import onnx

    from sgsdump.models.fixed_facts import read_facts
    from sgsdump.models.model import Model

    fixed = _with_facts(commands.project()["fixed.onnx"], path.read_bytes())
    read_facts(Model(onnx.ModelProto.FromString(fixed), path))


def _read_list(path: Path) -> None:
    from sgsdump.models.feeds.image_list import expand

    place = commands.place(path)
    list_file = place / "list.txt"
    list_file.write_bytes(path.read_bytes())
    try:
        expand(str(list_file))
    finally:
        list_file.unlink()


def _read_topology(path: Path) -> None:
    from sgsdump.models.atb.topology import convert_topology

    check_lines(*convert_topology(path, commands.place(path) / "out.onnx"))
    (commands.place(path) / "out.onnx").unlink()


def _read_caffe(path: Path) -> None:
    from sgsdump.models.model import open_model

    open_model(path / "net.prototxt", path / "net.caffemodel")


def _run(line: str, path: Path) -> None:
    """Raises SgsdumpError where the command refuses the file."""
    ended = commands.run(
        [word.format(path) if word in ("{}", "image:{}") else word for word in line.split()], commands.place(path)
    )
    if ended.usage:
        raise Contradiction(f"the options are refused: {ended.error}")
    if ended.status == 2:
        raise SgsdumpError("refused")


def _run_words(path: Path) -> None:
    ended = commands.run([str(word) for word in json.loads(path.read_bytes())], commands.place(path))
    if ended.status == 2:
        raise SgsdumpError("refused")


INPUTS: dict[str, Callable[[Path], Any]] = {
    "picture": _read_picture,
    "array": _read_array,
    "onnx": _read_model,
    "onnx_external": _read_model,
    "fixed_facts": _read_facts,
    "picture_list": _read_list,
    "topology": _read_topology,
    "caffe": _read_caffe,
    **{name: partial(_run, line) for name, line in COMMANDS.items()},
    "arguments": _run_words,
}
