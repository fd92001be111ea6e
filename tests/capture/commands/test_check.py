"""``sgsdump check``: a program's operators judged alone, as a user runs it."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from hooked_programs import sgsdump, trees
from json_documents import checked

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

NET = """
import sys
import torch
from torch import nn

dtype = getattr(torch, sys.argv[1])

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 8)

    def forward(self, x):
        x = self.norm(torch.relu(self.first(x)))
        x = x + torch.rand_like(x)
        if "overflow" in sys.argv:
            x = (x * 3e4).exp() if "inf" in sys.argv else x * 6e4
        return self.last(x.softmax(-1) if "overflow" not in sys.argv else x)

torch.manual_seed(0)
net, x = Net().to(dtype).eval(), torch.randn(4, 32).to(dtype)
if "wrong" in sys.argv:  # as a compiler or an accelerator might
    library = torch.library.Library("aten", "IMPL")
    library.impl("relu", torch.abs, "CPU")
with torch.no_grad():
    net(x)
"""


@pytest.fixture
def dumped(tmp_path):
    def dump(*arguments, options=()):
        path = tmp_path / "net.py"
        path.write_text(NET)
        done = sgsdump("exec", *options, "--", sys.executable, path, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return trees(tmp_path)[0]

    return dump


def check(tree, *options):
    done = sgsdump("check", tree, *options, cwd=tree.parent)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_healthy_run_and_what_is_not_judged(dumped, dtype):
    tree = dumped(dtype)
    status, said, _ = check(tree, "--json", "check.json", "--junit", "check.xml")
    assert status == 0, said
    assert "outside the bound: 0; not checked: 1." in said
    assert "Not judged, random: 1 (aten.rand_like)" in said
    (run,) = checked(tree.parent / "check.json")["runs"]
    assert {judged["kind"] for judged in run["judged"]} >= {"aten.addmm", "aten.native_layer_norm", "aten._softmax"}
    assert [finding["kind"] for finding in run["findings"]] == ["not judged"]
    suite = ET.parse(tree.parent / "check.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")


def test_a_kernel_that_computes_something_else_is_named_in_one_run(dumped):
    tree = dumped("bfloat16", "wrong")
    status, said, _ = check(tree, "--json", "check.json", "--junit", "check.xml")
    assert status == 1
    assert said.startswith("First operator outside its rounding bound: 1_relu/output.0 (aten.relu), called at net.py:")
    (run,) = checked(tree.parent / "check.json")["runs"]
    finding = run["findings"][0]
    assert (finding["kind"], finding["evidence"], finding["names"]) == ("outside", "measured", ["1_relu/output.0"])
    assert finding["figures"]["reference"] == 0 < finding["figures"]["value"]
    failed = ET.parse(tree.parent / "check.xml").getroot().findall(".//failure/..")
    assert [case.get("name") for case in failed] == ["1_relu/output.0"]


def test_the_first_overflow_and_the_first_infinity(dumped):
    status, said, _ = check(dumped("float16", "overflow"))
    assert status == 0
    assert re.search(
        r"The first operator that overflowed is 5_mul/output.0 \(aten.mul\), called at net.py:\d+: "
        r"the exact result exceeds the range of float16.",
        said,
    )
    assert "from finite inputs" not in said.partition("The first operator that overflowed")[0]


ONNX = """
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in (("w", (8, 8)), ("b", (8,)))]
nodes = [
    helper.make_node("Gemm", ["x", "w", "b"], ["g"]),
    helper.make_node("Relu", ["g"], ["r"]),
    helper.make_node("Softmax", ["r"], ["y"], axis=-1),
]
info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in "xy"]
graph = helper.make_graph(nodes, "net", info[:1], info[1:], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
open("net.onnx", "wb").write(model.SerializeToString())
session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
for _ in range(2):
    session.run(None, {"x": rng.normal(size=(2, 8)).astype(np.float32)})
"""


def test_models_that_ran_with_onnxruntime(tmp_path):
    (tmp_path / "infer.py").write_text(ONNX)
    done = sgsdump("exec", "-er", "all", "--", sys.executable, "infer.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    status, said, _ = check(trees(tmp_path)[0])
    assert status == 0, said
    assert said.count("Operators checked against their rounding bound: 3; outside the bound: 0; not checked: 0.") == 2


def test_statistics_alone_cannot_be_judged(dumped):
    status, _, error = check(dumped("float32", options=("--type", "model", "tensor", "stats")))
    assert status == 2
    assert error.count("\n") == 1
    assert "no operator can be judged" in error
    assert "values are missing from the dump" in error


def test_what_is_no_tree(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in ("empty", "absent"):
        done = sgsdump("check", path, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_without_torch_one_line(dumped):
    tree = dumped("float32")
    program = "import sys; sys.modules['torch'] = None; from sgsdump.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", program, "check", tree], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.strip().endswith("needs torch: pip install 'sgsdump[torch]'")
