"""A program that is fed the inputs of a reference: in each round, or one module alone; and what does not fit."""

import numpy as np
import pytest
from hooked_programs import sgsdump, trees
from verdict_words import sentences

from sgsdump import DumpControl, capture, compare, open_dump
from sgsdump.capture.programs.control import OperatorFilter
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import ConfigError

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
        self.head = torch.nn.Linear(8, 50)

    def forward(self, batch):
        x = self.embedding(batch["tokens"])
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.head(x[-1])


def generate(net, rounds=4, first=(1, 2, 3)):
    tokens, given = list(first), []
    with torch.no_grad():
        for _ in range(rounds):
            batch = {"tokens": torch.tensor(tokens)}
            tokens.append(int(net(batch).argmax()))
            given.append(batch["tokens"])
    return tokens, given


def wrong():
    """Layers 0 and 2 are wrong."""
    net = Decoder().eval()
    for index in (0, 2):
        net.layers[index].forward = lambda x, layer=net.layers[index]: -2 * torch.nn.functional.linear(x, layer.weight)
    return net


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference") / "tree"
    with capture(folder):
        generate(Decoder().eval())
    return folder


def inputs(dump):
    return [record.tensor.stored() for record in dump.records if record.name == "0_embedding/input.0"]


def test_each_round_has_the_reference_s_tokens_and_the_program_keeps_its_own(tmp_path, reference):
    own, _ = generate(wrong())
    with capture(tmp_path / "alone"):
        generate(wrong())
    assert compare(f"{tmp_path}/alone@step=3", f"{reference}@step=3").environment
    with capture(tmp_path / "fed", feed=reference):
        tokens, tensors = generate(wrong())
    assert [list(map(int, tensor)) for tensor in tensors] == [tokens[: len(tensor)] for tensor in tensors]
    for step in range(4):
        fed, expected = (open_dump(f"{tree}@step={step}") for tree in (tmp_path / "fed", reference))
        assert np.array_equal(inputs(fed)[0], inputs(expected)[0])
        first = compare(fed, expected).causes[0]
        assert first.layer.startswith("1_layers.0/")
    assert own[:3] == tokens[:3]


def test_one_module_alone_is_proven_wrong_or_right(tmp_path, reference):
    for module, is_wrong in (("layers.1", False), ("layers.2", True)):
        control = DumpControl(operators=OperatorFilter(module=module))
        with capture(tmp_path / module, control, feed=reference):
            generate(wrong())
        comparison = compare(f"{tmp_path / module}@step=2", f"{reference}@step=2")
        assert {row.module for row in comparison} == {module}
        assert bool(comparison.worst.error) == is_wrong
        assert [row.error for row in comparison if row.io == "in" and row.op_type == module] == [0.0]
        assert "fed inputs of " + module in " ".join(sentences(comparison))
        assert not any("INCOMPLETE" in line or "issing" in line for line in sentences(comparison))


@pytest.mark.parametrize(
    ("rounds", "first", "why"),
    [
        (4, (1, 2), r"round 0: input 0 is int64\[2\] in the program, int64\[3\] in the reference"),
        (5, (1, 2, 3), "the reference has no round 4; available: rounds 0 to 3"),
        (
            2,
            (1, 2, 3),
            r"ran 2 rounds \(calls of the outermost module\), so rounds 2 to 3 of the reference were not used",
        ),
    ],
)
def test_what_does_not_fit(tmp_path, reference, rounds, first, why):
    with pytest.raises(ConfigError, match=why), capture(tmp_path / "fed", feed=reference):
        generate(wrong(), rounds, first)


def test_a_type_that_does_not_fit_and_one_that_is_rounded(tmp_path):
    class Net(torch.nn.Module):
        def forward(self, x, scale=None):
            return x * 2 + scale

    net = Net()
    with capture(tmp_path / "floats"):
        net(torch.full((2,), 1 / 3), scale=torch.ones(1))
    with (
        pytest.warns(UserWarning, match="are converted to torch.float16 from the reference"),
        capture(tmp_path / "halves", feed=tmp_path / "floats"),
    ):
        assert float(net(torch.zeros(2).half(), scale=torch.zeros(1))[0]) == 2 * float(torch.tensor(1 / 3).half()) + 1
    with (
        pytest.raises(ConfigError, match=r"is int64\[2\] in the program, float32\[2\]"),
        capture(tmp_path / "whole", feed=tmp_path / "floats"),
    ):
        net(torch.zeros(2).long(), scale=torch.zeros(1))
    with (
        pytest.raises(ConfigError, match="passes 1 tensors, the reference 2"),
        capture(tmp_path / "one", feed=tmp_path / "floats"),
    ):
        net(torch.zeros(2), scale=1)


def test_references_that_cannot_feed(tmp_path, reference):
    with (
        pytest.raises(ConfigError, match=r"no module 'layers.7' ran; similar names: layers\."),
        capture(tmp_path / "a", DumpControl(operators=OperatorFilter(module="layers.7")), feed=reference),
    ):
        pass
    with capture(tmp_path / "statistics", statistics=True):
        generate(wrong(), 1)
    with (
        pytest.raises(ConfigError, match="was not dumped with its values"),
        capture(tmp_path / "b", feed=tmp_path / "statistics"),
    ):
        pass
    (tmp_path / "other.npy").write_bytes(b"")
    np.save(tmp_path / "other.npy", np.ones(3))
    with (
        pytest.raises(ConfigError, match=r"no round \(call of the outermost module\) of a program;"),
        capture(tmp_path / "c", feed=tmp_path / "other.npy"),
    ):
        pass
    assert not (tmp_path / "a").exists()


def test_the_command_feeds_and_says_what_does_not_fit(tmp_path):
    (tmp_path / "one.py").write_text(
        "import sys, torch\nnet = torch.nn.Linear(2, 2)\n"
        "with torch.no_grad():\n    for step in range(2):\n        net(torch.full((int(sys.argv[1]),), step + 1.0))\n"
    )
    command = ("exec", "-er", "all", "-o")
    assert sgsdump(*command, "good", "--", "python", "one.py", "2", cwd=tmp_path).returncode == 0
    good = trees(tmp_path / "good")[0]
    fed = sgsdump(*command, "fed", "--feed", str(good), "--", "python", "one.py", "2", cwd=tmp_path)
    assert fed.returncode == 0, fed.stderr
    assert len(list_runs(trees(tmp_path / "fed")[0])) == 2
    refused = sgsdump(*command, "no", "--feed", str(good), "--module", "x", "--", "python", "one.py", "2", cwd=tmp_path)
    assert refused.returncode == 2 and "no module 'x' ran" in refused.stderr
