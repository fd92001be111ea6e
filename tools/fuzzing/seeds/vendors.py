"""Dumps of other vendors' tools, made by hand in the forms that the readers describe."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator

import numpy as np

from fuzzing.seeds.seed import Seed

_MAP = (
    b"layer_name                         file_name                          \n"
    b"----------------------------------------------------------------------\n"
    b"data                               data.txt                           \n"
    b"/block/relu1                       _block_relu1.txt                   \n"
)
_ERRORS = b"# entire\nlayer_name   simulator_error\n---\n[Input] data   1.0 | 0.0   1.0 | 0.0\n[Relu] /block/relu1\n"
_LLAMA = b"""\
common_debug_cb_eval:  x-0 = (f32)   GET_ROWS(token_embd.weight{2, 9, 1, 1}, inp_tokens{2, 1, 1, 1}}) = {2, 2, 1, 1}
    [
        [
            [     -0.1730,      -0.1430  ],
            [      0.2704,         -nan  ],
        ],
    ]
    sum = -4.353276
ggml_debug:   y = (f16)  ADD(x-0{8, 1, 1, 1}, CUDA0#x-0#0{8, 1, 1, 1}}) = {8, 1, 1, 1}
    [
        [
            [      1.0000,       2.0000,       3.0000,    ...,      -3.0000,      -2.0000,      -1.0000  ],
        ],
    ]
    sum = 0.500000
"""
_TENSORRT = b"""\
[
  { "name" : "prob"
  , "dimensions" : "1x3"
  , "values" : [ 0.25, -1e-07, nan ]
  }
, { "name" : "ids"
  , "dimensions" : "2"
  , "values" : [ 3, 1 ]
  }
]
"""
_STATISTICS = b"""\
Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Count,NaN Count,MD5
Conv2D,Default_c1-Conv2d_Conv2D-op0,0,0,1733905446819790,input,0,48,float32,"(1,3,2,2)",3,-1,12,0,ab12
Conv2D,Default_c1-Conv2d_Conv2D-op0,0,0,1733905446820495,output,0,4,bfloat16,"()",2,2,1,null,
"""


_AIMET: dict[str, dict[str, object]] = {
    "0_6_1": {"activation_encodings": {"a": [{"bitwidth": 8, "dtype": "int", "min": -1.0, "max": 2.0}]}},
    "1_0_0": {
        "activation_encodings": [{"name": "a", "bw": 8, "dtype": "INT", "scale": [0.5], "offset": [-128]}],
        "param_encodings": [{"name": "w", "bw": 4, "enc_type": "PER_BLOCK", "scale": [1, 2], "offset": [0, -8]}],
    },
    "2_0_0": {
        "encodings": [
            {"name": "a", "output_dtype": "uint8", "y_scale": 0.5, "y_zero_point": 3},
            {"name": "w", "output_dtype": "int4", "y_scale": [[1.0, 2], [3, 4]], "axis": 0, "block_size": 2},
        ]
    },
    "quark": {"quark_version": "0.13", "tensors_range": {"a": [[-1.0], [1.5]], "b": [[0], [3]]}},
    "analyser": {"a": {"a_0": [-1.0, 2.5], "a_1": [0, 1e3]}, "b": [0, 1]},
}


def vendors() -> Iterator[Seed]:
    for version, document in _AIMET.items():
        yield Seed("tensor_min_max", f"{version}.encodings", {"": json.dumps(document).encode()})
    mapping = {"a.safetensors": "MinMaxTensorStatistic_/a_4_0", "b.safetensors": "MeanTensorStatistic_/a_4_0"}
    header = {
        name: {"dtype": "F32", "shape": [1, 2], "data_offsets": [start, start + 8]}
        for name, start in (("min_values", 0), ("max_values", 8))
    }
    text = json.dumps(header).encode()
    statistics = {
        "statistics_metadata.json": json.dumps({"mapping": mapping, "backend": "ONNX"}).encode(),
        "a.safetensors": struct.pack("<Q", len(text)) + text + np.array([-1, -2, 3, 4], np.float32).tobytes(),
    }
    yield Seed("tensor_min_max", "statistics", statistics)
    outputs = {
        "layer_output_name_order.json": b'{"layer_output_names": ["data", "_relu1_Relu_output_0"]}',
        "outputs/layer_outputs_0/data.raw": bytes(range(24)),
        "outputs/layer_outputs_0/_relu1_Relu_output_0.raw": bytes(8),
    }
    yield Seed("aimet_outputs", "outputs", outputs)
    yield Seed("tensor_file", "blob.txt", {"": b"0.5 -1 \n2 3 \n--------\n4 5 \n6 7 \n--------\n"})
    values = _npy(np.arange(6, dtype=np.float32).reshape(2, 3))
    snapshot = {
        **{"map_name_to_file.txt": _MAP, "error_analysis.txt": _ERRORS, "golden/npy/data.npy": values},
        "golden/_block_relu1.txt": b"0.500000\n-1.250000\n",
    }
    yield Seed("rknn_snapshot", "snapshot", snapshot)
    raw = b"\x08\x02\x08\x03\x10\x01\x42\x01x\x4a\x18" + bytes(range(24))
    typed = b"\x0a\x01\x03\x10\x06\x2a\x03\x01\x7f\x02\x42\x01y"
    yield Seed("onnx_tensor", "output_0.pb", {"": raw})
    yield Seed("onnx_tensor", "x.pb", {"": typed})
    model = b"\x08\x08\x3a\x0a\x5a\x03\x0a\x01a\x62\x03\x0a\x01b"
    tests = {"model.onnx": model, "test_data_set_0/input_0.pb": raw, "test_data_set_0/output_0.pb": typed}
    yield Seed("onnx_test_data", "case", tests)
    yield Seed("llama_eval_log", "run.log", {"": _LLAMA})
    yield Seed("tensorrt_outputs", "outputs.json", {"": _TENSORRT})
    yield Seed("mindspore_stats", "statistic.csv", {"": _STATISTICS})
    place, start = "rank_0/Net/0/0", "ReLU.Default_r-ReLU_ReLU-op0.0.0"
    mindspore = {
        f"{place}/{start}.1796037708093291.input.0.DefaultFormat.Float32.npy": values,
        f"{place}/{start}.1796037708093459.output.0.DefaultFormat.npy": values,
        "rank_0/execution_order/ms_execution_order_graph_0.csv": b"Names\nDefault/r-ReLU/ReLU-op0\n",
    }
    yield Seed("mindspore_dir", "dump", mindspore)
    traces = {
        "tidl_trace0001_00001_00002_00003x00001_float.bin": bytes(24),
        "tidl_trace_subgraph_0_0002_00001_00001_00003x00001.y": bytes(3),
        "subgraph_0_tidl_net.bin.layer_info.txt": b"0 0 data\n1 1 conv1\n",
    }
    yield Seed("tidl_traces", "traces", traces)
    names = ("data____topo-index:0____output-num:0", "relu____topo-index:1____output-num:0")
    yield Seed("tvm_params", "net.params", {"": _params(names)})
    nodes = [{"op": "param", "name": "data", "inputs": []}, {"op": "fused_relu", "name": "relu", "inputs": ["data"]}]
    graph = json.dumps({"nodes": nodes}).encode()
    yield Seed("tvm_debug", "tvm", {"output_tensors.params": _params(names), "_tvmdbg_graph_dump.json": graph})


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _params(names: tuple[str, ...]) -> bytes:
    """TVM parameters of float32 and shape [2, 3]."""
    head = struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, len(names))
    texts = b"".join(struct.pack("<Q", len(name)) + name.encode() for name in names)
    tensor = struct.pack("<QQiiiBBHqqq", 0xDD5E40F096B4A13F, 0, 1, 0, 2, 2, 32, 1, 2, 3, 24) + bytes(range(24))
    return head + texts + struct.pack("<Q", len(names)) + tensor * len(names)
