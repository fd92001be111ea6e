"""``sgsdump exec`` of a torch program: what a configuration, a seed and a topology mean there."""

import json
import sys

import onnx
import pytest
from hooked_programs import sgsdump, trees

from sgsdump import open_dump

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

DECODER = """
import sys
import torch

class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.head = torch.nn.Linear(4, 10)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.head(x[-1])

if "seeded" not in sys.argv:
    torch.manual_seed(0)
model, tokens = Decoder().eval(), [1, 2, 3]
with torch.no_grad():
    for _ in range(3):
        tokens.append(int(model(torch.tensor(tokens)).argmax()))
print(tokens, float(model.head.weight.sum()))
"""


@pytest.fixture
def decoder(tmp_path):
    path = tmp_path / "code" / "infer.py"
    path.parent.mkdir()
    path.write_text(DECODER)
    return path


def names(tree, **choice):
    return [record.name for record in open_dump(tree, **choice).records]


def test_the_topology_is_that_of_the_modules(tmp_path, decoder):
    done = sgsdump("exec", "--type", "onnx", "tensor", "--", sys.executable, decoder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tree,) = trees(tmp_path)
    (path,) = tree.glob("model/*/Decoder.json")
    model = json.loads(path.read_text())
    assert len(model["inTensors"]) == len(model["outTensors"]) == 1
    assert sorted(model["weightTensors"]) == [
        *("root.embedding.weight", "root.head.bias", "root.head.weight", "root.layers.0.bias"),
        *("root.layers.0.weight", "root.layers.1.bias", "root.layers.1.weight"),
    ]
    assert [node["opType"] for node in model["nodes"] if "nodes" in node] == ["Embedding", "Linear", "Linear", "Linear"]
    graph = onnx.load(path.with_suffix(".onnx"))
    onnx.checker.check_model(graph)
    made = {name for node in graph.graph.node for name in node.output}
    given = {info.name for info in graph.graph.input}
    assert all(name in made | given for node in graph.graph.node for name in node.input)
    assert graph.graph.output[0].type.tensor_type.shape.dim[0].dim_value == 10


def test_acl_json_chooses_models_and_their_operators_by_name(tmp_path, decoder):
    config = tmp_path / "acl.json"
    entries = [{"model_name": "Decoder", "layer": ["head"]}, {"model_name": "Encoder"}]
    config.write_text(json.dumps({"dump": {"dump_path": ".", "dump_list": entries, "dump_mode": "all"}}))
    done = sgsdump("exec", "-config", config, "--", sys.executable, decoder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tree,) = trees(tmp_path)
    found = names(tree, step=2)
    assert [name.rpartition("_")[2] for name in found] == ["head/input.0", "head/output.0"]


def test_a_seed_starts_every_generator_and_without_one_nothing_is_touched(tmp_path, decoder):
    def printed(*options):
        words = ["exec", "-o", "dumps", *options, "--", sys.executable, decoder, "seeded"]
        return sgsdump(*words, cwd=tmp_path).stdout

    assert printed("-seed", "7") == printed("-seed", "7") != printed("-seed")
    assert printed("-seed") == printed("-seed", "2024")
    assert printed() != printed()


def test_layers_first_then_what_is_inside_one(tmp_path, decoder):
    sgsdump("exec", "-child", "False", "--", sys.executable, decoder, cwd=tmp_path)
    (tree,) = trees(tmp_path)
    operators = list(dict.fromkeys(name.partition("/")[0] for name in names(tree)))
    assert all(name.count("/") == 1 for name in names(tree))
    (number,) = (name.partition("_")[0] for name in operators if name.endswith("layers.1"))
    sgsdump("exec", "-o", "inside", "-ids", number, "--", sys.executable, decoder, cwd=tmp_path)
    (tree,) = trees(tmp_path / "inside")
    inside = names(tree)
    assert {name.partition("/")[0] for name in inside} == {f"{number}_layers.1"}
    assert any("addmm" in name for name in inside)


def test_one_line_says_that_more_rounds_ran_than_were_dumped(tmp_path, decoder):
    def told(*options):
        done = sgsdump("exec", "-o", "dumps", *options, "--", sys.executable, decoder, cwd=tmp_path)
        return [line for line in done.stderr.splitlines() if "-er all dumps" in line]

    assert told() == [
        "sgsdump: the program ran 3 steps; 1 was dumped. -er all dumps every step, -er A,B the steps from A to B"
    ]
    assert told("-er", "all") == []
