"""The mapping files of vendors, name maps as YAML and CSV, and rules: what is read, and what is refused in a line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sgsdump.comparison.naming import name_files, operator_maps
from sgsdump.comparison.naming.operator_maps import Link, Output, operator_keys
from sgsdump.errors import ConfigError, FormatError, MissingExtra


def written(tmp_path: Path, text: str, name: str = "file") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("conv1", {("conv1", 3)}),
        ("a/b.c:output:1", {("a_b_c_output_1", 3), ("a_b_c", 1)}),
        ("/conv1/Conv_output_0", {("_conv1_Conv_output_0", 3), ("_conv1_Conv", 0)}),
        ("conv1/Relu:0", {("conv1_Relu_0", 3), ("conv1_Relu", 0)}),
        ("conv1.0.1700000000123456", {("conv1_0_1700000000123456", 3), ("conv1", 0)}),
        (
            "Module.a.b.Conv2d.forward.0.output.0",
            {
                ("Module_a_b_Conv2d_forward_0_output_0", 3),
                ("Module_a_b_Conv2d_forward_0", 0),
                ("a_b", 0),
            },
        ),
    ],
)
def test_names_tell_their_operators(name: str, keys: set[tuple[str, int]]) -> None:
    assert operator_keys(name, 3) == keys


def test_mindies_two_files_are_joined(shared: Path) -> None:
    folder = shared / "ascend" / "op_mapping"
    files = [folder / "mindie_torch_op_mapping.json", folder / "mindie_rt_op_mapping.json"]
    expected = [Link(Output(("Conv2D_5Relu_8",)), Output(("layer1.0.relu", "968")), "MindIE map")]
    assert operator_maps.read_mindie_map(*files) == operator_maps.read_mindie_map(*files[::-1]) == expected
    for file, other in (files, files[::-1]):
        with pytest.raises(ConfigError, match=f"one of two required files; also give {other.name} with"):
            operator_maps.read_mindie_map(file)


@pytest.mark.parametrize(
    ("node", "name"),
    [("/layer1/0/relu/relu_1", "layer1.0.relu"), ("/relu", "relu"), ("/fc/addmm", "fc"), ("add_3", "add_3")],
)
def test_nodes_of_torch_export(tmp_path: Path, node: str, name: str) -> None:
    links = operator_maps.read_mindie_map(
        written(tmp_path, json.dumps([{"fx_node": node, "rt_layer": "L"}])),
        written(tmp_path, json.dumps([{"id": 1, "ge_op": "Relu_8", "rt_layer": "L"}]), "rt.json"),
    )
    assert links == [Link(Output(("Relu_8",)), Output((name,)), "MindIE map")]


@pytest.mark.parametrize(
    "name",
    [
        *("root.layer1.0.relu:output:0", "root.layer1.0.relu.output.0", "layer1.0.relu"),
        *("root.layer1.0.relu/output", "root.layer1.0.relu/output_0"),
    ],
)
def test_the_root_of_the_torch_tree_is_no_part_of_a_modules_name(name: str) -> None:
    assert ("layer1_0_relu", 0) in operator_keys(name, 0)


def test_mindies_rows_go_by_id_and_the_last_node_counts(tmp_path: Path) -> None:
    nodes = [{"fx_node": f"%v{i} : x", "rt_layer": f"L{i}"} for i in range(4)]
    fused = {"fusion_op": "AB", "fusion_ops": ["A", "B"]}
    layers = [
        {"id": 2, "ge_op": "C", "rt_layer": "L2"},
        {"id": 1, "ge_op": "A", "rt_layer": "L1", **fused},
        {"id": 0, "ge_op": "A", "rt_layer": "L0", **fused},
        {"id": 3, "ge_op": "D", "rt_layer": "gone"},
    ]
    links = operator_maps.read_mindie_map(
        written(tmp_path, json.dumps(nodes), "a"), written(tmp_path, json.dumps(layers), "b")
    )  # fmt: skip
    assert [(link.sample.names, link.benchmark.names) for link in links] == [(("AB",), ("v1",)), (("C",), ("v2",))]
    updated = {"AB": {"id": 1, "jit_node": "%v1 : x", "fuse_path": ["A", "B"]}}
    assert operator_maps.read_mindie_map(written(tmp_path, json.dumps(updated))) == links[:1]


def operator(name: str, originals: list[str], *outputs: tuple[str, int], **more: Any) -> dict[str, Any]:
    attributes = [{"key": "_datadump_original_op_names", "value": {"list": {"val_type": 1, "s": originals}}}]
    described = [
        {
            "attr": [
                {"key": "_datadump_origin_name", "value": {"s": origin}},
                {"key": "_datadump_origin_output_index", "value": {"i": index}},
                {"key": "_datadump_origin_format", "value": {"s": "NCHW"}},
            ]
        }
        for origin, index in outputs
    ]
    return {"name": name, "type": "T", "attr": attributes, "input": ["a:0"], "output_desc": described} | more


def graph(*operators: dict[str, Any]) -> str:
    return json.dumps({"name": "resnet50", "graph": [{"name": "merge1", "op": [*operators]}]})


def test_a_ge_graph_tells_origins_and_relations(tmp_path: Path) -> None:
    links = operator_maps.read_ge_graph(
        written(
            tmp_path,
            graph(
                operator("conv1conv1_relu", ["conv1", "bn1", "conv1_relu"], ("conv1_relu", 1)),
                operator("fc", ["fc1"]),
                operator("half_a", ["split"]),
                operator("half_b", ["split"], ("split", 1)),
                operator("lost", ["p", "q"]),
                operator("data", [], ("", 0)),
                operator("l1", ["x"], ("x", 0), attr=[{"key": "_L1_fusion_sub_graph_no", "value": {"s": "1"}}]),
            ),
        )
    )
    found = {
        link.sample.names[0]: (link.benchmark.names, link.benchmark.slot, link.rule, link.unknown) for link in links
    }
    assert found == {
        "conv1conv1_relu": (("conv1_relu",), 1, "GE graph MultiToOne", ""),
        "fc": (("fc1",), 0, "GE graph OneToOne", ""),
        "half_a": (
            ("split",), 0, "GE graph OneToMulti",
            "the GE graph builds it from 'split' (OneToMulti) and does not state which output it is",
        ),
        "half_b": (("split",), 1, "GE graph OneToMulti", ""),
        "lost": (
            ("p", "q"), 0, "GE graph MultiToOne",
            "the GE graph builds it from 'p', 'q' (MultiToOne) and does not state which output it is",
        ),
        "l1": (("x",), 0, "GE graph L1Fusion", ""),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "not a GE graph"),
        (json.dumps({"graph": [{"op": [3]}]}), "lists of objects"),
        (json.dumps({"graph": [{"op": [{}]}]}), "has no name"),
        (graph(operator("a", ["b"], ("b", -1))), "invalid output number -1"),
        (graph(operator("a", [3])), "not a list of names"),  # type: ignore[list-item]
    ],
)
def test_other_graphs_are_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said) as caught:
        operator_maps.read_ge_graph(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a/b": "1", "yes": "c d"}',
        "# a comment\na/b: 1\n'yes': c d\n",
        "---\na/b: 1\nyes: c d",
        "a/b,1\n\nyes,c d\n",
        "a/b;1\nyes;c d\n",
        "# a\na/b\t1\nyes\tc d\n",
        '"a/b", 1\n"yes", "c d"\n',
        "Sample,Benchmark\n1,a/b\nc d,yes\n",
        "benchmark,sample\na/b,1\nyes,c d\n",
    ],
)
def test_a_name_map_is_json_yaml_or_csv(tmp_path: Path, text: str) -> None:
    assert name_files.read_name_map(written(tmp_path, text)) == {"a/b": "1", "yes": "c d"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b\na: c\n", "'a' occurs twice"),
        ("a: &x b\nc: *x\n", "with anchors"),
        ("a: [b]\n", "must map to one name"),
        ("a: b\n c: d\n", "not valid YAML"),
        ("a: !!python/object/apply:os.system [echo]\n", "must map to one name"),
        ("? [a]\n: b\nc: d", "not valid JSON"),
        ("a: " + "[" * 5000, "not valid YAML"),
        ("a,b\na,c\n", "'a' is already in another row"),
        ("a,b,c\n", ":1: a row of a name map must have two names, not 3"),
        ("a,b\nc,\n", ":2: a row of a name map must have two names, not 1"),
        ('a,b\n"c,d\n', "not valid CSV"),
        ("a: b\nc: b\n", "map to 'b' of the sample: 'a' and 'c'"),
    ],
)
def test_other_yaml_and_csv_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FormatError, match=said) as caught:
        name_files.read_name_map(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_yaml_without_its_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)  # type: ignore[arg-type]
    with pytest.raises(MissingExtra, match=r"sgsdump\[yaml\]"):
        name_files.read_name_map(written(tmp_path, "a: b\n"))
    assert name_files.read_name_map(written(tmp_path, "a,b\n")) == {"a": "b"}


def test_the_layer_mapping_is_the_vendors(shared: Path) -> None:
    found = name_files.read_layers(shared / "ascend/msprobe_dump/layer_mapping_pair/layer_mapping.yaml")
    assert list(found) == [
        "TopLayer", "VocabParallelEmbedding", "ParallelTransformerLayer", "ParallelAttention", "FusedRMSNorm",
    ]  # fmt: skip
    assert found["ParallelAttention"] == {"flash_attention_score": "core_attention_flash.npu_fusion_attention"}


def test_layer_mappings_as_json_and_bad_ones(tmp_path: Path) -> None:
    assert name_files.read_layers(written(tmp_path, '{"Cell": {"a": "b"}}')) == {"TopLayer": {"a": "b"}}
    for text, said in (
        ("a: b\n", "not a layer mapping"),
        ("a:\n  b..c: d\n", "empty part"),
        ("a: {}\n", "not a layer"),
    ):
        with pytest.raises(FormatError, match=said):
            name_files.read_layers(written(tmp_path, text))


def test_rules_are_applied_in_turn(tmp_path: Path) -> None:
    rules = name_files.read_rules(written(tmp_path, "# comment\n\n^npu_(\\w+) -> \\1\n  / ->\nx->y -> z\n"))
    assert name_files.renamed("npu_a/b", rules) == ("ab", rules[:2])
    assert name_files.renamed("x->y", rules) == ("z", rules[2:])
    assert name_files.renamed("other", rules) == ("other", ())
    assert name_files.renamed("npu_" + "a" * 1000, rules)[1] == ()
    assert name_files.renamed("ab", [name_files.rule_of("(?<=a)b=c")]) == ("ac", (name_files.rule_of("(?<=a)b=c"),))
    assert name_files.described(rules[:1]) == "rule ^npu_(\\w+) -> \\1"


@pytest.mark.parametrize("text", ["a", "=b", "(=b", "a=\\1", "a=\\g<x>", "a" * 2000 + "=b", "(?P<a>x)(?P<a>y)=b"])
def test_bad_rules_are_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="name rule") as caught:
        name_files.rule_of(text)
    assert "\n" not in str(caught.value)
    with pytest.raises(FormatError, match=":2:"):
        name_files.read_rules(written(tmp_path, "\n" + text.replace("=", " -> ") + "\n"))


@pytest.mark.parametrize("deep", ["[", "{", "- ", "a: {b: ", "? "])
def test_deep_yaml_is_refused_at_once(deep, tmp_path):
    """It took the square of its depth."""
    (tmp_path / "x").write_text("a:\n " + deep * 50_000)
    with pytest.raises(FormatError, match="not valid YAML"):
        name_files.read_layers(tmp_path / "x")


def test_attributes_of_a_graph_that_are_of_another_form_are_looked_over(tmp_path):
    names = {"key": "_datadump_original_op_names", "value": {"list": {"s": ["a"]}}}
    odd = [{"key": "_datadump_original_op_names", "value": "x"}, {"key": 3, "value": {"s": "y"}}, {"value": {}}]
    for attributes in ([*odd, names], [names, *odd]):
        op = {
            "name": "c",
            "attr": attributes,
            "output_desc": [{"attr": [{"key": "_datadump_origin_name", "value": 7}]}],
        }
        (tmp_path / "g.json").write_text(json.dumps({"graph": [{"op": [op]}]}))
        plain = {"name": "c", "attr": [names], "output_desc": [{"attr": []}]}
        (tmp_path / "h.json").write_text(json.dumps({"graph": [{"op": [plain]}]}))
        assert (
            operator_maps.read_ge_graph(tmp_path / "g.json") == operator_maps.read_ge_graph(tmp_path / "h.json") != []
        )


@pytest.mark.parametrize(
    ("row", "sound"),
    [
        ({"rt_layer": "r", "jit_node": "%a : x"}, True),
        ({"rt_layer": "r", "ge_op": "g", "id": 1}, True),
        ({"rt_layer": "r", "ge_op": "g", "id": 1, "fusion_op": "f"}, True),
        ({"rt_layer": "r", "ge_op": "g", "id": 1, "fusion_op": None}, True),
        ({"rt_layer": 3, "ge_op": "g", "id": 1}, False),
        ({"rt_layer": 3, "jit_node": "%a : x"}, False),
        ({"rt_layer": "r", "ge_op": "g", "id": 1, "fusion_op": 3}, False),
        ({"rt_layer": "r", "jit_node": "%a : x", "fusion_op": [1]}, False),
        ({"rt_layer": "r", "ge_op": "g"}, False),
        ({"rt_layer": "r", "ge_op": "g", "id": "1"}, False),
        ({"rt_layer": "r", "ge_op": "g", "id": True}, False),
        ({"rt_layer": "r", "ge_op": 3, "id": 1}, False),
        ({"rt_layer": "r"}, False),
    ],
)
def test_rows_of_mindie_s_files(tmp_path, row, sound):
    torch = [{"rt_layer": "r", "jit_node": "%b : x"}]
    engine = [{"rt_layer": "r", "ge_op": "h", "id": 2}]
    files = {tmp_path / "torch.json": torch, tmp_path / "engine.json": engine}
    for path, rows in files.items():
        path.write_text(json.dumps(rows))
    for path, rows in files.items():
        path.write_text(json.dumps([*rows, row]))
        if sound:
            assert operator_maps.read_mindie_map(*files)
        else:
            with pytest.raises(FormatError, match='needs the key "jit_node", or the keys "ge_op" and "id"'):
                operator_maps.read_mindie_map(*files)
        path.write_text(json.dumps(rows))


def test_an_origin_without_an_index_is_the_first_output(tmp_path):
    def links(*more):
        named = {"key": "_datadump_origin_name", "value": {"s": "o"}}
        op = {"name": "c", "attr": [], "output_desc": [{"attr": [named, *more]}]}
        (tmp_path / "g.json").write_text(json.dumps({"graph": [{"op": [op]}]}))
        return operator_maps.read_ge_graph(tmp_path / "g.json")

    first, second = ({"key": "_datadump_origin_output_index", "value": {"i": i}} for i in (0, 1))
    assert links() == links(first) != links(second)
