"""Pairs that mapping files of operators, layer mappings and rules make; what is ambiguous has no partner."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgsdump
from sgsdump.comparison.naming.name_sources import NameSources, read_name_sources
from sgsdump.comparison.naming.pairs_by_map import pairs_by_map
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError, FormatError
from sgsdump.tensors.tensor import Tensor

GE = {
    "fused": [("conv1_relu", 0)],
    "split": [("chunk", 0), ("chunk", 1)],
    "twice_a": [("both", 0)],
    "twice_b": [("both", 0)],
}


def dump(*names: str | tuple[str, int]) -> Dump:
    array = np.arange(8, dtype=np.float32)
    places = [(name, 0) if isinstance(name, str) else name for name in names]
    return Dump([Record("out", slot, i, "OP", Tensor.of(name, array)) for i, (name, slot) in enumerate(places)])


def compared(sample: Dump, benchmark: Dump, names: NameSources) -> tuple[list, dict, dict]:
    found = sgsdump.compare(sample, benchmark, name_map=names)
    left = [{u.record.name: u.reason for u in side} for side in (found.only_in_sample, found.only_in_benchmark)]
    return [(r.sample_name, r.name, r.paired) for r in found.rows], *left


def written(tmp_path: Path, *texts: Any) -> list[Path]:
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"file{number}"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        paths.append(path)
    return paths


def ge_file(outputs: dict[str, list[tuple[str, int]]]) -> dict[str, Any]:
    def output(origin: str, index: int) -> dict[str, Any]:
        name = {"key": "_datadump_origin_name", "value": {"s": origin}}
        return {"attr": [name, {"key": "_datadump_origin_output_index", "value": {"i": index}}]}

    operators = [{"name": name, "output_desc": [output(*o) for o in origins]} for name, origins in outputs.items()]
    return {"graph": [{"name": "g", "op": operators}]}


def test_operators_of_a_ge_graph_are_found_in_either_dump(tmp_path: Path) -> None:
    names = read_name_sources(written(tmp_path, ge_file(GE)))
    ours = dump("fused:output:0", ("split:output:0", 0), ("split:output:1", 1), "other")
    theirs = dump("conv1/relu:0", ("chunk", 0), ("chunk.1.1700000000000000", 0), "other")
    pairs, left, right = compared(ours, theirs, names)
    assert pairs == [
        ("fused:output:0", "conv1/relu:0", "GE graph OneToOne"),
        ("split:output:0", "chunk", "GE graph OneToOne"),
        ("split:output:1", "chunk.1.1700000000000000", "GE graph OneToOne"),
        ("other", "other", "name"),
    ]
    assert not left and not right
    # The framework's run may be the sample just as well.
    assert [(b, a) for a, b, _ in compared(theirs, ours, names)[0]] == [(a, b) for a, b, _ in pairs]


def test_what_several_operators_claim_is_nobodys(tmp_path: Path) -> None:
    names = read_name_sources(written(tmp_path, ge_file(GE)))
    pairs, ours, theirs = compared(dump("twice_a", "twice_b", "fused"), dump("both", "conv1_relu"), names)
    assert [pair[:2] for pair in pairs] == [("fused", "conv1_relu")]
    assert (
        theirs["both"]
        == "ambiguous: GE graph OneToMulti would pair this tensor with 'twice_a', 'twice_b' of the sample"
    )
    assert ours["twice_a"] == (
        "ambiguous: GE graph OneToMulti would pair this tensor with 'both' of the benchmark, "
        "which also matches other tensors"
    )
    # Two tensors that may both be the operator's output.
    pairs, ours, theirs = compared(dump("fused"), dump("conv1_relu", "conv1_relu:0"), names)
    assert not pairs and "'conv1_relu', 'conv1_relu:0' of the benchmark" in ours["fused"]


def test_an_end_that_is_missing_is_told_unless_names_pair_the_other(tmp_path: Path) -> None:
    names = read_name_sources(written(tmp_path, ge_file(GE)))
    pairs, ours, _ = compared(dump("fused", "chunk"), dump("chunk"), names)
    assert pairs == [("chunk", "chunk", "name")]
    assert ours["fused"] == "the GE graph OneToOne pairs it with 'conv1_relu', which the benchmark does not have"
    with pytest.raises(ConfigError, match=r"names no operator .*belongs to this model"):
        compared(dump("a"), dump("a"), names)


def test_a_genuine_fusion_file_pairs_what_the_vendors_tool_pairs(shared: Path) -> None:
    folder = shared / "ascend" / "ge_dump" / "compare"
    ours, golden = sgsdump.open_dump(folder / "my"), sgsdump.open_dump(folder / "golden_npy")
    found = sgsdump.compare(ours, golden, name_map=read_name_sources([folder / "fusion.json"]))
    (listed,) = (folder / "result_map_only").glob("mapping_*.csv")
    with open(listed, newline="") as file:
        theirs = {row["TensorIndex"]: Path(row["GroundTruthPath"]).stem for row in csv.DictReader(file)}
    assert {row.sample_name: row.name for row in found.rows} == {
        name: golden for name, golden in theirs.items() if ":output:" in name
    }
    rows = {row.sample_name: row for row in found.rows}
    assert rows["conv1conv1_relu:output:0"].paired == "GE graph MultiToOne"
    assert rows["fc:output:0"].paired == "GE graph OneToOne" and f"{rows['fc:output:0'].cos:.6f}" == "0.953620"


def test_mindies_files_pair_the_end_of_a_fused_chain(shared: Path) -> None:
    folder = shared / "ascend" / "op_mapping"
    names = read_name_sources([folder / "mindie_torch_op_mapping.json", folder / "mindie_rt_op_mapping.json"])
    for theirs in ("layer1.0.relu", "968", "Module.layer1.0.relu.ReLU.forward.0.output.0"):
        pairs, *_ = compared(dump("Conv2D_5Relu_8:output:0"), dump("layer1.0.conv1", theirs), names)
        assert pairs == [("Conv2D_5Relu_8:output:0", theirs, "MindIE map")]
    pairs, ours, _ = compared(dump("Conv2D_5Relu_8"), dump("layer1.0.relu", "968"), names)
    assert not pairs and ours["Conv2D_5Relu_8"].startswith("ambiguous")


def test_the_surest_source_goes_first(tmp_path: Path) -> None:
    files = written(tmp_path, ge_file({"a": [("x", 0)], "b": [("y", 0)]}), "z,a\n", "^ -> new_\n")
    names = read_name_sources(files, ["b$=y2"])
    pairs, *_ = compared(dump("a", "b", "c", "d"), dump("x", "y", "z", "new_c", "d", "new_d"), names)
    assert pairs == [
        ("b", "y", "GE graph OneToOne"),
        ("a", "z", "map"),
        ("c", "new_c", "rule ^ -> new_"),
        ("d", "new_d", "rule ^ -> new_"),
    ]


def test_a_rules_file_may_begin_with_an_empty_replacement(tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_text("# the other tool's prefix\n^npu_ ->\n")
    names = read_name_sources([tmp_path / "rules.txt"])
    assert [rule.text for rule in names.rules] == ["^npu_ ->"]


def test_rules_say_what_they_made() -> None:
    names = read_name_sources(rules=["^npu_=", "/=."])
    pairs, ours, _ = compared(dump("npu_a", "npu_b/c", "npu_d", "e"), dump("a", "b.c", "e"), names)
    assert pairs == [
        ("npu_a", "a", "rule ^npu_="),
        ("npu_b/c", "b.c", "rules ^npu_= then /=."),
        ("e", "e", "name"),
    ]
    assert ours == {"npu_d": "rule ^npu_= turns the name into 'd', which is not in the benchmark"}
    with pytest.raises(ConfigError, match="matches no name of the sample"):
        compared(dump("a"), dump("a"), read_name_sources(rules=["x=y"]))


def test_two_names_that_a_rule_makes_alike_have_no_partner() -> None:
    names = read_name_sources(rules=[r"\d="])
    pairs, ours, theirs = compared(dump("a1", "a2", "b1", "b"), dump("a", "b"), names)
    assert not pairs
    assert "with 'a1', 'a2' of the sample" in theirs["a"] and "with 'b1', 'b' of the sample" in theirs["b"]
    assert all(reason.startswith("ambiguous") for reason in ours.values())


def test_the_vendors_layer_mapping_pairs_its_two_dumps(shared: Path) -> None:
    folder = shared / "ascend" / "msprobe_dump" / "layer_mapping_pair"
    ours, theirs = (sgsdump.open_dump(folder / name) for name in ("mindspore_data", "pytorch_data"))
    names = read_name_sources([folder / "layer_mapping.yaml"])
    given = pairs_by_map(ours, theirs, names, inputs=True)
    found = {pair.sample.name: (pair.benchmark.name, pair.how, pair.note) for pair in given.pairs}
    embedding = "language_model.embedding.word_embeddings.VocabParallelEmbedding.forward.0.output.0"
    layer = "language_model.encoder.layers.0"
    for one, other in {
        f"Cell.network_with_loss.module.{embedding}": f"Module.module.module.{embedding}",
        "Mint.logical_or.0.forward.output.0": "Tensor.__or__.0.forward.output.0",
        "Distributed.all_reduce.0.forward.output.0": "Distributed.all_reduce.0.forward.output.0",
        "Primitive.norm.RmsNorm.0.forward.output.1": "NPU.npu_rms_norm.0.forward.output.1",
        "Functional.flash_attention_score.0.forward.output.0": "NPU.npu_fusion_attention.0.forward.output.0",
        "Functional.flash_attention_score.0.backward.output.2": "NPU.npu_fusion_attention.0.backward.output.2",
        "Mint.cos.0.forward.output.0": "Torch.cos.0.forward.output.0",
        f"Cell.network_with_loss.module.{layer}.attention.ParallelAttention.forward.0.output.0": (
            f"Module.module.module.{layer}.self_attention.ParallelAttention.forward.0.output.0"
        ),
    }.items():
        assert found[one] == (other, "layer mapping", "")
    # the vendor's own test expects these partners of the operators, and none for the others
    operators = {name.partition("ward")[0]: other.partition("ward")[0] for name, (other, _, _) in found.items()}
    without = {
        "Tensor.__add__.0.for",
        "Tensor.__bool__.1.for",
        f"Cell.network_with_loss.module.{layer}.input_norm.FusedRMSNorm.back",
    }
    assert not without & operators.keys()
    assert {record.name.partition("ward")[0] for record in ours.records} - without == operators.keys()
    # what MindSpore's own __getitem__ adds is not what the user's code adds: the first of these is call 1
    note = "1 calls here in sample, 2 in benchmark"
    added = "Tensor.__add__.{}.forward.output.0"
    assert found[added.format(1)] == (added.format(0), "layer mapping", note)
    assert added.format(0) not in found
    comparison = sgsdump.compare(ours, theirs, name_map=names)
    reasons = {one.record.name: one.reason for one in comparison.only_in_sample}
    assert reasons[added.format(0)] == (
        "the layer mapping leads to __getitem__.__add__, of which the benchmark has no call"
    )


def test_a_layer_mapping_is_for_msprobe(tmp_path: Path) -> None:
    names = read_name_sources(written(tmp_path, "TopLayer:\n  a: b\n"))
    with pytest.raises(ConfigError, match="requires msprobe dumps"):
        compared(dump("a"), dump("a"), names)


def test_files_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'x' or 'b' is already in an earlier name map"):
        read_name_sources(written(tmp_path, "x,a\n", "x,b\n"))
    with pytest.raises(ConfigError, match="'y' or 'a' is already in an earlier"):
        read_name_sources(written(tmp_path, "x,a\n", "y,a\n"))
    with pytest.raises(ConfigError, match="second layer mapping"):
        read_name_sources(written(tmp_path, *["A:\n  a: b\n"] * 2))
    with pytest.raises(FormatError, match="a name map is"):
        read_name_sources(written(tmp_path, "[1]"))
    assert read_name_sources(written(tmp_path, "x,a\n", {"x": "a", "y": "b"})).names == {"x": "a", "y": "b"}
