"""Small whole files of every format, to be damaged: made by our writers, by hand where we only read, and the genuine
ones beside the checkout where there are any."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.mutations import Edit, mutated
from sgsdump import Quant, Record, Tensor, open_dump
from sgsdump.comparison.naming import NAME_FILES
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.formats.ascend import dump_proto
from sgsdump.dumps.formats.atb import statistic
from sgsdump.errors import SgsdumpError
from sgsdump.sidecars import SIDECARS
from sgsdump.tensors.dtypes import KNOWN

SIDE_FILES = {**SIDECARS, **NAME_FILES}


MOST_BYTES = 6000
_MOST_FILES, _MOST_GENUINE = 40, 24
_OPERATOR = "Add.net_add.3.7.1700000000123456"
_STATUS = "Opdebug.Node_OpDebug.3.7.1700000000123456"
_MINDIE = [
    {
        "jit_node": "%x.9 : Float(1) = aten::_convolution(%1), scope: __module.a/__module.a.conv # c.py:4:0",
        "rt_layer": "C",
    },
    {
        "id": 4,
        "ge_op": "Conv2D_5",
        "rt_layer": "C",
        "fusion_op": "Conv2D_5Relu_8",
        "fusion_ops": ["Conv2D_5", "Relu_8"],
    },
]
_ORIGINS = [
    {"key": "_datadump_origin_name", "value": {"s": "relu"}},
    {"key": "_datadump_origin_output_index", "value": {"i": 0}},
]
_GRAPH_OP = {
    "name": "conv_relu",
    "type": "Conv2D",
    "attr": [{"key": "_datadump_original_op_names", "value": {"list": {"s": ["conv", "relu"]}}}],
    "output_desc": [{"attr": _ORIGINS}],
}
_ARGUMENT = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": 1.0, "Min": 0.0, "Mean": 0.5}
_RUNS: dict[str, Any] = {
    "sgsdump_runs": 1,
    "complete": True,
    "notes": ["a note"],
    "runs": [
        {
            **{"place": "", "step": 0, "rank": 0, "graph": "net/0", "notes": []},
            "outputs": [{"name": "y", "equal": False, "max_abs": 3e-8, "relative": 1e-7}],
            "tensors": [["a", "Conv", "float32", [1, 8]]],
        }
    ],
}
_MSPROBE = {
    "task": "tensor",
    "level": "mix",
    "dump_data_dir": "/gone/dump_tensor_data",
    "data": {
        "Functional.conv2d.0.forward": {
            "input_args": [{**_ARGUMENT, "data_name": "conv.npy"}, {"type": "int", "value": 1}, None],
            "input_kwargs": {"weight": {**_ARGUMENT, "Norm": 2.0}},
            "output": [{**_ARGUMENT, "data_name": "gone.npy"}],
        },
        "Module.net.conv1.Conv2d.forward.0": {
            "input_args": [],
            "parameters": {"weight": _ARGUMENT},
            "output": _ARGUMENT,
        },
    },
}
_SIDE_FILES = {
    "ge_graph": json.dumps({"graph": [{"name": "g", "op": [_GRAPH_OP]}]}).encode(),
    "layer_mapping": b'{"TopLayer": {"network": "module"}, "Attention": {"score": "core.npu"}}',
    "name_rules": b"# rules\n^npu_ ->\n/(\\d+)/conv -> .\\1.conv\n",
    "input_config": b"[INPUT_CONFIG]\ninputs='a',b;\ntraining_input_formats=RGB,GRAY\ninput_formats=RGB,GRAY\n"
    b"mean=1:2:3,4\nstd_value=1.5\n[OUTPUT_CONFIG]\noutputs=c\ndequantizations=TRUE\n[CONV_CONFIG]\ntensor_arrays=d,e\n",
    "tensor_min_max": b"Name:a, min: -1.0, max: 2.0;\nName:b, min: 0.0, max: 1e3;\n",
    "quant_param": b'[{"name": "a", "min": [-1.0, -2], "max": [2, 3], "bit": 8}, {"name": "b", "min": [], "max": []}]',
    "parse_net": b"| |--> Tensor[1 ] type(7):INT16 buffer: 22  (const buffer: 0 size: 10 : buf: (nil)) bVar: 248 "
    b"shape(len:2  2 5  ) Quant:{Max: 0.5, Min: na, Scaler: 0.1, zeroP: 0} ddr_type: IPU_S16_NHWC name(p) EvrId(1)\n",
    "name_map": b'{"a": "b", "c": "d"}',
    "input_text": b"Input_shape=3, 4\n1.5, 2e3, nan, \n",
}
_STATISTICS = (
    b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count\n"
    b"Input,0,64,DT_FLOAT16,NC1HWC0,1x1x2x2x16,1.5,-1,0.25,64,0\n"
    b"Output,0,8,DT_UINT32,ND,2,-1,1,0.5,0\n"
    b"Input/Output,Index,Data Type,Format,Shape,l2norm\nOutput,1,bf16,NCHW,1x2x1x1,3.5\n"
)


@dataclass(frozen=True)
class Seed:
    """A file under its name, or a folder: contents by the path below it.

    format  what it is, and so how it is read (``trial.reader``).
    edit    how its files are damaged.
    slower  how many times a reader's limits of time and memory it may take.
    """

    format: str
    name: str
    files: dict[str, bytes]
    edit: Edit = mutated
    slower: int = 1

    @property
    def is_folder(self) -> bool:
        return "" not in self.files

    def put(self, folder: Path) -> Path:
        """Write it below ``folder``; gives the path to open."""
        for name, data in self.files.items():
            path = folder / self.name / name if name else folder / self.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder / self.name


def all_seeds(genuine: Path | None) -> dict[str, list[Seed]]:
    """The seeds of each format. ``genuine`` is the folder to look for genuine files in."""
    found: defaultdict[str, list[Seed]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for seed in (*_written(Path(folder)), *_made(), *_side_files()):
            found[seed.format].append(seed)
    if genuine is not None and genuine.is_dir():
        for seed in _genuine(genuine):
            if len(found[seed.format]) < 2 * _MOST_GENUINE:
                found[seed.format].append(seed)
    return dict(found)


def _records() -> list[list[Record]]:
    """Sets of records, some of which every writer takes: plain ones; integers with scales; all types; odd ones."""

    def record(
        name: str, array: Any, io: str = "out", slot: int = 0, index: int = 0, constant: bool = False, **facts: Any
    ):
        tensor = Tensor.of(name, np.asarray(array), op_type="CONV_2D", **facts)
        return Record(io, slot, index, "CONV_2D", tensor, constant)  # type: ignore[arg-type]

    floats = np.linspace(-2, 2, 24, dtype=np.float32)
    picture = floats.reshape(1, 2, 3, 4)
    integers = np.arange(16, dtype=np.int16)
    per_channel = Quant(np.dtype(np.int8), np.array([0.5, 0.25], np.float32), 3, 0, True)
    plain = [
        record("conv1/Relu:0", picture, layout="NHWC"),
        record("Größe 2", floats, index=1),
        record("s", 0.5, index=2),
    ]
    scaled = [
        record("in", integers, "in", quant=Quant(integers.dtype, 0.5, exact=True)),
        record("w", integers, "in", 1, constant=True, quant=Quant(integers.dtype)),
        record("out", integers.reshape(1, 2, 2, 4), layout="NHWC", quant=Quant(integers.dtype, 0.1, 0)),
    ]
    types = [record(name, np.arange(3).astype(dtype), index=i) for i, (name, dtype) in enumerate(KNOWN.items())]
    odd = [
        record("x" * 300, floats),
        record("x", np.int8([[1], [2]]), index=1, quant=per_channel),
        record("", floats[:0]),
    ]
    return [plain, scaled, types, odd, [record("x", picture[..., 0])], [types[0]], plain[1:2]]


def _written(folder: Path) -> Iterator[Seed]:
    from sgsdump.dumps.formats.sigmastar import binary, text_variant

    variants: dict[str, tuple[Any, ...]] = {
        "sigmastar_bin": (binary.SIM, binary.FRAMEWORK, binary.TFLITE),
        "sigmastar_text": (text_variant.SIM, text_variant.LAYER, text_variant.TFLITE),
    }
    number = 0
    for name, format in FORMATS.items():
        if format.write is None:
            continue
        for variant in (None, *variants.get(name, ())):
            for records in _records():
                number += 1
                path = folder / f"{name}{number}"
                if seed := _try_written(name, records, path, variant):
                    yield seed
                    yield from _without_manifest(seed)


def _try_written(name: str, records: list[Record], path: Path, variant: Any) -> Seed | None:
    """What a writer makes of the records that it takes."""
    write = FORMATS[name].write
    assert write is not None
    refused = {id(record) for record, what in FORMATS[name].loses(records, variant) if "refused" in what}
    try:
        write([record for record in records if id(record) not in refused], path, variant)
    except SgsdumpError:
        return None
    files = _content(path)
    whole = path.is_file() or len(files) == sum(each.is_file() for each in path.rglob("*"))
    return Seed(name, path.name, files) if whole and sum(map(len, files.values())) <= 4 * MOST_BYTES else None


def _without_manifest(seed: Seed) -> Iterator[Seed]:
    """The folder as another program would have written it."""
    if "sgsdump.json" in seed.files:
        yield Seed(seed.format, f"foreign_{seed.name}", {n: d for n, d in seed.files.items() if n != "sgsdump.json"})


def _made() -> Iterator[Seed]:
    """Formats that are only read, and foreign forms of the others."""
    for number, array in enumerate(
        [np.arange(6, dtype="<f4").reshape(2, 3), np.asfortranarray(np.eye(3)), np.array("é")]
    ):
        yield Seed("npy", f"x{number}.npy", {"": _npy(array)})
    file = io.BytesIO()
    np.savez_compressed(file, a=np.arange(30.0), b=np.zeros(3, np.int8))
    yield Seed("npz", "x.npz", {"": file.getvalue()})
    yield from _torch_files()
    header = json.dumps({"x": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    yield Seed("safetensors", "x.safetensors", {"": struct.pack("<Q", len(header)) + header + bytes(range(8))})
    yield Seed("ascend_dump", _OPERATOR, {"": _operator()})
    yield Seed("ascend_dump", _STATUS, {"": _operator(overflow=True)})
    yield Seed("ascend_nano", "Add.net_add.3.7.12", {"": _nano()})
    yield Seed("ascend_stats", f"{_OPERATOR}.csv", {"": _STATISTICS})
    folder = {
        _OPERATOR: _operator(),
        "4711": _operator(),
        f"{_OPERATOR[:-1]}9.csv": _STATISTICS,
        _STATUS: _operator(True),
    }
    yield Seed("ascend_dir", "dump", {**folder, "mapping.csv": b"4711,Relu.net_relu.4.7.1700000000123456\n"})
    yield Seed("ascend_dir", "above", {f"20231115/0/net/1/0/{name}": data for name, data in folder.items()})
    yield Seed("atb_tree", "dump_path", _tree())
    yield Seed("replays", "runs", {"runs.json": json.dumps(_RUNS).encode()})
    values = {"dump_tensor_data/conv.npy": _npy(np.zeros((2, 3), np.float32)), "stack.json": b"{}"}
    yield Seed("msprobe_dir", "step0", {"dump.json": json.dumps(_MSPROBE).encode(), **values})


def _torch_files() -> Iterator[Seed]:
    """A state dict (strided, bfloat16 and quantised tensors, a module saved whole) in both forms; a tree."""

    def text(word: str) -> bytes:
        return b"X" + struct.pack("<I", len(word)) + word.encode()

    def tensor(key: str, kind: str, size: tuple[int, int], stride: tuple[int, int], more: bytes = b"") -> bytes:
        of = text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text(key) + text("cpu") + b"K\4t"
        how = more or b"\x89}"
        function = b"_rebuild_qtensor" if more else b"_rebuild_tensor_v2"
        numbers = b"".join(b"K" + bytes([number]) for number in size), b"".join(b"K" + bytes([n]) for n in stride)
        return (
            b"ctorch._utils\n"
            + function
            + b"\n(("
            + of
            + b"QK\0("
            + numbers[0]
            + b"t("
            + numbers[1]
            + b"t"
            + how
            + b"tR"
        )

    quantiser = b"(ctorch\nper_tensor_affine\nG?\xb9\x99\x99\x99\x99\x99\x9aK\3t\x89}"
    one = tensor("0", "FloatStorage", (2, 2), (1, 2))
    module = b"c__main__\nNet\n)\x81}" + text("_parameters") + b"}(" + text("w") + one + b"usb"
    body = b"".join(
        (
            b"}q\0(" + text("a") + one + text("b") + tensor("1", "BFloat16Storage", (2, 2), (2, 1)),
            text("q") + b"]" + tensor("2", "QUInt8Storage", (1, 4), (4, 1), quantiser) + b"a" + text("m") + module,
            text("o") + b"ccollections\nOrderedDict\n)R(K\1Nu" + b"u",
        )
    )
    storages = {"0": np.float32([1, 2, 3, 4]).tobytes(), "1": bytes(range(8)), "2": bytes(range(4))}
    for name, content in (("state", body), ("one", one)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for member, data in {"data.pkl": b"\x80\2" + content + b".", "byteorder": b"little"}.items():
                archive.writestr(zipfile.ZipInfo(f"{name}/{member}"), data)
            for key, data in storages.items():
                archive.writestr(zipfile.ZipInfo(f"{name}/data/{key}"), data)
        yield Seed("torch", f"{name}.pt", {"": file.getvalue()})
        if name == "one":
            module = json.dumps(
                {"name": "root", "type": "Net", "children": [{"name": "root.a", "type": "Linear", "children": []}]}
            )
            run = {f"0/root.a/{side}.pth": file.getvalue() for side in ("input_0", "output")}
            yield Seed("torch_tree", "cpu_1", {"model_tree.json": module.encode(), **run})
    magic = b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
    keys = b"](" + b"".join(map(text, storages)) + b"e"
    facts = b"}" + text("little_endian") + b"\x88s"
    pickles = b"".join(b"\x80\2" + content + b"." for content in (magic, b"M\xe9\3", facts, body, keys))
    counted = b"".join(struct.pack("<Q", 4) + data for data in storages.values())
    yield Seed("torch", "older.pth", {"": pickles + counted})


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _operator(overflow: bool = False) -> bytes:
    """An operator dump with an input in a device's layout, two outputs, a buffer and a space; or an overflow status."""
    messages = dump_proto.messages()
    dump = messages["DumpData"](version=b"2.0", dump_time=1_700_000_000_123_456, op_name=b"net/add")
    if overflow:
        payload = struct.pack("<6I", 0x5A5A5A5A, 0, 1, 0, 0, 88) + struct.pack("<11Q", *range(11))
        dump.output.add(data_type=4, format=2, size=len(payload)).shape.dim.append(len(payload))
    else:
        payload = np.arange(64, dtype=np.float16).tobytes() + bytes(range(12)) + bytes(10)
        each = dump.input.add(data_type=2, format=3, size=128)
        each.shape.dim.extend([1, 1, 2, 2, 16])
        each.original_shape.dim.extend([1, 3, 2, 2])
        each = dump.output.add(data_type=28, format=2, size=8)
        each.shape.dim.extend([3, 5])
        each.original_op.name, each.original_op.format = b"add", 0
        dump.output.add(data_type=7, size=4)
        dump.buffer.add(size=6)
        dump.space.add(size=4)
    header = dump.SerializeToString()
    return struct.pack("<Q", len(header)) + header + payload


def _nano() -> bytes:
    def tag(number: int, value: bytes) -> bytes:
        return struct.pack("<II", number, len(value)) + value

    dims = tag(0, struct.pack("<2Q", 2, 3)) + tag(1, struct.pack("<3Q", 1, 2, 3))
    one_in = struct.pack("<iiiQQQI", 0, 2, 3, 4096, 0, 24, len(dims)) + dims
    dims += tag(2, b"net/add")
    one_out = struct.pack("<iiiiiiQQQI", 1, 2, 3, 0, 1, 0, 4096, 24, 12, len(dims)) + dims
    count = struct.pack("<I", 1)
    header = struct.pack("<4sI", b"ZZZZ", 0) + tag(4, count + one_in) + tag(5, count + one_out) + tag(9, b"?")
    return struct.pack("<Q", len(header)) + header + bytes(range(36))


def _tree() -> dict[str, bytes]:
    """Two operators of one execution: values, an alias, figures alone, and the table beside them."""
    head = b"$Version=1.0\n$Object.Count=1\n$Object.Length=%d\nformat=2\ndtype=%d\ndims=%s\n$Object.data=0,%d\n$End=1\n"
    values = head % (16, 0, b"2,2", 16) + bytes(16)
    alias = (
        b"$Version=1.0\n$Object.Count=0\n$Object.Length=0\nformat=2\ndtype=0\ndims=2,2\ndata=0_outtensor0.bin\n$End=1\n"
    )
    figures = (
        b"$Version=1.0\n$Object.Count=0\nformat=2\ndtype=27\ndims=2,2\nmax=1\nmin=-1.5\nmean=0\nl2norm=2\n$End=1\n"
    )
    rows = (
        "0_4711,0,Embed,Embed,0,output,0,float,nd,2x2,1,0,0.5,2,there.bin",
        "0_4711,0,Linear/Matmul,Matmul,1_0,input,1,bf16,nd,,N/A,N/A,N/A,N/A,N/A",
        "0_4711,0,Linear,Linear,1,output,0,complex64,nd,2,(1,2),(0,0),(1,1),3,N/A",
    )
    table = "".join(f"{line}\n" for line in (statistic.HEADER, *rows)).encode()
    run = "atb_dump_data/data/0_4711/0"
    return {
        f"{run}/0_Embed/after/outtensor0.bin": values,
        f"{run}/1_Linear/before/intensor0.bin": alias,
        f"{run}/1_Linear/after/intensor0.bin": alias,
        f"{run}/1_Linear/0_Matmul/after/outtensor0.bin": figures,
        f"{run}/statistic.csv": table,
    }


def _side_files() -> Iterator[Seed]:
    yield Seed(
        "debug_config", "folder", {"DebugConfig.txt": b"dumpTensor\neliminateGarbage #\n#dequantFixed\npath=/\n"}
    )
    for name, data in _SIDE_FILES.items():
        yield Seed(name, f"{name}.txt", {"": data})
    mindie = {"fused": {**_MINDIE[0], "id": 4, "fuse_path": ["a"]}}
    yield Seed("mindie_map", "op_map_updated.json", {"": json.dumps(mindie).encode()})
    yield Seed("name_map", "map.csv", {"": b"sample,benchmark\na,b\nc,d\n"})
    if find_spec("yaml") is not None:
        yield Seed("name_map", "map.yaml", {"": b"a: b\n'c d': e\n"})
        yield Seed(
            "layer_mapping", "layers.yaml", {"": b"TopLayer:\n  network: module\nAttention:\n  score: core.npu\n"}
        )
    entries = [{"name": "a", "min": [1.5], "max": [2.5], "bit": 8, "data": np.arange(3)}]
    for name in ("quant_param", "tensor_min_max"):
        yield Seed(name, f"{name}.pkl", {"": pickle.dumps(entries, 3)})


def _genuine(root: Path) -> Iterator[Seed]:
    """Small files, and folders cut to a few small files, that a reader opens; in the order of their names."""
    paths = [path for path in sorted(root.rglob("*")) if not path.is_symlink()]
    taken: defaultdict[str, int] = defaultdict(int)
    for path in paths:
        files = _content(path) if path.is_file() or path.parent.parent == root else {}
        if not files or (path.is_file() and sum(map(len, files.values())) > MOST_BYTES):
            continue
        for format in (_dump_format(path), *_side_formats(path)):
            if format and taken[format] < _MOST_GENUINE:
                taken[format] += 1
                yield Seed(format, path.name, files)


def _dump_format(path: Path) -> str:
    try:
        return open_dump(path).format
    except SgsdumpError:
        return ""


def _side_formats(path: Path) -> Iterator[str]:
    for name, read in SIDE_FILES.items():
        if path.is_file() and name != "debug_config" and _reads(read, path):
            yield name


def _reads(read: Callable[[Path], Any], path: Path) -> bool:
    try:
        return bool(read(path))
    except SgsdumpError:
        return False


def _content(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()} if path.stat().st_size <= 4 * MOST_BYTES else {}
    small = (p for p in sorted(path.rglob("*")) if p.is_file() and p.stat().st_size <= 4 * MOST_BYTES)
    return {str(p.relative_to(path)): p.read_bytes() for p in _first(small)}


def _first(paths: Iterable[Path]) -> list[Path]:
    return [path for path, _ in zip(paths, range(_MOST_FILES))]
