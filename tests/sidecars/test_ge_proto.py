"""The operators of a graph as protobuf text: the seed's sample, the form's freedoms, damage, and what we write."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.errors import ConfigError, FormatError
from sgsdump.sidecars.ge_proto import Graph, GraphOperator, read, render

SAMPLE = """
graph {
  name: "online_0"
  input: "Add1_in_0:0"
  input: "Add1_in_1:0"
  op {
    name: "Add1_in_0"
    type: "Data"
    input: ""
    attr {
      key: "OUTPUT_IS_VAR"
      value {
        list {
          b: false
          val_type: VT_LIST_BOOL
        }
      }
    }
    attr { key: "index" value { i: -3 } }
    attr { key: "scale" value { f: 1.5e-3 } }
    attr { key: "_datadump_original_op_names" value { list { s: "a" s: "b/c" val_type: VT_LIST_STRING } } }
  }
  op{
    name: "Add2"
    type: "Add"
    input: "Add1_in_0:0"  # with a comment
    input: "Add1_in_1:0"
    output_desc { dtype: DT_FLOAT shape { dim: 2 dim: 3 } }
    attr { key: "kernel" value { t { desc { name: "w" } data: "\\000\\377\\"" } } }
  }
}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "ge_proto_00000001_graph_1.txt"
    path.write_text(text)
    return path


def test_the_seed_s_sample_and_its_attributes(tmp_path: Path) -> None:
    (graph,) = read(written(tmp_path, SAMPLE))
    assert graph.name == "online_0" and [one.name for one in graph.operators] == ["Add1_in_0", "Add2"]
    data, add = graph.operators
    assert data.op_type == "Data" and data.inputs == () and add.inputs == ("Add1_in_0:0", "Add1_in_1:0")
    assert dict(data.attributes) == {
        "OUTPUT_IS_VAR": [False], "index": -3, "scale": 0.0015, "_datadump_original_op_names": ["a", "b/c"]
    }  # fmt: skip
    assert [name for name, _ in add.attributes] == ["kernel"]


@pytest.mark.parametrize(
    "text",
    [
        'name: "g" op { name: "a" type: "Add" }',
        "name:'g',op:<name:'a';type:'Add'>",
        'graph: { name: "g" op { type: "Add" name: "a" } version: 3 }',
        'name: "older" graph { op { type: "Add" name: "\\141" input: [] } name: "g" }',
    ],
)
def test_the_form_s_freedoms(tmp_path: Path, text: str) -> None:
    assert read(written(tmp_path, text)) == [Graph("g", (GraphOperator("a", "Add"),))]


def test_several_graphs(tmp_path: Path) -> None:
    text = 'graph { name: "a" op { name: "x" } } graph { name: "b" op { name: "y" } } graph { name: "none" }'
    assert [graph.name for graph in read(written(tmp_path, text))] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no graph"),
        ('graph { name: "a" }', "holds no graph"),
        ('graph {\n op {\n name: "a"', "line 3: it ends too early"),
        ('op { name: "a" } }', "where a field's name should be"),
        ('op { name "a" type: }', "line 1"),
        ('op { name: "a\n" }', "line 1"),
        ("graph { op { name: \x01 } }", "line 1"),
        ("{ " * 10, "where a field's name"),
        ("op { name: 1.2.3 }", "line 1: '1.2.3' is not a number"),
        ("\nop { input: [1, ", "line 2: it ends too early"),
        ("op { [a. }", "where an extension's name should be"),
        ("op { name: ü }", "where a value should be"),
        ("a { " * 1000, "64 levels deep"),
        (
            "op { name: '" + "\\" * 30_000 + "' }",
            "256 backslashes in a row",
        ),  # two seconds for protobuf
    ],
)
def test_damage_is_told_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        read(written(tmp_path, text))


def test_numbers_and_words_as_values(tmp_path: Path) -> None:
    """A number with an ``e``, an ``f`` or none of them, in any base, negative too; an enum's word stays one."""
    numbers = "1E3 -2.5e-1 3f 0x1f -0x1F 017x -inf 5 -6".replace("017x", "1.").split()
    attributes = "".join(f'attr {{ key: "k" value {{ f: {text} }} }}' for text in [*numbers, "DT_FLOAT", "true"])
    (graph,) = read(written(tmp_path, f'op {{ name: "a" {attributes} }}'))
    expected = [1000.0, -0.25, 3.0, 31, -31, 1.0, -float("inf"), 5, -6, "DT_FLOAT", True]
    assert [value for _, value in graph.operators[0].attributes] == expected


def test_a_message_in_an_attribute_shows_its_plain_fields(tmp_path: Path) -> None:
    value = 'value { t { desc { name: "w" } data: "x" data: "y" [a.b/c.d]: 7 size: 3 } }'
    (graph,) = read(written(tmp_path, f'op {{ name: "a" attr {{ key: "k" {value} }} }}'))
    assert graph.operators[0].attributes == (("k", "{data: x [a.b/c.d]: 7 size: 3}"),)


def test_names_in_another_encoding_keep_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes(b'op { name: "\\303\\274 ' + "中".encode("gbk") + b'ab" }')
    assert read(path)[0].operators[0].name == "ü " + "中".encode("gbk").decode("utf-8", "surrogateescape") + "ab"


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"\x08\x00\x12")
    with pytest.raises(ConfigError, match="binary"):
        read(tmp_path / "x.txt")


NAMES = st.text(string.printable + "äß→", min_size=1, max_size=12)
ATTRIBUTES = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), NAMES,
    st.lists(st.integers(0, 9), min_size=1, max_size=3), st.lists(NAMES, min_size=1, max_size=3),
)  # fmt: skip


@given(st.lists(st.builds(
    GraphOperator, NAMES, NAMES, st.lists(NAMES, max_size=3).map(tuple),
    st.lists(st.tuples(NAMES, ATTRIBUTES), max_size=3).map(tuple)), min_size=1, max_size=4))  # fmt: skip
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, operators: list[GraphOperator]) -> None:
    path = tmp_path_factory.mktemp("proto") / "g.txt"
    path.write_bytes(render("graph", operators).encode())
    (graph,) = read(path)
    assert list(graph.operators) == operators


def test_protobuf_s_own_writer_is_understood(tmp_path: Path) -> None:
    """A message of any schema, as protobuf prints it."""
    from google.protobuf import text_format
    from google.protobuf.struct_pb2 import Struct

    message = Struct()
    message.update({"name": 'a "quoted"\n\ttext \\ ü', "number": 1.5})
    printed = text_format.MessageToString(message)
    path = written(tmp_path, f'op {{ name: "x" attr {{ key: "k" value {{ s: "y" }} }} other {{ {printed} }} }}')
    assert read(path)[0].operators[0].attributes == (("k", "y"),)
    as_name = printed.split("string_value: ")[1].splitlines()[0]
    path = written(tmp_path, f"op {{ name: {as_name} }}")
    assert read(path)[0].operators[0].name == 'a "quoted"\n\ttext \\ ü'
