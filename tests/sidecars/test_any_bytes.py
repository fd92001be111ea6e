"""Whatever lies in a side file, reading it gives a result or one line of ours, never another exception."""

import json
import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sgsdump.comparison.naming import NAME_FILES
from sgsdump.errors import SgsdumpError
from sgsdump.sidecars import SIDECARS

SIDE_FILES = {**SIDECARS, **NAME_FILES}


STARTS = {
    "debug_config": b"dumpTensor\npath=/\neliminateGarbage #\npath=\r\nDump\n",
    "input_config": b"[INPUT_CONFIG]\ninputs='a',b;\ntraining_input_formats=RGB,GRAY\n"
    b"input_formats=RGB,GRAY\nmean=1:2:3,4\n",
    "tensor_min_max": b"Name:a, min: -1.0, max: 2.0;\n",
    "quant_param": b'[{"name": "a", "min": [-1.0], "max": [2.0], "bit": 8}]',
    "parse_net": b"| |--> Tensor[1 ] type(7):INT16 buffer: 22  (const buffer: 0 size: 10 : buf: (nil)) bVar: 248 "
    b"shape(len:2  2 5  ) Quant:{Max: 0.5, Min: na, Scaler: 0.1, zeroP: 0} ddr_type: IPU_S16_NHWC name(p) EvrId(1)\n",
    "name_map": b'{"a": "b", "c": "d"}',
    "mindie_map": b'{"Conv2D_5": {"jit_node": "%a : x, scope: __module.a/__module.a.b # f", "id": 4}}',
    "ge_graph": b'{"graph": [{"op": [{"name": "c", "attr": [{"key": "_datadump_original_op_names", '
    b'"value": {"list": {"s": ["a", "b"]}}}], "output_desc": [{"attr": [{"key": "_datadump_origin_name", '
    b'"value": {"s": "b"}}, {"key": "_datadump_origin_output_index", "value": {"i": 0}}]}]}]}]}',
    "layer_mapping": b"TopLayer:\n  a: b\nCell: {c.d: 'e', \"f\": g}\n",
    "name_rules": b"# rules\n^npu_(.*) -> \\1\n[/:] -> _\n",
    "ge_proto": b'graph { name: "g" op: <name: "a"; type:\'\\x41\' input: ["b:0", ""] '
    b'attr { key: "k" value { f: -1.5e3 } } > }',
    "tensor_chn": b"Name:conv1, 2\nmin_chn: -1.500000, 0.000000, max_chn: 2.000000, 0.250000;\n",
    "tensor_weight": b"Name:[data,conv1_filter],\n     BitWidth:[UINT8,INT8],\n     min:[-0.5, -0.25],\n     "
    b"max:[0.5, 1],\n     data:[0.500000, 1.000000, ];\n",
    "input_text": b"Input_shape=3, 4\n1.5, 2e3, nan, \n",
}
JSON = json.dumps([{"name": "a", "min": [1, 2.5], "max": [None, True], "bit": 8}]).encode()
PICKLE = pickle.dumps([{"name": "a", "min": [1.5], "max": [2.5], "bit": 8, "data": (None, b"x", {1, 2})}], 3)


def mangled(start):
    """``start`` with a stretch replaced by something else."""
    places = st.integers(0, len(start))
    return st.builds(
        lambda a, b, new: start[: min(a, b)] + new + start[max(a, b) :], places, places, st.binary(max_size=6)
    )


def read_anything(tmp_path_factory, name, data):
    folder = tmp_path_factory.mktemp("x")
    file = folder / "DebugConfig.txt"
    file.write_bytes(data)
    try:
        SIDE_FILES[name](folder if name == "debug_config" else file)
    except SgsdumpError as error:
        assert "\n" not in str(error) and "DebugConfig.txt" in str(error)


@pytest.mark.parametrize("name", sorted(STARTS))
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_bytes(tmp_path_factory, name, data):
    read_anything(tmp_path_factory, name, data.draw(mangled(STARTS[name]) | st.binary(max_size=60)))


@settings(max_examples=150, deadline=None)
@given(data=mangled(JSON) | mangled(PICKLE))
@example(data=JSON)
@example(data=PICKLE)
def test_any_quant_param(tmp_path_factory, data):
    read_anything(tmp_path_factory, "tensor_min_max", data)
    read_anything(tmp_path_factory, "quant_param", data)


def test_every_member_of_the_family_is_listed():
    assert set(SIDE_FILES) == set(STARTS)
