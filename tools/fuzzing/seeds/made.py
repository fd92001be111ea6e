"""Formats that are only read, and foreign forms of the others, made by hand."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from fuzzing.seeds.seed import Seed
from fuzzing.seeds.torch_files import torch_files
from sgsdump.dumps.formats.ascend import headers
from sgsdump.dumps.formats.atb import survey

_OPERATOR = "Add.net_add.3.7.1700000000123456"
_STATUS = "Opdebug.Node_OpDebug.3.7.1700000000123456"
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
_STATISTICS = (
    b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count\n"
    b"Input,0,64,DT_FLOAT16,NC1HWC0,1x1x2x2x16,1.5,-1,0.25,64,0\n"
    b"Output,0,8,DT_UINT32,ND,2,-1,1,0.5,0\n"
    b"Input/Output,Index,Data Type,Format,Shape,l2norm\nOutput,1,bf16,NCHW,1x2x1x1,3.5\n"
)


_DEBUG_MODE = b"""\
    [nn.Mod] Net
      [nn.Mod] Net.norm
        # File: net.py:8 in forward, code: x
        aten::native_layer_norm(t$0: f32[2, 3], [3], t$1: f32[3], None, 1e-05)\
  ->  ('t$2: f32[2, 3]', 't$3: f32[2, 1]')\
  # {'input_hash': ((3.5, [None], 3.0, None, None), {}), 'hash': ((6.25, 77), (nan, 8))}
      aten::add_.Tensor(t$2: f32[2, 3]{requires_grad=True}, 1, alpha=2)  ->  t$2: f32[2, 3]  # {'hash': (-inf, 9)}
    aten::cat(['dt$2: f32[2, 3]| S(0)', 't$0: f32[2, 3]'], -1)  ->  t$4: bf16[2, 6]  # {'hash': 'ab'}
"""
_FACTS = {"shape": "torch.Size([2, 3])", "dtype": "torch.float32", "mean": "tensor(1.5000e+00)", "std": "tensor(nan)"}
_DEBUG_TREE = {
    "module_path": "Net",
    "inputs": {"args": [_FACTS], "kwargs": {"flag": "True"}},
    "children": [
        {"module_path": "Net.fc", "inputs": {"args": [_FACTS]}, "outputs": {**_FACTS, "value": "./y.safetensors"}},
        {
            "module_path": "Net.fc",
            "outputs": [{**_FACTS, "dtype": "torch.int64", "value": ["tensor([1, 2])"]}, {"a": "None"}],
        },
    ],
}
_ACTIVATIONS = (
    b"Total captured activations: 2\nExcluded ops dispatched: t, view\n" + b"=" * 80 + b"\n\n"
    b"[layers.0.wq/op_0_mm]\n  Shape: torch.Size([8, 4]), Dtype: torch.bfloat16\n  L2 norm: 4.512300e+00\n"
    b"  Min: -3.250000e+00\n  Max: nan\n  Mean: inf\n  Output hash: 9.234560e+00, 7\n"
    b"  Input hashes: 9.876500e+02, 4.567800e+02\n  Input producers: ;\n  Location: common/attention.py:534\n\n"
    b"[<none>/op_0_add_]\n  Input hashes: 9.234560e+00\n  Input producers: layers.0.wq/op_0_mm\n  Phase: backward\n\n"
)


def made() -> Iterator[Seed]:
    for number, array in enumerate(
        [np.arange(6, dtype="<f4").reshape(2, 3), np.asfortranarray(np.eye(3)), np.array("é")]
    ):
        yield Seed("npy", f"x{number}.npy", {"": _npy(array)})
    file = io.BytesIO()
    np.savez_compressed(file, a=np.arange(30.0), b=np.zeros(3, np.int8))
    yield Seed("npz", "x.npz", {"": file.getvalue()})
    yield from torch_files()
    yield Seed("polygraphy", "x.json", {"": _run_results()})
    header = json.dumps({"x": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    yield Seed("safetensors", "x.safetensors", {"": struct.pack("<Q", len(header)) + header + bytes(range(8))})
    values = struct.pack("<Q", 62) + b'{"data": {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}  '[:62] + bytes(24)
    yield Seed("torchtitan_log", "rank_0_activations.log", {"": _ACTIVATIONS})
    yield Seed("torchtitan_log", "logs", {f"rank_{rank}_activations.log": _ACTIVATIONS for rank in (0,)})
    yield Seed("torch_debug_mode", "run.txt", {"": _DEBUG_MODE})
    tree = {"Net_debug_tree_FULL_TENSORS.json": json.dumps(_DEBUG_TREE).encode(), "y.safetensors": values}
    yield Seed("transformers_debug", "debug", tree)
    yield Seed("ascend_dump", _OPERATOR, {"": _operator()})
    yield Seed("ascend_dump", _STATUS, {"": _operator(overflow=True)})
    yield Seed("msaccucmp_bin", f"{_OPERATOR}.output.0.2_3.float16.ND.bin", {"": bytes(range(12))})
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
    save = {"data/a/step0/rank0/micro_step0/a.npy": values["dump_tensor_data/conv.npy"]}
    yield Seed("msprobe_single_save", "saves", save)
    yield Seed("msprobe_dir", "step0", {"dump.json": json.dumps(_MSPROBE).encode(), **values})
    yield from _folders()


def _folders() -> Iterator[Seed]:
    """Folders of one tensor a file, and single files of text and of values whose type and shape the name tells."""
    six = np.arange(6, dtype="<f4").tobytes()
    text = b"# shape: (2, 3)\n0 1.5e-3 nan\n-2 inf 5\n# next\n"
    rows = b",a,b\n0,1.5,2\n1,3,4.25\n"
    yield Seed("tensor_file", "x.txt", {"": text})
    yield Seed("tensor_file", "x.csv", {"": rows})
    yield Seed("tensor_file", "x_2x3_float32.bin", {"": six})
    header = json.dumps({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    mixture = {
        "a.npy": _npy(np.eye(2)),
        "b/c.csv": rows,
        "d.txt": text,
        "e_00001_00002x00003_float.bin": six,
        "f.safetensors": struct.pack("<Q", len(header)) + header + six,
        "notes.txt": b"on Tuesday\n",
    }
    yield Seed("folder", "mixture", mixture)
    shapes = {"x": {"shape": [2, 3], "dtype": "float32"}, "deep/y": [2, 3], "more": [{"name": "z", "dims": "2x3"}]}
    yield Seed("folder", "json_list", {"x.raw": six, "deep/y.raw": six, "shapes.json": json.dumps(shapes).encode()})
    yield Seed("folder", "text_list", {"x.bin": six, "y.bin": six, "l.txt": b"x 2x3 float32\ny (3, 2) fp32\n"})
    table = b'file,shape,dtype\nx.raw,"[2, 3]",float32\n'
    yield Seed("folder", "table", {"x.raw": six, "manifest.csv": table})
    qnn = b"output_tensors:\n  - tensor_name: x\n    datatype: QNN_DATATYPE_UFIXED_POINT_8\n    dimensions: [2, 3]\n"
    yield Seed("folder", "qnn", {"Result_0/x.raw": six, "execution_metadata.yaml": qnn})


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _run_results() -> bytes:
    """One runner, two iterations."""
    array = base64.b64encode(_npy(np.arange(6, dtype=np.float16))).decode()
    lazy = {"values": {"array": array, "polygraphy_class": "ndarray"}, "polygraphy_class": "LazyArray"}
    iteration = {"outputs": {"y": lazy, "z": lazy}, "runtime": 0.5, "runner_name": "r"}
    return json.dumps({"lst": [["r", [iteration, iteration]]], "polygraphy_class": "RunResults"}).encode()


def _operator(overflow: bool = False) -> bytes:
    """An operator dump with an input in a device's layout, two outputs, a buffer and a space; or an overflow status."""
    messages = headers.messages()
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
    table = "".join(f"{line}\n" for line in (survey.HEADER, *rows)).encode()
    run = "atb_dump_data/data/0_4711/0"
    return {
        f"{run}/0_Embed/after/outtensor0.bin": values,
        f"{run}/1_Linear/before/intensor0.bin": alias,
        f"{run}/1_Linear/after/intensor0.bin": alias,
        f"{run}/1_Linear/0_Matmul/after/outtensor0.bin": figures,
        f"{run}/statistic.csv": table,
    }
