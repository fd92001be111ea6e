"""Runs of small torch modules computed again in float64, against numpy."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import sgsdump  # noqa: E402
from sgsdump.replay import exact  # noqa: E402
from sgsdump.replay.exact import exact_run, is_small  # noqa: E402

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.linspace(0.1, 2, 8).reshape(4, 2))

    def forward(self, x):
        return self.function(x, self.weight)


def captured(folder, function, x=X, dtype=torch.float32):
    net = Net(function).to(dtype)
    with torch.no_grad(), sgsdump.capture(str(folder)):
        net(x.to(dtype))
    dump = sgsdump.open_dump(f"{folder}@step=0")
    return dump, dump.network()


def value(run, dump, network, kind, io="out", slot=0):
    """The exact values that the first operator of a kind reads or makes."""
    index = next(i for i in sorted(network) if network[i].kind == f"aten.{kind}")
    return run.values[network[index].values[io, slot]].numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_rounding_is_passed_on(tmp_path, dtype):
    dump, network = captured(tmp_path / "run", lambda x, w: torch.exp((x * 0.3) @ w) / 7, dtype=dtype)
    run = exact_run(dump, network)
    x, w = (t.to(dtype).double().numpy() for t in (X, torch.linspace(0.1, 2, 8).reshape(4, 2)))
    np.testing.assert_allclose(value(run, dump, network, "div"), np.exp((x * 0.3) @ w) / 7, rtol=1e-14)
    assert not run.loose
    assert not run.refused


def test_a_value_is_kept_as_it_was_before_memory_was_written(tmp_path):
    def function(x, w):
        y = x * 2
        z = y + 1
        y.add_(5)
        return z * y

    dump, network = captured(tmp_path / "run", function)
    run = exact_run(dump, network)
    x = X.double().numpy()
    np.testing.assert_allclose(value(run, dump, network, "mul"), x * 2, rtol=1e-15)
    np.testing.assert_allclose(value(run, dump, network, "add_"), x * 2 + 5, rtol=1e-15)


def test_what_is_written_through_a_view_is_read(tmp_path):
    def function(x, w):
        buffer = torch.zeros(3, 8)
        buffer[:, 2:6] = x * 3
        return buffer.exp()

    dump, network = captured(tmp_path / "run", function)
    run = exact_run(dump, network)
    buffer = np.zeros((3, 8))
    buffer[:, 2:6] = X.double().numpy() * 3
    np.testing.assert_allclose(value(run, dump, network, "exp"), np.exp(buffer), rtol=1e-14)
    assert not run.loose


def test_an_input_that_stands_for_nothing_carries_rounding(tmp_path):
    dump, network = captured(tmp_path / "run", lambda x, w: (x @ w, w.exp()))
    product, curve = (
        network[i].values["out", 0] for i in sorted(network) if network[i].kind in ("aten.mm", "aten.exp")
    )
    run = exact_run(dump, network, outside={})
    assert product in run.loose
    assert curve not in run.loose, "weights are exact"
    (number,) = [n for n, record in run.outside.items() if record.tensor.shape == (3, 4)]
    given = exact_run(dump, network, outside={number: X.double() + 1})
    np.testing.assert_allclose(
        given.values[product].numpy(), (X.double() + 1) @ torch.linspace(0.1, 2, 8).reshape(4, 2).double(), rtol=1e-14
    )
    assert not given.loose
    assert product in exact_run(dump, network, outside={number: X.double()}, loose=[number]).loose


def test_random_numbers_are_those_that_were_drawn(tmp_path):
    dump, network = captured(tmp_path / "run", lambda x, w: nn.functional.dropout(x, 0.5, True) + torch.rand(3, 4))
    run = exact_run(dump, network)
    index = next(i for i in sorted(network) if network[i].kind == "aten.rand")
    recorded = next(r for r in dump.records if r.op_index == index and r.io == "out").tensor.real()
    np.testing.assert_array_equal(run.values[network[index].values["out", 0]].numpy(), recorded)
    assert network[index].values["out", 0] not in run.loose
    assert run.refused


def test_a_run_is_small_up_to_a_number_of_elements(tmp_path, monkeypatch):
    dump, network = captured(tmp_path / "run", lambda x, w: x @ w)
    assert is_small(dump, network)
    monkeypatch.setattr(exact, "MOST", 5)
    assert not is_small(dump, network)
    monkeypatch.setattr(exact, "MOST", 1 << 20)
    monkeypatch.setattr(exact, "MOST_WORK", 23)
    assert not is_small(dump, network), "3 x 2 elements of 4 products each"


def test_a_file_that_cannot_be_read_makes_no_exact_value(tmp_path):
    captured(tmp_path / "run", lambda x, w: (x * 2) @ w)
    for path in (tmp_path / "run").rglob("*.values"):
        path.write_bytes(path.read_bytes()[:8])
    dump = sgsdump.open_dump(f"{tmp_path / 'run'}@step=0")
    network = dump.network()
    run = exact_run(dump, network)
    product = next(network[i].values["out", 0] for i in sorted(network) if network[i].kind == "aten.mm")
    assert product in run.loose
