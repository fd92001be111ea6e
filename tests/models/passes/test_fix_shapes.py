"""Open input sizes get numbers; what does not fit is one line."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from sgsdump.errors import InputError
from sgsdump.models.passes.fix_shapes import fix_shapes


@pytest.fixture
def proto() -> onnx.ModelProto:
    """a [N, 3, ?] and b [N, 4] with a fixed 4."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Shape", ["a"], ["s"])],
        "g",
        [info("a", TensorProto.FLOAT, ["N", 3, None]), info("b", TensorProto.FLOAT, ["N", 4])],
        [info("s", TensorProto.INT64, [3])],
    )
    return helper.make_model(graph)


def dims(proto: onnx.ModelProto) -> dict[str, list[int | str]]:
    return {
        each.name: [d.dim_param if d.HasField("dim_param") else d.dim_value for d in each.type.tensor_type.shape.dim]
        for each in proto.graph.input
    }


def test_a_size_with_a_name_is_the_same_everywhere(proto: onnx.ModelProto) -> None:
    before = proto.SerializeToString()
    assert dims(fix_shapes(proto, {"a": (2, 3, 7)})) == {"a": [2, 3, 7], "b": [2, 4]}
    assert dims(fix_shapes(proto, {})) == dims(proto)
    assert proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"c": (1,)}, "'c', the model has no such input"),
        ({"a": (1, 3)}, r"\[1, 3\] does not fit the model's input 'a', which is \[\?, 3, \?\]"),
        ({"a": (1, 4, 7)}, r"\[1, 4, 7\] does not fit"),
        ({"a": (1, 3, 7), "b": (2, 4)}, "'N' of the model as 1 and as 2"),
    ],
)
def test_what_does_not_fit(proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        fix_shapes(proto, shapes)
