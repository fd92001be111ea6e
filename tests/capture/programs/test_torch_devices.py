"""Programs on an asynchronous device: a fake one, which copies late, counts waits and refuses early reads."""

import json

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
    assert there.text == here.text and not there.captured.notes
    assert len(list_runs(there.root)) == 3
    for step in range(3):
        sample, benchmark = (open_dump(one.root, step=step) for one in (there, here))
        assert [record.name for record in sample.records] == [record.name for record in benchmark.records]
        assert [record.tensor.shape for record in sample.records] == [r.tensor.shape for r in benchmark.records]
        if content == "tensor":
            comparison = compare(sample, benchmark, inputs=True)
            assert len(comparison) > 20 and all(row.equal for row in comparison.rows)
            assert not (comparison.failed or comparison.only_in_sample or comparison.only_in_benchmark)
            continue
        for a, b in zip(sample.records, benchmark.records):
            assert (a.tensor.statistics is None) == (b.tensor.statistics is None), a.name
            if a.tensor.statistics is not None:
                for name in ("max", "min", "mean", "l2norm"):
                    figures = [getattr(one.tensor.statistics, name) for one in (a, b)]
                    assert figures[0] == pytest.approx(figures[1], rel=1e-6), (a.name, name)


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
    assert waits[:3] == waits[3:], "independent of the number of layers"
    tensors = [line for line in result.lines(step=5)]
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
        products = [record for record in dump.records if record.name.startswith("mul") and record.io == "in"]
        assert [record.unwritten for record in products] == [False, False]
        assert np.all(np.asarray(products[0].tensor) == 3)
        assert [record.unwritten for record in dump.records if record.name.startswith("add")] == [True, True], states


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
    for step, names in ((0, ("_to_copy", "copy_")), (1, ("",))):
        dump = open_dump(result.root, step=step)
        expected = {"_to_copy": [0, 2, 4, 6], "copy_": [1, 2, 3, 4], "": [5, 6, 7, 8]}
        for name in names:
            (record,) = [r for r in dump.records if r.io == "out" and r.name.rpartition("/")[2].endswith(name)][:1]
            values = record.tensor
            if content == "stats":
                assert (values.statistics.max, values.statistics.min) == (max(expected[name]), min(expected[name]))
            else:
                assert np.asarray(values).tolist() == expected[name]


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
