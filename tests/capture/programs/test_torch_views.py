"""What is taken of views of every kind, with writes between, is what copies of them hold: by the kernel and by torch
alone. Memory ends where nothing may be read any more, so that a byte too many ends the test."""

import ctypes
import importlib
import json
import mmap
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgsdump.capture.programs.program import HOOK

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex64]


@pytest.fixture(params=["", "1"], ids=["kernel", "torch"])
def hook(request, monkeypatch):
    monkeypatch.setenv("SGSDUMP_NO_KERNEL", request.param)
    monkeypatch.syspath_prepend(str(HOOK))
    monkeypatch.syspath_prepend(str(HOOK / "for_torch"))
    taking, round = (importlib.import_module(f"sgsdump_torch_{name}") for name in ("taking", "round"))
    yield taking.Taking, round.Round
    for name in [name for name in sys.modules if name.startswith("sgsdump_")]:
        del sys.modules[name]


class Session:
    """Keeps what it is told of tensors."""

    def __init__(self, content):
        self.content = content
        self.told = []
        self.control = {}

    def moments(self, side):
        return ("before",)

    def era(self):
        return object()  # so that it is told of each tensor again

    def tensor(self, port, values, data=None):
        if data is not None:
            values.stored = bytes(data)
        self.told.append((values.why, values.stored, values.stats))
        return ""

    def tensors(self, *facts):
        return ""


class Guarded:
    """Memory whose last byte is followed by none that may be read."""

    def __init__(self, size):
        page = mmap.PAGESIZE
        room = (size + page - 1) // page * page
        self._map = mmap.mmap(-1, room + page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address + room), page, 0):
            pytest.skip("mprotect does not work here")
        self.bytes = np.frombuffer(self._map, np.uint8)[room - size : room]


@st.composite
def views(draw, count):
    """Size, stride and offset of a view within ``count`` elements; strides of 0, overlapping ones and gaps too."""
    sizes, strides, left = [], [], count - 1
    for _ in range(draw(st.integers(0, 4))):
        size = draw(st.integers(1, 9))
        stride = draw(st.sampled_from([0, 1, 2, 3, 8, 9, 24, 64]))
        while (size - 1) * stride > left:
            stride //= 2
        left -= (size - 1) * stride
        sizes.append(size)
        strides.append(stride)
    if draw(st.booleans()):  # dense, its axes in another order
        dense = [draw(st.integers(1, 5)) for _ in range(4)]
        order = draw(st.permutations(range(4)))
        whole = 1
        steps = [0] * 4
        for axis in reversed(order):
            steps[axis] = whole
            whole *= dense[axis]
        if whole <= count:
            sizes, strides, left = dense, steps, count - whole
    return sizes, strides, draw(st.integers(0, left))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("content", ["tensor", "stats"])
def test_views_and_writes(hook, content, data):
    Taking, Round = hook
    dtype = data.draw(st.sampled_from(TYPES))
    count = data.draw(st.sampled_from([8, 100, 700]))
    memory = Guarded(count * dtype.itemsize)
    memory.bytes[:] = np.random.default_rng(0).integers(0, 64, memory.bytes.size)
    base = torch.from_numpy(memory.bytes).view(dtype)
    shown = [base.as_strided(*data.draw(views(count))) for _ in range(data.draw(st.integers(1, 3)))]
    session = Session(content)
    taking, operator = Taking(session), object()
    round = Round((0, 0), torch.nn.Module(), "Net", {})
    for action in data.draw(st.lists(st.sampled_from(["look", "write", "sneak", "step"]), max_size=7)):
        place = data.draw(st.integers(0, count - 1))
        if action == "write":
            view = data.draw(st.sampled_from(shown))
            if view.numel() and 0 not in view.stride():
                index = tuple(data.draw(st.integers(0, size - 1)) for size in view.shape)
                view[index] = data.draw(st.integers(0, 100))
                taking.memories.written(view)
        elif action in ("sneak", "step"):
            if action == "step" or content == "tensor":  # statistics are believed within a step
                memory.bytes[place * dtype.itemsize] ^= 1
            if action == "step":
                round = Round((round.step + 1,) * 2, round.root, "Net", {})
        session.told.clear()
        taking.take(round, operator, "in", "before", shown)
        for view, (why, stored, stats) in zip(shown, session.told):
            assert not why
            copy = view.clone(memory_format=torch.contiguous_format)
            if content == "tensor":
                assert stored == copy.reshape(-1).view(torch.uint8).numpy().tobytes()
            else:
                same_statistics(copy, stats)


def same_statistics(copy, stats):
    if copy.is_complex():
        assert not stats
        return
    values = copy.double().numpy()
    known = {name: float(value) for name, value in json.loads(stats).items()}
    expected = {
        "max": values.max(),
        "min": values.min(),
        "mean": values.mean(),
        "l2norm": np.sqrt(np.square(values).sum()),
    }
    for name, value in expected.items():
        assert np.isclose(known[name], value, rtol=1e-9, atol=1e-12, equal_nan=True), (name, known, expected)


def test_a_view_that_repeats_one_element_is_read_where_it_is(hook):
    memory = Guarded(4)
    one = torch.from_numpy(memory.bytes).view(torch.float32)
    for content in ("tensor", "stats"):
        session = Session(content)
        taking, round = hook[0](session), hook[1]((0, 0), torch.nn.Module(), "Net", {})
        taking.take(round, object(), "in", "before", [one.expand(192, 192)])
        assert not session.told[0][0]


def test_what_would_take_more_room_than_there_is_is_left_out(hook):
    for content in ("tensor", "stats"):
        session = Session(content)
        taking, round = hook[0](session), hook[1]((0, 0), torch.nn.Module(), "Net", {})
        taking.take(round, object(), "in", "before", [torch.ones(1).expand(1 << 20, 1 << 20), torch.ones(2)])
        (why, stored, stats), (other, *_) = session.told
        assert "the tensor is an expanded view: it is more than" in why and not stored and not stats and not other


def test_memory_that_was_given_back_is_not_read(hook):
    tensor = torch.ones(1 << 16)
    tensor.untyped_storage().resize_(0)
    for content in ("tensor", "stats"):
        session = Session(content)
        taking, round = hook[0](session), hook[1]((0, 0), torch.nn.Module(), "Net", {})
        taking.take(round, object(), "in", "before", [tensor])
        assert "freed" in session.told[0][0]


def test_memory_that_is_not_aligned_is_checked_too(hook):
    checksum_of = importlib.import_module("sgsdump_torch_statistics").checksum_of
    raw = np.zeros(8 * 1000 + 1, np.uint8)[1:]
    tensor = torch.frombuffer(raw, dtype=torch.float64)
    before = checksum_of(tensor)
    raw[4321] = 7
    assert None not in (before, checksum_of(tensor)) and checksum_of(tensor) != before
