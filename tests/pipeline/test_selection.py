"""Which tensors are chosen, and the index they are chosen by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from pipeline import nets

from sgsdump.errors import ConfigError
from sgsdump.pipeline.selection import NodeOutput, by_name, node_outputs, select

TYPES = ["Conv", "Relu", "Add"]
OUTPUTS = tuple(NodeOutput(i, f"t{i}", "", TYPES[i % 3], ()) for i in range(10))


def indices(*args, **more):
    return [each.index for each in select(OUTPUTS, *args, **more)]


def test_every_named_output_of_every_node_counts_but_constants():
    nodes = [
        helper.make_node("Constant", [], ["c"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, name="split"),
        helper.make_node("Dropout", ["a"], ["d", ""]),
        helper.make_node("Add", ["d", "c"], ["e"]),
    ]
    found = node_outputs(nets.net(nodes, nets.X).proto.graph)
    assert [(each.index, each.name, each.op_type) for each in found] == [
        (0, "a", "Split"),
        (1, "b", "Split"),
        (2, "d", "Dropout"),
        (3, "e", "Add"),
    ]
    assert found[1].node == "split" and found[3].inputs == ("d", "c")


@pytest.mark.parametrize(
    "args, expected",
    [
        ((), list(range(10))),
        ((None, None, 4), [0, 4, 8, 9]),
        (("t2", "t8", 3), [2, 5, 8]),
        (("t2", "t8", 4), [2, 6, 8]),
        ((0, 0), [0]),
        ((0, 3), [0, 1, 2, 3]),
        ((7,), [7, 8, 9]),
        ((None, 2), [0, 1, 2]),
        (("7", "t8"), [7, 8]),
        ((4, 5, 100), [4, 5]),
    ],
)
def test_start_end_and_step(args, expected):
    assert indices(*args) == expected


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 12))
def test_start_and_end_are_always_there(start, end, step):
    if start > end:
        return
    assert indices(start, end, step) == sorted({*range(start, end, step), end})


def test_filters():
    assert indices(op_types=["Conv"]) == [0, 3, 6, 9]
    assert indices(op_types=["Conv", "Add"], step=2) == [0, 3, 6, 9]
    assert indices(pattern="t[57]") == [5, 7]
    assert indices(pattern="*") == list(range(10))
    assert indices("t1", "t8", op_types=["Conv"]) == [1, 3, 6, 8]
    assert indices(2, None, pattern="t?", op_types=["Relu"], step=2) == [2, 4, 7]


@pytest.mark.parametrize(
    "args, more, text",
    [
        (("t3", "t1"), {}, r"start 't3' \(topology index 3\) comes after the end 't1' \(1\)"),
        ((None, None, 0), {}, "step is 0"),
        ((None, None, -2), {}, "step is -2"),
        ((None, None, 1.5), {}, "step is 1.5; .* an integer"),
        ((None, None, "2"), {}, "step is '2'"),
        (("tt5",), {}, "no tensor 'tt5'; did you mean 't5'"),
        ((10,), {}, "no topology index 10; the model's indices are 0 to 9"),
        (("-1",), {}, "no topology index -1"),
        ((), {"pattern": "z*"}, "no tensor between start and end matches the name pattern 'z[*]'"),
        ((), {"op_types": ["conv"]}, "no operator 'conv'; did you mean 'Conv'"),
        ((0, 1), {"op_types": ["Add"]}, "matches the operator Add"),
    ],
)
def test_what_cannot_be_is_one_line(args, more, text):
    with pytest.raises(ConfigError, match=text) as caught:
        select(OUTPUTS, *args, **more)
    assert "\n" not in str(caught.value)


def test_a_model_of_constants_has_nothing_to_dump():
    with pytest.raises(ConfigError, match="no tensors to dump"):
        select(())


def test_names_once_each_in_their_order():
    assert [each.index for each in by_name(OUTPUTS, ["t5", "t1", "t5"])] == [1, 5]
    with pytest.raises(ConfigError, match="no tensor 'relu'"):
        by_name(OUTPUTS, ["relu"])


def test_a_tensor_called_like_a_number_is_found_by_name():
    outputs = (NodeOutput(0, "1", "", "Abs", ()), NodeOutput(1, "x", "", "Abs", ()))
    assert [each.name for each in select(outputs, "1", "1")] == ["1"]
