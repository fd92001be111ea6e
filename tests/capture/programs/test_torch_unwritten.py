"""Memory that nothing has written yet is not dumped, and not compared; once something has, it is."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_runs import runner

from sgsdump import compare, open_dump

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

PROGRAM = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(64, 64)

    def forward(self, x):
        copied = torch.empty(64, 64).copy_(x)
        rows = torch.empty_like(x)
        rows[0] = x[0]
        first = rows[:1] * 2
        rows[1:] = 3
        return nn.functional.dropout(self.fc(copied) + rows, 0.5, True) + first

net = Net()
with torch.no_grad():
    for step in range(2):
        torch.manual_seed(1)
        print(net(torch.ones(64, 64)).sum().item())
"""


@pytest.fixture
def run(tmp_path, capfd):
    return runner(tmp_path, capfd)


@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_two_captures_are_equal_whatever_memory_holds(run, monkeypatch, content):
    captures = []
    for rubbish in ("85", "170"):
        monkeypatch.setenv("MALLOC_PERTURB_", rubbish)
        captures.append(run(PROGRAM, content=content))
    a, b = captures
    assert a.text == b.text
    for step in (0, 1):
        dumps = [open_dump(one.root / "tensors", step=step) for one in captures]
        comparison = compare(*dumps, inputs=True)
        assert all(not row.error for row in comparison.rows) and len(comparison) > 10
        assert not (comparison.failed or comparison.only_in_sample or comparison.only_in_benchmark)
        assert comparison.passes()
        assert sorted({name.partition("/")[0].partition("_")[2] for name in comparison.unwritten}) == [
            *("bernoulli_", "copy_", "copy__1", "fill_", "select_1", "slice", "slice_1"),
        ]
        assert {record.name for record in dumps[0].records if record.unwritten} == set(comparison.unwritten)
    lines = a.lines(step=0, op="copy_", slot=0)
    assert [(line["side"], line.get("unwritten", False)) for line in lines] == [("in", True), ("out", False)]
    assert "stored" not in lines[0] and lines[0]["file"]
    (first,) = a.lines(step=0, op="mul", side="in")  # the row that was written
    assert "unwritten" not in first
    assert any("uninitialised memory" in note for note in a.captured.notes)


def test_writing_behind_torchs_back_counts(run):
    result = run("""
class Net(nn.Module):
    def forward(self, x):
        y = torch.empty(1000)
        y.numpy()[:] = x.numpy()
        z = torch.empty(1000)
        z.data.copy_(x)
        return y + z

print(Net()(torch.arange(1000.0)).sum().item())
""")
    for slot in (0, 1):
        assert np.array_equal(result.values(op="add", side="in", slot=slot), np.arange(1000))


def test_what_is_written_between_steps_is_written(run):
    result = run("""
class Net(nn.Module):
    def forward(self, x):
        if not hasattr(self, "kept"):
            self.kept = torch.empty(1000).zero_()[:0].new_empty(1000)
        return self.kept * 1

net = Net()
net(torch.ones(1))
net.kept.zero_()
net(torch.ones(1))
""")
    (before, after) = (result.lines(op="mul", side="in", step=step)[0] for step in (0, 1))
    assert before.get("unwritten") and not after.get("unwritten")


def test_memory_that_a_program_frees_and_gets_back_is_unwritten(run):
    result = run("""
class Net(nn.Module):
    def forward(self, x):
        y = x * 2
        y.untyped_storage().resize_(0)
        y.untyped_storage().resize_(4000)
        z = y.view(10, 100)
        y.copy_(x)
        return z + 1

print(Net()(torch.arange(1000.0)).sum().item())
""")
    (freed,) = result.lines(op="view", side="in")
    (kept,) = result.lines(op="add", side="in")
    assert result.text == f"{sum(range(1000)) + 1000.0}\n"
    assert freed.get("unwritten") and not kept.get("unwritten")


class Mode(torch.utils._python_dispatch.TorchDispatchMode):
    """Tells of operators as the hook does."""

    def __init__(self):
        super().__init__()
        from sgsdump.capture.torchair.values import Unwritten, _Mode

        self.unwritten = Unwritten()
        self.inner = _Mode(self.unwritten)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.inner.__torch_dispatch__(func, types, args, kwargs)


SHAPE = (5, 6)


def everything(tensor):
    tensor.copy_(torch.zeros(SHAPE))


def row(tensor):
    tensor[2] = 1


def column(tensor):
    tensor[:, 1] = torch.zeros(5)


def gaps(tensor):
    tensor[::2, 1::3] = 4


def transposed(tensor):
    tensor.t()[3:, 2] = 1


def at_indices(tensor):
    tensor[torch.tensor([0, 3]), torch.tensor([5, 1])] = 2


def with_mask(tensor):
    tensor.masked_fill_(torch.arange(30).reshape(SHAPE) % 7 == 0, 1)


def scattered(tensor):
    tensor.scatter_(1, torch.tensor([[0, 3], [1, 1]]), 5.0)


def along(tensor):
    tensor.index_copy_(0, torch.tensor([4, 1]), torch.ones(2, 6))


def put(tensor):
    tensor.put_(torch.tensor([7, 29]), torch.ones(2))


def in_bits(tensor):
    tensor.view(torch.int32)[0, :3] = 0


def out(tensor):
    torch.add(torch.ones(6), 1, out=tensor[3])


def diagonal(tensor):
    tensor.fill_diagonal_(1)


def doubled(tensor):
    tensor[1:].mul_(2)


def with_row_of_itself(tensor):
    tensor[0].add_(tensor[2])


def lower(tensor):
    tensor.triu_()


def by_another_library(tensor):
    fill_rows(torch.ones(2, 6), tensor)


def by_an_undeclared_write(tensor):
    torch.ops.sgsdump_test.fill_last(tensor)


@torch.library.custom_op("sgsdump_test::fill_rows", mutates_args=("out",))
def fill_rows(x: torch.Tensor, out: torch.Tensor) -> None:
    out.numpy()[1:3] = x.numpy()


def fill_last(out):
    out[-1, 1:] = 3


LIBRARY = torch.library.Library("sgsdump_test", "FRAGMENT")
LIBRARY.define("fill_last(Tensor out) -> ()")  # as torch's own fsdp::all_gather_copy_in, whose schema tells no write
LIBRARY.impl("fill_last", fill_last, "CPU")

WRITES = [everything, row, column, gaps, transposed, at_indices, with_mask, scattered, along, put, in_bits, out]
WRITES += [diagonal, doubled, with_row_of_itself, lower, by_another_library, by_an_undeclared_write]
MOVES = {
    "same": lambda tensor: tensor,
    "clone": lambda tensor: tensor.t().contiguous(),
    "double": lambda tensor: tensor.double(),
    "cat": lambda tensor: torch.cat([torch.zeros(2, 6), tensor[1:4]]),
    "stack": lambda tensor: torch.stack([tensor[0], tensor[4]], 1),
    "index": lambda tensor: tensor[torch.tensor([4, 0, 4])],
    "select": lambda tensor: tensor.index_select(1, torch.tensor([1, 5])),
    "gather": lambda tensor: tensor.gather(1, torch.tensor([[0], [3], [5]])),
    "where": lambda tensor: torch.where(torch.arange(6) % 2 == 0, tensor, torch.zeros(SHAPE)),
    "pad": lambda tensor: torch.nn.functional.pad(tensor, (1, 0, 2, 0)),
    "flip": lambda tensor: tensor.flip(0).roll(2, 1).repeat(2, 1),
    "copy_": lambda tensor: torch.full((7, 6), 0.0)[1:6].copy_(tensor),
    "part": lambda tensor: torch.full((5, 6), 0.0).copy_(tensor[2]),
    "add": lambda tensor: tensor + tensor[:1],
    "exp_": lambda tensor: tensor.clone().exp_(),
    "cat out": lambda tensor: torch.cat([tensor[:2], torch.zeros(3, 6)], out=torch.full(SHAPE, 0.0)),
    "split": lambda tensor: torch.split_with_sizes_copy(tensor, [3, 3], 1)[1].reshape(3, 5),
    "chunk_cat": lambda tensor: torch._chunk_cat([tensor[:3], tensor[1:]], 0, 2),
    "foreach_copy_": lambda tensor: copied_each(torch.full(SHAPE, 0.0), tensor),
    "slice_scatter": lambda tensor: torch.slice_scatter(torch.zeros(SHAPE), tensor[:2], 0, 1, 3),
    "masked_fill": lambda tensor: tensor.masked_fill(torch.arange(6) % 2 == 0, 0),
    "index_put": lambda tensor: tensor.index_put((torch.tensor([0, 3]),), torch.zeros(6)),
}


def copied_each(out, tensor):
    torch._foreach_copy_([out], [tensor])
    return out


@settings(max_examples=120, deadline=None)
@given(
    writes=st.lists(st.sampled_from(WRITES), max_size=4),
    move=st.sampled_from(sorted(MOVES)),
    later=st.lists(st.sampled_from(WRITES), max_size=2),
)
def test_elements_are_unwritten_where_NaN_would_still_be(writes, move, later):
    """The same program with memory that is full of NaN."""
    mode = Mode()
    moved, told = [], []
    for oracle in (False, True):
        with contextlib.nullcontext() if oracle else mode:
            tensor = torch.full(SHAPE, float("nan")) if oracle else torch.empty(SHAPE)
            for write in writes:
                write(tensor)
            result = MOVES[move](tensor)
            for write in later:
                write(tensor)
        moved.append((tensor, result))
    for own, known in zip(*moved):
        places = own[..., -1], own[:2], own, own[-1:, -2:]
        of_known = known[..., -1], known[:2], known, known[-1:, -2:]
        told.append([(mode.unwritten.holds(a), bool(b.isnan().any())) for a, b in zip(places, of_known)])
    assert all(mine == oracles for pairs in told for mine, oracles in pairs), told


def test_memory_that_grows_is_unwritten_where_it_is_new():
    mode = Mode()
    with mode:
        tensor = torch.ones(10)
        tensor.resize_(1000)
        other = torch.empty(0)
        torch.add(torch.ones(3), 1, out=other)
    assert mode.unwritten.holds(tensor) and not mode.unwritten.holds(tensor[:10]) and not mode.unwritten.holds(other)
