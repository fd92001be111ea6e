"""The line of the program that calls each operator and module: in the index, the verdict, JSON and the report."""

import json

import pytest
from torch_runs import runner
from verdict_words import sentences

from sgsdump import compare, open_dump
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.reports.comparison.data import render_json
from sgsdump.reports.html.document import render
from sgsdump.reports.report import report_of

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)                   # line 10
        x = torch.nn.functional.gelu(       # line 11
            x
        )
        for _ in range(2):
            x = x.sin() + x                 # line 15
        return torch.softmax(
            self.second(x), -1)             # line 17
"""
PROGRAM = """
import sys
import torch
from parts.model import Model
torch.manual_seed(0)
net = Model().eval()
if len(sys.argv) > 1:
    net.second.forward = lambda x: torch.addmm(net.second.bias, x, net.second.weight.T * 1.01)
with torch.no_grad():
    net(torch.ones(2, 4))
"""


@pytest.fixture
def dumps(tmp_path, capfd):
    folder = tmp_path / "program"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "model.py").write_text(MODEL)
    (folder / "main.py").write_text(PROGRAM)
    run = runner(tmp_path, capfd)
    return {word: open_dump(run(folder / "main.py", *word.split(), layout="rounds").root) for word in ("", "wrong")}


def test_each_operator_has_its_line_and_reports_say_it(dumps):
    found = {(operator.kind, operator.source) for operator in dumps[""].network().values()}
    assert found == {
        ("Linear", "parts/model.py:10"),
        ("aten.t", "parts/model.py:10"),
        ("aten.addmm", "parts/model.py:10"),
        ("aten.gelu", "parts/model.py:11"),
        ("aten.sin", "parts/model.py:15"),
        ("aten.add", "parts/model.py:15"),
        ("Linear", "parts/model.py:17"),
        ("aten.t", "parts/model.py:17"),
        ("aten.addmm", "parts/model.py:17"),
        ("aten._softmax", "parts/model.py:16"),
    }
    comparison = compare(dumps["wrong"], dumps[""])
    assert "called at main.py:8" in " ".join(sentences(comparison))
    document = json.loads(render_json(comparison, DOCUMENTED))
    assert any(finding["facts"].get("source") == "main.py:8" for finding in document["findings"])
    lines = {row["op_type"]: row["source"] for row in document["rows"]}
    assert lines["gelu"] == "parts/model.py:11"
    assert "parts/model.py:11" in render(report_of(comparison))
