"""Writes in place are edges of the dataflow: what is read of a memory was made by those who wrote into it."""

import sys

import pytest
from hooked_programs import sgsdump, trees

from sgsdump import open_dump
from sgsdump.comparison.naming.network import nodes_of

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

CACHE = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        cache = torch.zeros(4, 8)
        cache[:2].copy_(x)
        cache[2:].mul_(2.0)
        return cache.relu()

with torch.no_grad():
    Net()(torch.ones(2, 8))
"""


def test_what_reads_a_memory_comes_after_who_wrote_into_it(tmp_path):
    (tmp_path / "net.py").write_text(CACHE)
    done = sgsdump("exec", "--", sys.executable, "net.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    dump = open_dump(trees(tmp_path)[0])
    nodes = nodes_of(dump, dump.network())
    made_by = {node.word: [maker and maker.word for maker in nodes.feeding[node.place]] for node in nodes}
    assert made_by["aten.relu"] == ["aten.mul_"]
    second = [node for node in nodes if node.word == "aten.slice"][1]
    assert [maker.word for maker in nodes.feeding[second.place]] == ["aten.copy_"]
    (relu,) = (node for node in nodes if node.word == "aten.relu")
    writers = {node.values["out", 0] for node in nodes if node.word in ("aten.copy_", "aten.mul_")}
    assert writers <= set(relu.parts["in", 0])
