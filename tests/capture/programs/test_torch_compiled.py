"""Programs that torch.compile made run as they do alone, and a graph that a compiler got wrong is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_runs import plain, runner, values_of, write_program

from sgsdump.capture.programs.compiled_graphs import EPS, GraphRun, graph_notes
from sgsdump.capture.programs.control import Steps
from sgsdump.cli import main

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

# A back-end that computes another function: relu as abs.
WRONG = """
def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.abs
    graph.recompile()
    return graph.forward

"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("cache", torch.zeros(3, 8))

    def forward(self, x):
        x = torch.relu(self.first(x))
        self.cache[:2].add_(x)
        return self.last(self.cache[: x.shape[0]] + x)

class Broken(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        x = self.net(x)
        print(float(x.sum()) > 0)
        return 2 * x

net, x = Net().eval(), torch.ones(2, 8)
"""
RUN = """
with torch.no_grad():
    for step in range(3):
        print(made(x + step).double().sum().item())
"""
FORMS = {
    "a module": "made = torch.compile(net, backend='aot_eager')",
    "a function": "made = torch.compile(lambda x: net(x) * 3, backend='eager')",
    "in place, within another": "net.compile(backend='eager'); made = Broken(net)",
    "of several graphs": "made = torch.compile(Broken(net), backend='eager')",
}


@pytest.fixture
def run(tmp_path, capfd):
    return runner(tmp_path, capfd)


@pytest.mark.parametrize("form", FORMS)
def test_compiled_code_stays_and_is_seen_by_graph(run, tmp_path_factory, form):
    source = NET + FORMS[form] + RUN
    alone = plain(write_program(tmp_path_factory.mktemp("alone"), source))
    result = run(source, steps=Steps())
    assert result.text == alone.stdout and result.captured.status == 0 and result.captured.complete
    ran = [line for line in result.every() if line.get("event") == "operator" and "graph" in line["type"]]
    compared = [line for line in result.every() if line.get("event") == "graph"]
    assert [line["type"] for line in ran] == ["compiled.graph", "eager.graph"] * len(compared)
    assert {line["step"] for line in compared} == {0, 1, 2} and all(line.get("relative", 0) == 0 for line in compared)
    assert (len(compared) > 3) == (form == "of several graphs")
    for compiled, eager in zip(ran[::2], ran[1::2]):
        outputs = [result.lines(step=line["step"], op=line["op"], side="out", slot=0) for line in (compiled, eager)]
        values = [values_of(result.root / line["file"]) for found in outputs for line in found]
        np.testing.assert_array_equal(*(values or (0, 0)))  # one graph gives a number alone
    assert {wrong for wrong, _ in graph_notes(result.captured.processes)} == {False}


def test_a_wrong_compiler_gives_its_wrong_answer_and_is_named(run, tmp_path_factory, capfd):
    source = WRONG + NET + "made = torch.compile(net, backend=wrong)" + RUN
    alone = plain(write_program(tmp_path_factory.mktemp("alone"), source))
    right = plain(write_program(tmp_path_factory.mktemp("right"), source.replace("backend=wrong", "backend='eager'")))
    result = run(source, steps=Steps(((1, 1),)))
    assert result.text == alone.stdout != right.stdout
    ((wrong, note),) = graph_notes(result.captured.processes)
    assert wrong and note.startswith("graph_0 (") and "compiled by wrong; root, program.py:" in note
    capfd.readouterr()
    assert main(["check", str(result.root)]) == 1
    assert note in capfd.readouterr().out


def test_a_graph_that_draws_random_numbers_is_not_compared(run, tmp_path_factory):
    source = "torch.manual_seed(1); net, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout()), torch.ones(2, 8)\n"
    source += "made = torch.compile(net, backend='eager')" + RUN
    alone = plain(write_program(tmp_path_factory.mktemp("alone"), source))
    result = run(source, steps=Steps())
    assert result.text == alone.stdout
    ((wrong, note),) = graph_notes(result.captured.processes)
    assert not wrong and "random" in note


def test_a_program_that_trains_takes_the_same_steps(run, tmp_path_factory):
    source = """
import sys
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
made, x = torch.compile(net, backend="aot_eager"), torch.ones(2, 8)
optimiser = torch.optim.SGD(made.parameters(), 0.1)
for step in range(3):
    loss = made(x).square().sum()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(loss.item())
sys.exit(3)
"""
    alone = plain(write_program(tmp_path_factory.mktemp("alone"), source))
    result = run(source, steps=Steps())
    assert result.text == alone.stdout and result.captured.status == 3


def graph(**fields):
    facts = {"output": 0, "dtype": "float32", "relative": 0.0, "differing": 1, "elements": 100, **fields}
    return GraphRun("graph_0", "inductor", "root", 3, 0, **facts)


@given(st.sampled_from(sorted(EPS)), st.floats(0, 1))
def test_an_output_is_wrong_beyond_half_of_its_digits(dtype, relative):
    assert graph(dtype=dtype, relative=relative).is_wrong == (relative > EPS[dtype] ** 0.5)


def test_integers_and_what_is_not_finite():
    assert graph(relative=None).is_wrong
    assert not graph(relative=None, output=None).is_wrong
    assert not graph(relative=0.0, differing=0).is_wrong
    assert [graph(dtype="int64", relative=9.0, differing=n).is_wrong for n in (10, 11)] == [False, True]
    assert 3.4e-4 < EPS["float32"] ** 0.5 < 3.5e-4 and round(EPS["float16"] ** 0.5, 3) == 0.031
    assert round(EPS["bfloat16"] ** 0.5, 3) == 0.088
