"""Faults between two rounds, outside the modules, are told; what computes the same in another way is not."""

import json
import sys

import pytest
from torch_runs import plain, write_program

import sgsdump
from sgsdump.cli import main

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)

    def forward(self, ids):
        return self.head(self.embed(ids))

net, ids = Net().eval(), torch.tensor([[1], [2]])
"""
LOOP = """
with {}:
    for step in range(3):
        logits = net(ids)[:, -1]
        {}
        print(ids.flatten().tolist())
"""
GOOD = "ids = (logits / 0.7).softmax(-1).argmax(-1, keepdim=True)"


def tree_of(folder, name, sampling, mode="torch.no_grad()"):
    return captured(write_program(folder / name, NET + LOOP.format(mode, sampling)))


def captured(program):
    assert main([*"exec -q -er all -o".split(), str(program.parent), "--", sys.executable, str(program)]) == 0
    (tree,) = program.parent.glob("msit_dump_*")
    return tree


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return tree_of(tmp_path_factory.mktemp("good"), "good", GOOD)


@pytest.mark.parametrize(
    "sampling",
    [
        GOOD,
        "ids = (logits * (1 / 0.7)).softmax(-1).argmax(-1, keepdim=True)",
        "ids = (logits / 0.7).log_softmax(-1).argmax(-1, keepdim=True)",
        "ids = (logits / 0.7).softmax(-1).topk(1, -1).indices",
        "ids = logits.argmax(-1, keepdim=True)",
        "ids = (logits / torch.tensor(0.7)).softmax(-1).argmax(-1, keepdim=True)",
    ],
)
def test_other_ways_to_the_same_tokens_are_equal(tmp_path, good, sampling, capsys):
    tree = tree_of(tmp_path, "other", sampling)
    assert main(["compare", str(tree), str(good), "--fail-on", "cause"]) == 0
    assert "Runs compared: 3; different: 0." in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["torch.no_grad()", "torch.inference_mode()"])
def test_a_wrong_temperature_is_told_though_the_tokens_agree(tmp_path, good, mode, capsys):
    tree = tree_of(tmp_path, "bad", GOOD.replace("0.7", "1.7"), mode)
    assert main(["compare", str(tree), str(good), "--fail-on", "cause"]) == 1
    text = capsys.readouterr().out
    assert (
        "Cause: the first difference is between two rounds (calls of the model)" in text
        and "its argument 'other' is 1.7 in the sample and 0.7 in the benchmark" in text
    )
    assert "called at program.py:" in text and "Runs compared: 3; different: 2." in text


def test_another_value_of_a_mask_that_softmax_takes_away_is_no_fault(tmp_path, capsys):
    masked = "ids = logits.masked_fill(logits < 0, {}).softmax(-1).argmax(-1, keepdim=True)"
    trees = [tree_of(tmp_path, name, masked.format(value)) for name, value in (("a", -1e9), ("b", "-float('inf')"))]
    assert main(["compare", *map(str, trees), "--fail-on", "cause"]) == 0
    assert "different: 0." in capsys.readouterr().out


def test_inputs_that_differ_after_equal_rounds_are_told_with_what_ran_before(tmp_path, good, capsys):
    tree = tree_of(tmp_path, "bad", GOOD.replace("argmax", "argmin"))
    report = tmp_path / "report.json"
    assert main(["compare", str(tree), str(good), "--fail-on", "cause", "--json", str(report)]) == 1
    text = capsys.readouterr().out
    assert "all earlier rounds are equal, but inputs of this round differ" in text
    assert "aten.argmin (program.py" in text and "aten.argmax (program.py" in text
    second = json.loads((tmp_path / "report.step1-rank0.json").read_text())
    assert second["verdict"]["state"] == "differs" and second["verdict"]["cause"]["kind"] == "between rounds"


def test_the_program_runs_as_it_does_alone(tmp_path, capfd):
    """Modes of its own between rounds and around them, gradients, threads: the operators are left as they are."""
    own = """
from torch.utils._python_dispatch import TorchDispatchMode
import threading
class Count(TorchDispatchMode):
    seen = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Count.seen += 1
        return func(*args, **(kwargs or {}))
with torch.no_grad():
    net(ids)
    with Count():
        ids = ids + 1
        net(ids)
        (ids * 2).sum()
    ids = ids + 1
    net(ids)
thread = threading.Thread(target=lambda: print(net(ids).sum().item()))
thread.start()
thread.join()
net(ids).sum().backward()
print(Count.seen > 2, net.head.weight.grad.sum().item())
"""
    program = write_program(tmp_path, NET + own)
    alone = plain(program).stdout
    capfd.readouterr()
    tree = captured(program)
    assert capfd.readouterr().out == alone
    before = [sgsdump.open_dump(f"{tree}@step={step}").before() for step in range(5)]
    assert [[operator.kind for operator in operators] for operators in before[:3]] == [
        [],
        ["aten.add"],
        ["aten.mul", "aten.sum", "aten.add"],
    ]
    assert before[3:] == [(), ()]
