"""A compiled program against the same one run operator by operator: what goes in and comes out is compared."""

import sys

import pytest
from torch_runs import write_program

import sgsdump
from sgsdump.cli import main

pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

NET = """
class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down({}(self.up(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.mlp, self.head = Mlp(), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.mlp(x) + x)

net = Net().eval()
"""
RUN = """
with torch.no_grad():
    print(net(torch.ones(2, 8)).sum().item())
"""
ALL = "net = torch.compile(net, backend='eager')"
WHOLE = {
    "a module": ALL,
    "in place": "net.compile(backend='eager')",
    "its forward": "net.forward = torch.compile(net.forward, backend='eager')",
}
PART = {
    "a module": "net.mlp = torch.compile(net.mlp, backend='eager')",
    "in place": "net.mlp.compile(backend='eager')",
    "its forward": "net.mlp.forward = torch.compile(net.mlp.forward, backend='eager')",
}


def tree_of(folder, name, compiled="", activation="torch.relu", words=()):
    program = write_program(folder / name, NET.format(activation) + compiled + RUN)
    words = ["exec", "-q", *words, "-o", str(program.parent), "--", sys.executable, str(program)]
    assert main(words) == 0
    (tree,) = program.parent.glob("msit_dump_*")
    return tree


@pytest.fixture(scope="module")
def eager(tmp_path_factory):
    return tree_of(tmp_path_factory.mktemp("eager"), "eager")


def left_out(comparison):
    """What was left out that is inside no compiled graph."""
    return [one for one in comparison.account.left_out if not one.compiled]


@pytest.mark.parametrize("form", WHOLE)
@pytest.mark.parametrize("is_sample", [True, False])
def test_what_the_network_takes_and_gives_is_compared(tmp_path, eager, form, is_sample):
    tree = tree_of(tmp_path, "compiled", WHOLE[form])
    comparison = sgsdump.compare(*((tree, eager) if is_sample else (eager, tree)))
    assert sorted((row.io, row.error) for row in comparison) == [("in", 0.0), ("out", 0.0)]
    assert comparison.verdict().state == "equal" and comparison.is_complete and not left_out(comparison)
    side = "sample" if is_sample else "benchmark"
    reasons = {one.reason for one in comparison.account.left_out}
    advice = "capture that program again with sgsdump exec --inside eager to compare its inner tensors"
    assert f"inside a compiled graph of the {side}; {advice}" in reasons


@pytest.mark.parametrize("form", PART)
def test_everything_outside_a_compiled_part_is_compared(tmp_path, eager, form):
    comparison = sgsdump.compare(tree_of(tmp_path, "compiled", PART[form]), eager)
    names = {row.name for row in comparison}
    assert {"0_mlp/input.0", "0_mlp/output.0", "1_add/output.0", "2_head/1_addmm/output.0"} <= names
    assert not any(name.startswith("0_mlp/0") for name in names)
    assert comparison.verdict().state == "equal" and comparison.is_complete and not left_out(comparison)


def test_a_function_beside_other_operators_leaves_these_comparable(tmp_path, eager):
    part = "act = torch.compile(lambda x: torch.relu(x), backend='eager')"
    comparison = sgsdump.compare(tree_of(tmp_path, "compiled", part, "act"), eager)
    names = {row.name for row in comparison}
    assert "0_mlp/2_down/1_addmm/output.0" in names and "0_mlp/1_relu/output.0" not in names
    assert comparison.verdict().state == "equal" and not left_out(comparison)


@pytest.mark.parametrize("compiled", [ALL, PART["a module"]])
def test_with_inside_eager_everything_is_compared(tmp_path, eager, compiled):
    comparison = sgsdump.compare(tree_of(tmp_path, "again", compiled, words=["--inside", "eager"]), eager)
    assert len(comparison) == comparison.of == len(sgsdump.compare(eager, eager))
    assert comparison.verdict().state == "equal" and not comparison.account.left_out


def test_two_ways_of_cutting_into_graphs_are_compared_by_what_goes_in_and_out(tmp_path):
    cut = "(lambda x: [torch.relu(x), print(end='')][0])"
    trees = [tree_of(tmp_path, "one", ALL), tree_of(tmp_path, "several", ALL, cut)]
    comparison = sgsdump.compare(*trees)
    assert [row.error for row in comparison] == [0.0, 0.0] and not left_out(comparison)


def test_an_error_inside_a_graph_is_blamed_on_no_module(tmp_path, eager, capsys):
    tree = tree_of(tmp_path, "wrong", ALL, "torch.sigmoid")
    assert main(["compare", str(tree), str(eager), "--fail-on", "cause"]) == 1
    text = capsys.readouterr().out
    assert (
        "Cause: an operator inside the compiled graph that computes 2_head/output.0" in text
        and "--inside eager" in text
    )


def test_a_compiled_function_around_the_network_is_not_comparable(tmp_path, eager, capsys):
    tree = tree_of(tmp_path, "function", "inner = net; net = torch.compile(lambda x: 2 * inner(x), backend='eager')")
    assert main(["compare", str(tree), str(eager)]) == 2
    assert "--inside eager" in capsys.readouterr().err
