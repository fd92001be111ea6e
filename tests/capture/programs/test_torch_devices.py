"""Programs on an asynchronous device: a fake one, which copies late, counts waits and refuses early reads."""

import zlib

import numpy as np
import pytest
from torch_runs import runner

from sgsdump import compare, list_runs, open_dump

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

ON_DEVICE = """
import fake
torch.manual_seed(0)
"""
# Waits of the host for the device in a round, whatever the number of its tensors.
MOST_WAITS = 4


@pytest.fixture
def run(tmp_path, capfd, fake_device):
    return runner(tmp_path, capfd)


NETWORKS = {
    "images": "net, calls = Net().eval().to(where), [(image().to(where),) for _ in range(3)]",
    "tokens": """
net = Decoder().eval().to(where)
past = [{}, {}]
calls = [(torch.tensor([[token]], device=where), past) for token in (3, 7, 1)]
""",
}
CALLS = """
with torch.no_grad():
    for call in calls:
        print(net(*call).double().sum().item())
"""


def source(network, where):
    return f"{ON_DEVICE}where = {where!r}\n{NETWORKS[network]}{CALLS}"


@pytest.mark.parametrize("content", ["tensor", "stats"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_device_is_dumped_as_the_cpu_is(run, network, content):
    there, here = (run(source(network, where), layout="rounds", content=content) for where in ("fake:1", "cpu"))
    assert np.loadtxt(there.text.splitlines()) == pytest.approx(np.loadtxt(here.text.splitlines()), rel=1e-5)
    assert not [note for note in there.captured.notes if "fake" in note or "Error" in note]
    assert len(list_runs(there.root)) == 3
    for step in range(3):
        sample, benchmark = (open_dump(one.root, step=step) for one in (there, here))
        assert [record.name for record in sample.records] == [record.name for record in benchmark.records]
        assert [record.tensor.shape for record in sample.records] == [r.tensor.shape for r in benchmark.records]
        if content == "tensor":
            comparison = compare(sample, benchmark, inputs=True)
            assert len(comparison) > 20 and comparison.verdict().outcome in ("EQUAL", "WITHIN ROUNDING")
            assert not (comparison.failed or comparison.only_in_sample or comparison.only_in_benchmark)
            continue
        for a, b in zip(sample.records, benchmark.records):
            assert (a.tensor.statistics is None) == (b.tensor.statistics is None), a.name
            if a.tensor.statistics is not None:
                for name in ("max", "min", "mean", "l2norm"):
                    figures = [getattr(one.tensor.statistics, name) for one in (a, b)]
                    assert figures[0] == pytest.approx(figures[1], rel=1e-5, abs=1e-7), (a.name, name)


BETWEEN = """
net = nn.Linear(4, 4).to(where)
x = torch.ones(2, 4).to(where)
with torch.no_grad():
    for step in range(2):
        x = torch.softmax(net(x) / 0.7, 1)
        x = torch.cat([x, x.flip(0)])[:2]
"""


def test_operators_between_rounds_are_those_of_the_cpu(run):
    seeds = "torch.manual_seed(0)\n"
    lines = []
    for where in ("fake:1", "cpu"):
        result = run(f"import fake\nwhere = {where!r}\n{seeds}{BETWEEN}", layout="rounds", content="stats")
        (between,) = [line for line in result.every() if line.get("event") == "between"]
        lines.append([one for one in between["operators"] if one["type"] != "aten.slice"])
    device, cpu = lines
    assert [one["type"] for one in device] == [one["type"] for one in cpu] and len(cpu) >= 4
    for a, b in zip(device, cpu):
        for one, other in zip([*a["in"], *a["out"]], [*b["in"], *b["out"]]):
            assert one[:2] == other[:2] and one[3] == pytest.approx(other[3], rel=1e-6)
            assert isinstance(one[2], int)


CHANGED = """
import fake
net = nn.Linear(64, 64, bias=False).to("fake")
x = torch.ones(1, 64, device="fake")
with torch.no_grad():
    for step in range(4):
        net(x)
        if step == 1:
            fake.fill(net.weight, 2.0)  # no version of torch counts this
"""


@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_a_weight_that_a_foreign_kernel_changed_is_read_again(run, content):
    result = run(CHANGED, layout="rounds", content=content)
    weights = [_of_weight(open_dump(result.root, step=step)) for step in range(4)]
    means = [w.statistics.mean if w.statistics else np.asarray(w, np.float64).mean() for w in weights]
    assert means[2:] == [2, 2] and means[0] == means[1] != 2
    stored = {tuple(line["payload"]) for line in result.lines() if line.get("weight") and "payload" in line}
    assert len(stored) == 4 * (content == "tensor"), "the weight and its transposed view, before and after"


REWRITTEN = """
import fake
class Net(nn.Module):
    def forward(self, x, kept):
        made = []
        for number in range(3):
            fake.fill(kept, float(number))
            made.append(kept * x)
        return made

with torch.no_grad():
    kept = torch.zeros(1000, device="fake")
    for step in range(2):
        print(sum(Net()(torch.ones(1000, device="fake"), kept)).sum().item())
"""


@pytest.mark.parametrize("limit", [0, 10**9])
def test_memory_that_foreign_kernels_write_again_and_again(run, limit):
    result = run(MANY.format(limits=f"{limit}, 10**6") + REWRITTEN, layout="rounds")
    assert result.text == "3000.0\n" * 2 and not any("outside torch" in note for note in result.captured.notes)
    for step in (0, 1):
        dump = open_dump(result.root, step=step)
        for number, name in enumerate(("0_mul", "1_mul_1", "2_mul_2")):
            assert np.all(np.asarray(dump[f"{name}/output.0"]) == number)
            (read,) = [r.tensor for r in dump.records if r.name == f"{name}/input.0"]
            assert np.all(np.asarray(read) == number)


def _of_weight(dump):
    return next(record.tensor for record in dump.records if record.tensor.shape == (64, 64))


MANY = """
import sgsdump_torch_devices
sgsdump_torch_devices.MOST_HELD, sgsdump_torch_devices.MOST_READS = {limits}
"""


@pytest.mark.parametrize("content", ["tensor", "stats"])
@pytest.mark.parametrize("limits", ["1000, 10**6", "10**9, 3", "0, 0"])
def test_what_waits_on_a_device_is_bounded(run, content, limits):
    whole = run(source("images", "fake"), layout="rounds", content=content)
    many = run(MANY.format(limits=limits) + source("images", "fake"), layout="rounds", content=content)
    assert whole.text == many.text
    for step in range(3):
        sample, benchmark = (open_dump(one.root, step=step) for one in (many, whole))
        comparison = compare(sample, benchmark, inputs=True)
        assert comparison.verdict().outcome == "EQUAL" and not comparison.only_in_benchmark
        assert len(sample.records) == len(benchmark.records) > 20


FAILING = """
import fake
class Net(nn.Module):
    def forward(self, x):
        y = x * 2
        fake.fail()
        return y

with torch.no_grad():
    x = torch.ones(4, device="fake")
    Net()(x)
    fake.recover()
    print(Net.forward)
"""


def test_a_device_that_fails_is_reported(run):
    result = run(FAILING, layout="rounds")
    assert "Net.forward" in result.text
    assert any("could not be read: fake: the device has failed" in note for note in result.captured.notes)


IN_A_ROUND = """
import fake
torch.manual_seed(0)
inner = nn.Linear(4, 4).to("fake")
given = torch.zeros(3, 4, device="fake")
captured = fake.CUDAGraph()
with torch.no_grad(), fake.graph(captured):
    made = inner(given)

class Net(nn.Module):
    def forward(self, x):
        given.copy_(x)
        captured.replay()
        return made + 1

with torch.no_grad():
    for step in range(2):
        print(Net()(torch.full((3, 4), float(step), device="fake")).sum().item())
"""


def test_a_replay_inside_a_round_is_an_operator(run):
    result = run(IN_A_ROUND, layout="rounds")
    sums = list(map(float, result.text.split()))
    for step in (0, 1):
        dump = open_dump(result.root, step=step)
        assert np.all(np.asarray(dump["1_graph/input.0"]) == step)
        assert np.asarray(dump["1_graph/output.0"]).sum() + 12 == pytest.approx(sums[step], rel=1e-5)
        assert np.asarray(dump["2_add/output.0"]).sum() == pytest.approx(sums[step], rel=1e-5)


FIGURES = """
import fake, math
from sgsdump_torch_devices import Reader, statistics_of
from sgsdump_torch_statistics import checksum_of, statistics

torch.manual_seed(0)
wide = torch.randn(37, 53) * 100
odd = {
    "nan": torch.tensor([1.0, math.nan]), "inf": torch.tensor([math.inf, -1.0]),
    "huge": torch.full((4,), 1e200, dtype=torch.float64),
    "turned": wide.t(), "gaps": wide[:, ::3], "negative": torch._neg_view(wide),
    "bool": wide > 0, "complex": wide.to(torch.complex64), "empty": wide[:0], "one": wide[0, 0],
    "large": torch.randn(70000),
}
names = "float32 float64 float16 bfloat16 float8_e4m3fn int8 uint8 int16 int32 int64 uint16 uint32".split()
odd |= {name: wide.clamp(0, 100).to(getattr(torch, name)) for name in names if hasattr(torch, name)}
for name, here in odd.items():
    reader, there = Reader(), here.to("fake")
    figures, checksum = reader.figures(there), reader.checksum(there)
    reader.fetch()
    found = None if figures is None else statistics_of(figures.data, there.numel(), there.is_floating_point())
    expected = statistics(here)
    if expected is None or found is None:
        assert found is expected, name
    else:
        for a, b in zip(found, expected):
            alike = a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
            assert type(a) is type(b) and alike, (name, found, expected)
    print(name, "ok")
"""


def test_statistics_of_a_device_are_those_of_the_cpu(run):
    result = run(
        "class Net(nn.Module):\n    def forward(self, x):\n        return x\n\nNet()(torch.ones(1))\n" + FIGURES
    )
    lines = result.text.splitlines()
    assert len(lines) > 20 and all(line.endswith(" ok") for line in lines), result.errors


COUNTED = """
import fake
torch.manual_seed(0)
for depth in (2, 20):
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(depth))).to("fake")
    with torch.no_grad():
        for step in range(3):
            x = torch.randn(4, 8).to("fake")
            before = sum(fake.waits().values())
            net(x)
            print(sum(fake.waits().values()) - before)
"""


@pytest.mark.parametrize("content", ["tensor", "stats", "description"])
def test_the_host_does_not_wait_for_each_tensor(run, content):
    result = run(COUNTED, layout="rounds", content=content)
    waits = list(map(int, result.text.split()))
    assert len(waits) == 6 and max(waits) <= MOST_WAITS, waits
    assert waits[1:3] == waits[4:], "independent of the number of layers"
    tensors = result.lines(step=5)
    assert len(tensors) > 60


FOREIGN = """
import fake
class Net(nn.Module):
    def forward(self, x):
        made = torch.empty(1000, device=x.device)
        fake.fill(made, 3.0)          # as a Triton kernel
        never = torch.empty(1000, device=x.device)
        return made * x, torch.add(never, 0)

with torch.no_grad():
    for step in range(2):
        made, never = Net()(torch.ones(1000, device="fake"))
        print(made.sum().item())
"""


def test_what_foreign_kernels_write_is_dumped(run):
    result = run(FOREIGN, layout="rounds")
    assert result.text == "3000.0\n" * 2
    for step in (0, 1):
        dump = open_dump(result.root, step=step)
        states = {record.name: record.unwritten for record in dump.records}
        made = ["0_mul/input.0", "0_mul/input.1", "0_mul/output.0"]
        assert states == {**dict.fromkeys(made, False), "1_add/input.0": True, "1_add/output.0": True}
        assert np.all(np.asarray(dump["0_mul/output.0"]) == 3)


STREAMS = """
import fake
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.Stream("fake:1")

    def forward(self, x):
        here = torch.accelerator.current_stream("fake:1")
        self.side.wait_stream(here)
        with self.side:
            a = x * 2
            a.add_(1)
        b = x * 3
        here.wait_stream(self.side)
        return a + b

with torch.no_grad():
    x = torch.arange(6.0, device="fake:1")
    for step in range(2):
        print(Net()(x).tolist())
"""


def test_two_streams_of_another_device(run):
    result = run(STREAMS, layout="rounds")
    assert result.text == f"{[5.0 * i + 1 for i in range(6)]}\n" * 2
    assert not result.captured.notes
    dump = open_dump(result.root, step=1)
    out = {record.name: np.asarray(record.tensor).tolist() for record in dump.records if record.io == "out"}
    x = np.arange(6.0)
    assert list(out.values())[-4:] == [(2 * x).tolist(), (2 * x + 1).tolist(), (3 * x).tolist(), (5 * x + 1).tolist()]


TWO = """
import fake
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 8).to("fake:0"), nn.Linear(8, 4).to("fake:1")

    def forward(self, x):
        y = self.second(self.first(x).to("fake:1"))
        return y.to("cpu") + x.new_ones(4, device="cpu")

with torch.no_grad():
    net = Net()
    for step in range(2):
        before = sum(fake.waits().values())
        y = net(torch.full((2, 8), step + 1.0, device="fake:0"))
        print(y.sum().item(), sum(fake.waits().values()) - before)
"""


@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_a_model_on_two_devices(run, content):
    result = run(TWO, layout="rounds", content=content)
    plain = [float(line.split()[0]) for line in result.text.splitlines()]
    assert [int(line.split()[1]) for line in result.text.splitlines()][1] <= 2 * MOST_WAITS
    for step in (0, 1):
        tensors = {r.name: r.tensor for r in open_dump(result.root, step=step).records if r.io == "out"}
        last = tensors[list(tensors)[-1]]
        total = last.statistics.mean * 8 if content == "stats" else np.asarray(last, np.float64).sum()
        assert total == pytest.approx(plain[step], rel=1e-5)
    assert {line["device"] for line in result.lines() if "device" in line} == {0, 1}


OWN_LIBRARY = """
import fake
@torch.library.custom_op("mine::half", mutates_args=("x",), device_types="fake")
def half(x: torch.Tensor) -> None:
    fake.fill(x[: len(x) // 2], 5.0)

class Net(nn.Module):
    def forward(self, x):
        made = torch.empty(1000, device=x.device)
        torch.ops.mine.half(made)
        return made[:500] + x, made[500:] + x

with torch.no_grad():
    print(Net()(torch.ones(500, device="fake"))[0].sum().item())
"""


def test_an_operator_of_another_library_writes_a_part(run):
    result = run(OWN_LIBRARY, layout="rounds")
    assert result.text == "3000.0\n"
    dump = open_dump(result.root, step=0)
    states = {record.name: record.unwritten for record in dump.records if "add" in record.name}
    (written,) = [name for name in states if name.endswith("add/output.0")]
    assert not states[written] and np.all(np.asarray(dump[written]) == 6)
    (unwritten,) = [name for name in states if name.endswith("add_1/output.0")]
    assert states[unwritten]


LATE = """
import fake
class Net(nn.Module):
    def forward(self, x):
        late = (x * 2).to("cpu", non_blocking=True)
        pinned = torch.empty(4, pin_memory=True)
        pinned.copy_(x + 1, non_blocking=True)
        fake.synchronize()
        return late + pinned

net = Net()
with torch.no_grad():
    x = torch.arange(4.0, device="fake")
    for step in range(2):
        print(net(x).tolist())
        kept = (x + 5).to("cpu", non_blocking=True)
        nn.Identity()(kept)
"""


@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_copies_that_arrive_late_are_read_when_they_are_there(run, content):
    result = run(LATE, layout="rounds", content=content)
    assert result.text == f"{[1.0, 4.0, 7.0, 10.0]}\n" * 2
    for name, expected in {"1_op_to_copy/output.0": [0, 2, 4, 6], "3_copy_/output.0": [1, 2, 3, 4]}.items():
        _has_values(open_dump(result.root, step=0)[name], expected)
    inputs = [line for line in result.every() if line.get("event") == "step" and "fed" in line]
    fed = zlib.crc32(np.float32([5, 6, 7, 8]).tobytes(), zlib.crc32(b"torch.float32 (4,)"))
    assert [line["fed"] for line in inputs][1::2] == [f"{fed:08x}"] * 2


def _has_values(tensor, expected):
    if tensor.statistics is None:
        assert np.asarray(tensor).tolist() == expected
    else:
        assert (tensor.statistics.max, tensor.statistics.min) == (max(expected), min(expected))


GRAPH = """
import fake
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).to("fake")
given = torch.zeros(3, 4, device="fake")
with torch.no_grad():
    net(given)
    captured = fake.CUDAGraph()
    with fake.graph(captured):
        made = net(given)
        twice = made * 2
    for step in range(3):
        given.fill_(float(step))
        captured.replay()
        print(made.double().sum().item(), (twice / 2 - made).abs().max().item())
"""


@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_a_captured_graph_is_dumped_around_each_replay(run, content):
    result = run(GRAPH, layout="rounds", content=content)
    sums = [float(line.split()[0]) for line in result.text.splitlines()]
    assert len(sums) == 3 and all(line.endswith(" 0.0") for line in result.text.splitlines())
    assert any("captured graph" in note for note in result.captured.notes)
    runs = list_runs(result.root)
    assert [run.step for run in runs] == [0, 1, 2, 3]
    for step in range(3):
        dump = open_dump(result.root, step=step + 1)
        given, made = (next(r.tensor for r in dump.records if r.io == io) for io in ("in", "out"))
        if content == "tensor":
            assert np.all(np.asarray(given) == step)
            assert np.asarray(made, np.float64).sum() == pytest.approx(sums[step], rel=1e-6)
        else:
            assert (given.statistics.max, given.statistics.min) == (step, step)
            assert made.statistics.mean * 6 == pytest.approx(sums[step], rel=1e-6)
    assert {line["type"] for line in result.every() if line.get("event") == "operator" and line["step"]} == {
        "captured.graph"
    }
