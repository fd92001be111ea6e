"""What cannot be read is left out by itself, with one line: nothing after it is lost, and the program never notices."""

import importlib
import sys

import numpy as np
import pytest
from torch_runs import plain, runner, write_program

from sgsdump.capture.programs.program import HOOK

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

EXPANDED = """
class Net(nn.Module):
    def forward(self, x):
        return x.expand(8192, 8192)[0, 0] * 2

for value in (3.0, 4.0):
    print(Net()(torch.full((1,), value)).item())
"""
COLUMN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(300, 100))

    def forward(self, x):
        return x * self.w[:, 0]

net = Net()
with torch.no_grad():
    for step in range(2):
        print(net(torch.arange(300.0)).sum().item())
        net.w[5, 0] = 3
"""
WITHOUT_MEMORY = """
from torch.masked import masked_tensor

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.same = nn.Linear(4, 4), nn.Identity()

    def forward(self, x):
        y, tangent = torch.func.jvp(lambda v: self.same(v.detach() * 2 + v.sum()), (x,), (torch.ones_like(x),))
        masked = self.same(masked_tensor(x, x > 0)).sum(0).get_data()
        zeros = self.same(torch._efficientzerotensor(4))
        mapped = torch.func.vmap(self.fc)(x)
        return self.fc(y) + tangent + masked + mapped + zeros

net = Net()
for step in range(2):
    print(net(torch.arange(16.0).reshape(4, 4) - 5 + step).sum().item())
with torch._subclasses.fake_tensor.FakeTensorMode():
    print(nn.Linear(4, 4)(torch.ones(2, 4)).shape)
"""
NESTED = """
class Net(nn.Module):
    def __init__(self, layout):
        super().__init__()
        self.fc, self.last, self.layout = nn.Linear(4, 4), nn.Linear(4, 4), layout

    def forward(self, x):
        nested = torch.nested.nested_tensor([x, x[:2]], layout=self.layout)
        return self.last(sum(one.sum(0) for one in torch.relu(self.fc(nested)).unbind()))

torch.manual_seed(0)
for layout in (torch.jagged, torch.strided):
    print(Net(layout)(torch.arange(12.0).reshape(3, 4)).sum().item())
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
encoder, mask = nn.TransformerEncoder(layer, 2).eval(), torch.tensor([[False, False, True], [False, False, False]])
with torch.no_grad():
    print(encoder(torch.arange(48.0).reshape(2, 3, 8).sin(), src_key_padding_mask=mask).sum().item())
"""
LAZY = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.LazyLinear(3)

    def forward(self, x):
        return self.fc(x)

net = Net()
for step in range(2):
    print(net(torch.ones(2, 4)).sum().item())
"""
FROZEN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(*[nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)) for _ in range(4)])

    def forward(self, x):
        return self.blocks(x)

net = torch.jit.freeze(torch.jit.script(Net().eval()))
with torch.no_grad():
    for step in range(3):
        print(net(torch.ones(1, 4, 16, 16)).sum().item())
"""
NUMBERS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x):
        q, k, v = self.q(x).chunk(3, -1)
        weights = (q @ k.transpose(1, 2) / x.shape[-1] ** 0.5).masked_fill(torch.ones(3, 3).tril() == 0, -1e9)
        return (self.out(weights.softmax(-1) @ v) * 2 - torch.arange(3).float().mean()) ** 2 % 5

net, x = Net().eval(), torch.rand(1, 3, 4)
with torch.no_grad():
    traced = torch.jit.trace(net, x, check_trace=False)
    for made in (torch.jit.freeze(traced), torch.jit.optimize_for_inference(traced)):
        for step in range(2):
            print(made(x + step).double().sum().item())
"""
ASKS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        if torch.equal(x, self.w):
            return x * 2
        return x

net = torch.jit.script(Net())
print(net(torch.ones(3)).sum().item())
"""


@pytest.fixture
def run(tmp_path, capfd):
    return runner(tmp_path, capfd)


def same_as_alone(run, tmp_path, source, content):
    alone = plain(write_program(tmp_path / "alone", source))
    result = run(source, content=content)
    assert alone.returncode == 0
    assert result.captured.status == 0, result.errors
    assert result.text == alone.stdout and result.captured.complete
    assert not result.process.troubles
    return result


def reasons(result):
    return " ".join(note for note in result.captured.notes if "not dumped" in note)


@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_a_view_of_one_element_is_not_read_beyond_it(run, tmp_path, content):
    result = same_as_alone(run, tmp_path, EXPANDED, content)
    (line,) = result.lines(step=1, op="select_1", side="out")
    if content == "stats":
        assert line["stats"]["max"] == 4
    else:
        assert result.values(step=1, op="select_1", side="out").tolist() == 4


@pytest.mark.parametrize("without_kernel", ["", "1"])
def test_a_column_has_the_values_that_it_has_now(run, tmp_path, monkeypatch, without_kernel):
    monkeypatch.setenv("SGSDUMP_NO_KERNEL", without_kernel)
    expected = np.ones(300)
    expected[5] = 3
    result = same_as_alone(run, tmp_path, COLUMN, "tensor")
    assert np.array_equal(result.values(step=1, op="select", side="out"), expected)
    stats = same_as_alone(run, tmp_path / "stats", COLUMN, "stats")
    assert stats.lines(step=1, op="select", side="out")[0]["stats"]["l2norm"] == np.sqrt(np.square(expected).sum())


@pytest.mark.parametrize("content", ["tensor", "stats"])
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_memory_are_left_out_alone(run, tmp_path, content):
    result = same_as_alone(run, tmp_path, WITHOUT_MEMORY, content)
    told = reasons(result)
    for what in ("MaskedTensor has no memory", "a tensor without memory", "within torch.func"):
        assert told.count(what) == 1, told
    assert result.process.steps == (0, 1)
    # what comes after them, in both steps
    for step in (0, 1):
        assert result.lines(step=step, op="add", side="out")[-1]["file"]
        (read,) = result.lines(step=step, op="fc_1", side="in")  # the first is that of vmap
        assert read["file"]


@pytest.mark.parametrize("content", ["tensor", "stats"])
@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_are_left_out_alone(run, tmp_path, content):
    result = same_as_alone(run, tmp_path, NESTED, content)
    told = reasons(result)
    assert told.count("NestedTensor has no memory") == told.count("a nested tensor has no shape") == 1
    for step in (0, 1):
        assert all(line["file"] for line in result.lines(step=step, op="last"))
        assert all(line["unreadable"] for line in result.lines(step=step, op="fc"))
    layers = result.lines(step=2, type="aten._transformer_encoder_layer_fwd", side="in")
    assert len({line["value"] for line in layers if line["file"] and line.get("weight")}) == 24
    (padded,) = result.lines(step=2, type="aten.to_padded_tensor", side="out")
    assert padded["file"]


def test_a_tensor_that_stands_for_others_is_not_read_as_the_memory_it_has_besides(monkeypatch):
    class Named(torch.Tensor):
        pass

    class Pair(torch.Tensor):
        def __tensor_flatten__(self):
            return ["first", "second"], None

    monkeypatch.syspath_prepend(str(HOOK / "for_torch"))
    tensors = importlib.import_module("sgsdump_torch_tensors")
    assert tensors.plain(torch.ones(2).as_subclass(Named))
    assert tensors.why_not_plain(torch.ones(2).as_subclass(Pair)) == "Pair has no memory of its own"
    for name in [name for name in sys.modules if name.startswith("sgsdump_")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("source", [LAZY, ASKS], ids=["lazy", "asks"])
def test_the_rest_runs_as_before(run, tmp_path, source):
    result = same_as_alone(run, tmp_path, source, "tensor")
    if source is LAZY:
        assert all(line["file"] for line in result.lines(step=1, op="fc.addmm"))
    else:
        assert result.lines(type="aten.equal")


def test_a_frozen_trace_whose_numbers_were_tensors_runs_as_alone(run, tmp_path):
    result = same_as_alone(run, tmp_path, NUMBERS, "tensor")
    for step in range(4):
        assert result.lines(step=step, type="aten._softmax", side="out")[-1]["file"]


def test_what_the_optimiser_asks_for_itself_is_no_operator_of_the_program(run, tmp_path):
    result = same_as_alone(run, tmp_path, FROZEN, "tensor")
    for step in (0, 1, 2):
        ran = [line["type"] for line in result.every() if line.get("event") == "operator" and line["step"] == step]
        assert set(ran) == {"aten.convolution"} and len(ran) == 4
