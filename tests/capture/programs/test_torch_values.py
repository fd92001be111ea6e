"""What the torch hook takes is what an independent hook, and another way to run the same net, see."""

import numpy as np
import pytest
from torch_runs import NETS, runner, values_of

from sgsdump import open_dump
from sgsdump.capture.programs.control import Steps

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

PROGRAM = """
net, x = Net().eval(), image()
with torch.no_grad():
    for step in range(2):
        print(net(x + step).sum().item())
"""


@pytest.fixture
def run(tmp_path, capfd):
    return runner(tmp_path, capfd)


@pytest.fixture(scope="module")
def nets():
    names: dict = {}
    exec(compile(NETS, "nets.py", "exec"), names)
    return names


def same(line, root, tensor):
    stored = values_of(root / line["file"])
    assert list(stored.shape) == list(tensor.shape) == line["shape"]
    assert np.array_equal(stored, tensor.numpy()), line["op"]


def test_modules_read_and_give_what_forward_hooks_see(run, nets):
    result = run(PROGRAM)
    net, x = nets["Net"]().eval(), nets["image"]()
    seen = []
    for name, module in net.named_modules():
        module.register_forward_hook(
            lambda module, given, out, name=name: seen.append((step, name, out.clone())) if name else None
        )
        module.register_forward_pre_hook(
            lambda module, given, name=name: seen.append((step, name, given[0].clone())) if name else None
        )
    printed = []
    with torch.no_grad():
        for step in (0, 1):
            printed += [net(x + step).sum().item()]
    assert result.text.split() == [str(value) for value in printed] and not result.errors
    lines = [line for line in result.lines() if not line["type"].startswith("aten.")]
    assert [(line["step"], line["op"]) for line in lines] == [(step, name) for step, name, _ in seen]
    for line, (_, name, tensor) in zip(lines, seen):
        assert line["module"] == f"root.{name}"
        assert line["side"] == {"before": "in", "after": "out"}[line["moment"]]
        same(line, result.root, tensor)


def test_operators_give_what_an_interpreter_of_the_same_net_computes(run, nets):
    from torch.fx.experimental.proxy_tensor import make_fx

    result = run(PROGRAM, steps=Steps(((1, 1),)))
    net, x = nets["Net"]().eval(), nets["image"]() + 1
    with torch.no_grad():
        graph = make_fx(net)(x)
    seen = []

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node):
            out = super().run_node(node)
            if node.op == "call_function" and "aten" in str(node.target) and "detach" not in str(node.target):
                outs = out if isinstance(out, (tuple, list)) else (out,)
                read = self.fetch_args_kwargs_from_env(node)[0]
                seen.append((str(node.target), [one.clone() for one in outs], read))
            return out

    with torch.no_grad():
        Recorder(graph).run(x)
    ran = {}
    for line in result.lines(step=1):
        if line["type"].startswith("aten."):
            ran.setdefault(line["id"], []).append(line)
    assert [lines[0]["type"] for lines in ran.values()] == [
        ".".join(name.split(".")[:2]) for name, _, _ in seen if "empty" not in name
    ]
    for lines, (_, outs, _) in zip(ran.values(), (one for one in seen if "empty" not in one[0])):
        for line in lines:
            if line["side"] == "out" and 0 not in line["shape"]:
                same(line, result.root, outs[line["slot"]])
    # What an operator that writes in place read is what was there before.
    (read,) = result.lines(step=1, op="blocks.0.relu_", side="in")
    (gave,) = result.lines(step=1, op="blocks.0.relu_", side="out")
    before, after = (values_of(result.root / line["file"]) for line in (read, gave))
    assert before.min() < 0 and np.array_equal(np.maximum(before, 0), after)


def test_ids_count_in_the_order_of_execution(run):
    result = run(PROGRAM, steps=Steps(((0, 0),)))
    ran = [(line["id"], line["op"], line["module"]) for line in result.every() if line.get("event") == "operator"]
    assert sorted(ran, key=lambda row: [int(part) for part in row[0].split("_")]) == [
        ("0", "stem", "root.stem"),
        ("0_0", "stem.convolution", "root.stem"),
        ("1", "blocks", "root.blocks"),
        ("1_0", "blocks.0", "root.blocks.0"),
        ("1_0_0", "blocks.0.conv", "root.blocks.0.conv"),
        ("1_0_0_0", "blocks.0.conv.convolution", "root.blocks.0.conv"),
        ("1_0_1", "blocks.0.norm", "root.blocks.0.norm"),
        ("1_0_1_0", "blocks.0.norm.native_batch_norm", "root.blocks.0.norm"),
        ("1_0_2", "blocks.0.relu_", "root.blocks.0"),
        ("1_0_3", "blocks.0.add", "root.blocks.0"),
        ("1_1", "blocks.1", "root.blocks.1"),
        ("1_1_0", "blocks.1.conv", "root.blocks.1.conv"),
        ("1_1_0_0", "blocks.1.conv.convolution", "root.blocks.1.conv"),
        ("1_1_1", "blocks.1.norm", "root.blocks.1.norm"),
        ("1_1_1_0", "blocks.1.norm.native_batch_norm", "root.blocks.1.norm"),
        ("1_1_2", "blocks.1.relu_", "root.blocks.1"),
        ("1_1_3", "blocks.1.add", "root.blocks.1"),
        ("2", "mean", "root"),
        ("3", "fc", "root.fc"),
        ("3_0", "fc.t", "root.fc"),
        ("3_1", "fc.addmm", "root.fc"),
        ("4", "_softmax", "root"),
    ]
    path = f"tensors/0_{result.process.pid}/0/3_fc/1_addmm/after/outtensor0.bin"
    assert result.lines(id="3_1", side="out")[0]["file"] == path
    (weight,) = result.lines(id="0_0", slot=1)
    assert weight["weight"] == "root.stem.weight"
    assert len(open_dump(result.root / "tensors").records) == len(
        [line for line in result.lines() if line["file"] is not None]
    )


def test_an_argument_that_is_passed_at_its_default_is_as_one_that_is_not_given(run):
    """torch passes ``dropout_p`` where an argument after it is given."""
    result = run(
        """
class Attention(torch.nn.Module):
    def forward(self, x, causal):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)

with torch.no_grad():
    for causal in (True, False):
        Attention()(torch.ones(1, 1, 3, 4), causal)
"""
    )
    operators = [line for line in result.every() if line.get("event") == "operator" and "attention" in line["op"]]
    assert [line["param"] for line in operators if line["param"] is not None] == [{"is_causal": True}, {}]


def test_what_is_read_again_is_stored_once(run):
    result = run(PROGRAM)
    lines = [line for line in result.lines() if line["file"]]
    numbers = {}
    for line in lines:
        numbers.setdefault((line["value"], tuple(line["shape"])), set()).add((result.root / line["file"]).stat().st_ino)
    assert all(len(files) == 1 for files in numbers.values())
    (weight, again) = result.lines(op="stem.convolution", slot=1)
    assert weight["step"] == 0 and again["step"] == 1 and weight["value"] == again["value"]
    distinct = {(result.root / line["file"]).stat().st_ino for line in lines}
    assert len(distinct) == len(numbers) < len(lines) / 2


def test_values_that_change_behind_torchs_back_are_seen(run):
    source = """
class Sneaky(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        y = x + self.weight
        y.numpy()[0] = 7  # torch knows nothing of it
        return y * 2

net = Sneaky()
with torch.no_grad():
    for step in range(3):
        print(net(torch.ones(4)).tolist())
        net.weight.data.add_(1)  # nor does the version of the weight
"""
    result = run(source)
    for step in range(3):
        assert result.values(step=step, op="add", slot=1).tolist() == [step] * 4
        assert result.values(step=step, op="add", side="out").tolist() == [1 + step] * 4
        assert result.values(step=step, op="mul", side="in").tolist() == [7, 1 + step, 1 + step, 1 + step]
    stats = run(source, content="stats")
    for step in range(3):
        assert stats.lines(step=step, op="add", slot=1)[0]["stats"]["max"] == step


def test_weights_that_change_between_steps_have_statistics_of_their_own_each_time(run):
    source = """
class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0).view(2, 2))

    def forward(self, x):
        return x + self.weight

net = Weighted()
alias = net.weight.detach().numpy()
changes = [
    lambda: None,
    lambda: alias.__setitem__((0, 0), 5),
    lambda: setattr(net.weight, "data", net.weight.data.t()),
    lambda: setattr(net.weight, "data", torch.full((2, 2), 8.0)),
    lambda: net.weight.mul_(2),
    lambda: setattr(net, "weight", nn.Parameter(torch.full((2, 2), -1.0))),
]
with torch.no_grad():
    for change in changes:
        change()
        net(torch.zeros(2, 2))
"""
    result = run(source, content="stats")
    lines = [result.lines(step=step, op="add", slot=1)[0] for step in range(6)]
    assert [line["stats"]["max"] for line in lines] == [3, 5, 5, 8, 16, -1]
    assert [line["stats"]["min"] for line in lines] == [0, 1, 1, 8, 16, -1]
    assert [line.get("weight") for line in lines] == ["root.weight"] * 6
    full = run(source)
    expected = [[0, 1, 2, 3], [5, 1, 2, 3], [5, 2, 1, 3], [8] * 4, [16] * 4, [-1] * 4]
    found = [full.values(step=step, op="add", slot=1).ravel().tolist() for step in range(6)]
    assert found == expected


def test_in_place_writes_through_an_alias_change_what_is_read_later(run):
    result = run("""
class Alias(nn.Module):
    def forward(self, x):
        view = x[1:]
        view.mul_(10)
        return x.sum(0)

with torch.no_grad():
    print(Alias()(torch.ones(2, 2)).tolist())
""")
    assert result.values(op="slice", side="in").tolist() == [[1, 1], [1, 1]]
    assert result.values(op="mul_", side="in").tolist() == [[1, 1]]
    assert result.values(op="mul_", side="out").tolist() == [[10, 10]]
    assert result.values(op="sum", side="in").tolist() == [[1, 1], [10, 10]]


def test_every_type_keeps_its_bits(run):
    result = run("""
class Types(nn.Module):
    def forward(self, x):
        a = x.to(torch.bfloat16) + 1
        b = x.half() + 1
        c = (x > 0).logical_not()
        d = torch.complex(x, -x).conj() * 2
        e = x.to(torch.int64) + 5
        f = x.t() + 0
        g = x.sum()
        h = x[:0] + 1
        return a, {"b": b, "list": [c, d]}, e, f, g, h, x.to_sparse().coalesce()

x = torch.tensor([[1.5, -2.25, 0.0], [3.0, 1e-3, 7.0]])
with torch.no_grad():
    Types()(x)
""")
    x = np.array([[1.5, -2.25, 0], [3, 1e-3, 7]], np.float32)
    assert result.values(op="add", side="out").astype(np.float32).tolist() == (
        torch.from_numpy(x).to(torch.bfloat16).add(1).float().tolist()
    )
    assert result.values(op="add_1", side="out").tolist() == (x.astype(np.float16) + np.float16(1)).tolist()
    assert result.values(op="logical_not", side="out").tolist() == (x <= 0).tolist()
    assert np.array_equal(result.values(op="mul", side="out"), (x + 1j * x) * 2)
    assert result.values(op="add_2", side="out").tolist() == (x.astype(np.int64) + 5).tolist()
    assert result.values(op="t", side="out").tolist() == x.T.tolist()
    assert result.values(op="sum", side="out").tolist() == torch.from_numpy(x).sum().item()
    (empty,) = result.lines(op="add_4", side="out")
    assert empty["file"] is None and empty["why"] == "it has no elements" and empty["shape"] == [0, 3]
    assert not result.process.troubles


@pytest.mark.parametrize("without_kernel", ["", "1"])
def test_statistics_are_those_of_plain_numpy(run, monkeypatch, without_kernel):
    monkeypatch.setenv("SGSDUMP_NO_KERNEL", without_kernel)
    source = """
class Figures(nn.Module):
    def forward(self, x):
        big = x.repeat(200, 200) + 1
        half = big.to(torch.float16) * 1e-4, big.to(torch.bfloat16) * 3
        odd = torch.log(x), 1 / (x - x[0, 0]), x.to(torch.float64) + 0, big[::2, ::3] - 1, big.expand(2, -1, -1) * 1
        unsigned = x.abs().to(torch.int32).to(torch.uint16)
        return unsigned, big.t() * 2, x.to(torch.bfloat16) + 0, x.to(torch.int32) - 9, x > 0, x / 0, half, odd

with torch.no_grad():
    Figures()(torch.linspace(-3, 5, 35).view(5, 7))
"""
    result, full = run(source, content="stats"), run(source)
    checked = 0
    for line in full.lines():
        (figures,) = result.lines(**{key: line[key] for key in ("step", "op", "side", "slot")})
        if figures["stats"] is None:
            assert line["dtype"] == "bool" and figures["file"] is None
            continue
        values = values_of(full.root / line["file"]).astype(np.float64)
        expected = {
            "max": values.max(),
            "min": values.min(),
            "mean": values.mean(),
            "l2norm": np.sqrt(np.square(values).sum()),
        }
        for name, value in expected.items():
            assert figures["stats"][name] == pytest.approx(value, rel=1e-12, nan_ok=True), (line["op"], name)
        text = (result.root / figures["file"]).read_text().splitlines()
        assert text[1] == "$Object.Count=0"
        assert [row.partition("=")[0] for row in text[3:-1]] == [
            *("format", "dtype", "dims", "max", "min", "mean", "l2norm")
        ]
        stored = open_dump(result.root / figures["file"]).records[0].tensor.statistics
        assert stored.max == pytest.approx(expected["max"], nan_ok=True)
        checked += 1
    assert checked > 10
    assert not list(result.root.rglob("*.part*"))


def test_statistics_after_writes_in_place_where_torch_counts_no_versions(run):
    result = run(
        """
class Twice(nn.Module):
    def forward(self, x):
        y = x + 1
        y.mul_(10)
        return y.mul_(10)

with torch.inference_mode():
    Twice()(torch.ones(3))
""",
        content="stats",
    )
    found = [line["stats"]["max"] for line in result.lines(side="out")]
    assert found == [2, 20, 200] and len({line["value"] for line in result.lines(side="out")}) == 3


def test_a_description_and_a_structure_hold_no_values(run):
    described = run(PROGRAM, content="description")
    assert {line["stats"] for line in described.lines()} == {None}
    assert max(path.stat().st_size for path in (described.root / "tensors").rglob("*.bin")) < 200
    structure = run(PROGRAM, content="structure")
    assert not (structure.root / "tensors").exists() and len(structure.lines()) == len(described.lines())


def test_only_what_is_asked_for_is_dumped(run):
    def ran(**control):
        result = run(PROGRAM, steps=Steps(((1, 1),)), **control)
        return sorted({(line["id"], line["side"], line["moment"]) for line in result.lines()})

    assert ran(ids=("2",), mode="output") == [("2", "out", "after")]
    assert {id for id, _, _ in ran(ids=("3",))} == {"3", "3_0", "3_1"}
    assert {id for id, _, _ in ran(ids=("3", "1_0_2"), children=False)} == {"3", "1_0_2"}
    assert {id for id, _, _ in ran(children=False)} == {"0", "1", "2", "3", "4"}
    assert {id for id, _, _ in ran(prefixes=("CONV",), mode="input")} == {
        *("0", "0_0", "1_0_0", "1_0_0_0", "1_1_0", "1_1_0_0")
    }
    assert {id for id, _, _ in ran(names=("blocks.1.norm", "fc.addmm"))} == {"1_1_1", "3_1"}
    assert (
        ran(names=("fc.addmm",), when="both")
        == [
            ("3_1", "in", "after"),
            ("3_1", "in", "before"),
            ("3_1", "out", "after"),
            ("3_1", "out", "before"),
        ][:3]
    )
    assert ran(names=("fc.addmm",), when="before") == [("3_1", "in", "before")]
