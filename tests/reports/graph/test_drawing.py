"""Groups, parts, and the data of the drawing."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.dumps.dump import Dump, Operator, Record
from sgsdump.reports.graph.drawing import drawing_of
from sgsdump.reports.graph.groups import MOST, Group, groups_of, path_of
from sgsdump.reports.graph.parts import parts_of
from sgsdump.reports.graph.program_flow import sources_of
from sgsdump.tensors.tensor import Tensor


def names_in(group):
    return [child.name if isinstance(child, Group) else child for child in group.children]


def test_modules_are_groups_and_a_module_with_one_operator_is_none():
    paths = ["model/layers.0/conv/Conv", "model/layers.0/relu/Relu", "model/layers.1/conv/Conv", "model/head/Gemm"]
    root = groups_of([path_of(name) for name in paths], paths)
    assert names_in(root) == ["layers", 3]
    layers = root.children[0]
    assert names_in(layers) == ["0", 2] and names_in(layers.children[0]) == [0, 1]


@given(st.lists(st.sampled_from(["a", "a/b", "a/c", "d", ""]), min_size=1, max_size=200))
def test_every_operator_stands_once_and_no_group_is_large(paths):
    split = [tuple(filter(None, path.split("/"))) for path in paths]
    root = groups_of(split, [str(place) for place in range(len(paths))])
    assert sorted(root.members()) == list(range(len(paths)))

    def check(group):
        assert 1 <= len(group.children) <= MOST
        assert [c.first if isinstance(c, Group) else c for c in group.children] == sorted(
            c.first if isinstance(c, Group) else c for c in group.children
        )
        for child in group.children:
            if isinstance(child, Group):
                assert len(child.children) > 1
                check(child)

    check(root)


def test_a_flat_network_is_divided_into_runs():
    root = groups_of([()] * 5000, [f"conv{place}" for place in range(5000)])
    assert len(root.children) <= MOST and root.children[0].name == "conv0 … conv479"


def fused():
    """conv -> bn -> relu -> pool, of which only relu and pool are compared; the records show the flow."""
    tensors = [Tensor.of(name, np.zeros(3, np.float32)) for name in ("conv", "bn", "relu", "pool")]
    records = []
    for index, (tensor, op_type) in enumerate(zip(tensors, ("Conv", "BatchNormalization", "Relu", "MaxPool"))):
        if index:
            records.append(Record("in", 0, index, op_type, tensors[index - 1]))
        records.append(Record("out", 0, index, op_type, tensor))
    return Dump(records)


def test_parts_of_a_fused_layer():
    found = parts_of(["relu", "pool"], fused())
    assert list(found) == ["relu"]
    assert [(part.name, part.op_type, part.reads) for part in found["relu"]] == [
        ("conv", "Conv", ()),
        ("bn", "BatchNormalization", ("conv",)),
    ]


def test_an_operator_between_two_layers_belongs_to_the_first():
    """relu and pool both read conv, which was not compared."""
    conv, relu, pool = (Tensor.of(name, np.zeros(3, np.float32)) for name in ("conv", "relu", "pool"))
    read = [Record("in", 0, index, "", conv) for index in (1, 2)]
    records = [Record("out", 0, 0, "Conv", conv), read[0], Record("out", 0, 1, "Relu", relu), read[1]]
    found = parts_of(["relu", "pool"], Dump([*records, Record("out", 0, 2, "MaxPool", pool)]))
    assert [[part.name for part in parts] for parts in found.values()] == [["conv"]] and list(found) == ["relu"]


def test_a_fused_layer_is_a_group_that_opens():
    parts = parts_of(["relu", "pool"], fused())
    drawing = drawing_of(["relu", "pool"], ["", ""], [(), ("relu",)], parts, {"relu": ("bn",)})
    assert drawing["parts"] == [["conv", "Conv"], ["bn", "BatchNormalization"]]
    layer, root = drawing["groups"]
    assert layer["layer"] == 0 and layer["children"] == [2, 3, 0] and layer["rows"] == [0, 1, 2]
    assert root["children"] == [4, 1] and root["links"] == [[0, 1]]
    assert drawing["reads"] == {"0": [3], "2": [], "3": [2]}


def test_without_dataflow_layers_are_linked_in_order():
    drawing = drawing_of(["a", "b", "c"], [""] * 3, [()] * 3, {}, {}, by_flow=False)
    assert drawing["inOrder"] and drawing["groups"][-1]["links"] == [[0, 1], [1, 2]]
    assert drawing_of(["a"], [""], [()], {}, {}) is None


def test_a_module_that_is_entered_twice_is_drawn():
    """Its links go to an earlier and a later group."""
    names = ["a.x", "b.x", "a.y", "b.y"]
    drawing = drawing_of(names, ["a", "b", "a", "b"], [(), ("a.x",), ("b.x",), ("a.y",)], {}, {})
    assert drawing["groups"][-1]["links"] == [[0, 1], [1, 0]]


def test_the_flow_of_a_program_comes_from_identities():
    """A linear layer in a module: the module's output is made by the operator inside."""
    tensors = {
        name: Tensor.of(name, np.zeros(2, np.float32)) for name in ("a/out", "b/in", "b/out", "m/in", "m/out", "c/in")
    }
    places = [("out", 0, "a/out"), ("in", 1, "m/in"), ("in", 2, "b/in"), ("out", 2, "b/out"), ("out", 1, "m/out")]
    places.append(("in", 3, "c/in"))
    network = {
        0: Operator("", "aten.relu", values={("out", 0): 1}),
        1: Operator("m", "Linear", is_module=True, values={("in", 0): 1, ("out", 0): 2}),
        2: Operator("m", "aten.mm", values={("in", 0): 1, ("out", 0): 2}),
        3: Operator("", "aten.add", values={("in", 0): 2}),
    }
    whole = Dump([Record(io, 0, index, "", tensors[name]) for io, index, name in places], network=lambda: network)
    assert sources_of(set(tensors), whole) == {
        "a/out": (),
        "m/in": ("a/out",),
        "b/in": ("a/out",),
        "b/out": ("b/in",),
        "m/out": ("b/out",),
        "c/in": ("b/out",),
    }
    assert sources_of({"relu"}, fused()) == {} == sources_of({"relu"}, None)
