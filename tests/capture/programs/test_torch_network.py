"""What a round knows of a network that was looked at before is what it would know of one that it sees first."""

import gc
import importlib
import sys
import weakref

import pytest

from sgsdump.capture.programs.program import HOOK

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")


@pytest.fixture(scope="module")
def network():
    folders = [str(HOOK), str(HOOK / "for_torch")]
    sys.path[:0] = folders
    yield importlib.import_module("sgsdump_torch_network")
    for folder in folders:
        sys.path.remove(folder)
    for name in [name for name in sys.modules if name.startswith("sgsdump_")]:
        del sys.modules[name]


def small():
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Sequential(torch.nn.Linear(4, 2))
    )
    net.tied = net[0]
    net.lazy = torch.nn.LazyLinear(3)
    net.sparse = torch.nn.Parameter(torch.eye(4).to_sparse())
    net.none = None
    return net


def other_weight(net):
    net[0].weight = torch.nn.Parameter(torch.ones(4, 4))


def other_memory(net):
    net[0].weight.data = torch.ones(4, 4)


def other_shape(net):
    net[1].running_mean.resize_(2, 2)


def other_module(net):
    net[2][0] = torch.nn.Linear(4, 2)


def one_more(net):
    net[2].append(torch.nn.ReLU())


def other_name(net):
    net.head = net[2]
    del net[2]


def other_weight_name(net):
    net[0].scale = net[0].weight
    del net[0].weight


def is_materialised(net):
    net.lazy(torch.ones(1, 5))


CHANGES = (
    *(other_weight, other_memory, other_shape, other_module, one_more, other_name, other_weight_name),
    is_materialised,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_seen(network, change):
    net = small()
    before = network.Network(net)
    again = network.Network(net, before.layout)
    assert again.layout is before.layout
    assert (again.paths, again.owners) == (before.paths, before.owners)
    change(net)
    after, first = network.Network(net, again.layout), network.Network(net)
    assert (after.paths, after.owners) == (first.paths, first.owners)
    assert (after.paths, after.owners) != (before.paths, before.owners)


def test_a_network_of_another_is_not_it(network):
    one, other = small(), small()
    assert network.Network(other, network.Network(one).layout).paths == network.Network(other).paths


def test_what_a_round_learns_stays_in_it(network):
    net, more = small(), torch.nn.Linear(2, 2)
    before = network.Network(net)
    count = len(before.paths)
    before.learn(more, "Linear")
    again = network.Network(net, before.layout)
    assert again.layout is before.layout and len(again.paths) == count < len(before.paths)


def test_gradients_are_those_of_now(network):
    net = small()
    before = network.Network(net)
    net[0].weight.grad = torch.ones(4, 4)
    again = network.Network(net, before.layout)
    assert again.layout is before.layout and again.is_graded() and not network.Network(torch.nn.ReLU()).is_graded()


def test_a_layout_keeps_no_network_alive(network):
    net = small()
    layout = network.Network(net, network.Network(net).layout).layout
    held = weakref.ref(net), weakref.ref(net[0].weight)
    del net
    gc.collect()
    assert layout.paths and [reference() for reference in held] == [None, None]


def test_a_function_has_no_modules(network):
    assert not network.Network(None).paths and not network.Network(None).is_graded()
