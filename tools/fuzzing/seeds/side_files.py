"""The small text files beside a model or a dump, made by hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from fuzzing.seeds.seed import Seed

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
    "ge_proto": b'graph { name: "g" op: <name: "a"; type:\'\\x41\' input: ["b:0"] '
    b'attr { key: "k" value { f: -1.5e3 } } > }',
    "tensor_chn": b"Name:conv1, 2\nmin_chn: -1.500000, 0.000000, max_chn: 2.000000, 0.250000;\n",
    "tensor_weight": b"Name:[data,conv1_filter],\n     BitWidth:[UINT8,INT8],\n     min:[-0.5, -0.25],\n     "
    b"max:[0.5, 1],\n     data:[0.500000, 1.000000, ];\n",
    "name_map": b'{"a": "b", "c": "d"}',
    "input_text": b"Input_shape=3, 4\n1.5, 2e3, nan, \n",
}


def side_files() -> Iterator[Seed]:
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
