"""A checksum changes with each byte of a tensor, and where parts of it change places; by the kernel and by torch."""

import importlib
import sys

import pytest

from sgsdump.capture.program import HOOK

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")


@pytest.fixture(params=["", "1"], ids=["kernel", "torch"])
def checksum_of(request, monkeypatch):
    monkeypatch.setenv("SGSDUMP_NO_KERNEL", request.param)
    monkeypatch.syspath_prepend(str(HOOK))
    monkeypatch.syspath_prepend(str(HOOK / "for_torch"))
    module = importlib.import_module("sgsdump_torch_checksum")
    assert (module.kernel is None) or not request.param
    yield module.checksum_of
    for name in [name for name in sys.modules if name.startswith("sgsdump_")]:
        del sys.modules[name]


@pytest.mark.parametrize("size", [1, 255, 257, 1000, 2560, 4000, 4096, 5001])
def test_every_byte_counts(checksum_of, size):
    tensor = torch.arange(size, dtype=torch.int64).to(torch.uint8)
    before, seen = checksum_of(tensor), set()
    assert checksum_of(tensor.clone()) == before
    for place in range(size):
        tensor[place] += 1
        seen.add(checksum_of(tensor))
        tensor[place] -= 1
    assert len(seen) > 1 or size == 1
    assert before not in seen and checksum_of(tensor) == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex128])
def test_places_count(checksum_of, dtype):
    tensor = torch.randn(64, 150, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = {
        checksum_of(one.contiguous()) for one in (tensor, tensor.flip(0), tensor.flip(1), tensor.roll(1, 1), -tensor)
    }
    assert len(found) == 5 and None not in found


def test_signs_that_change_together_count(checksum_of):
    tensor = torch.ones(4096)
    before = checksum_of(tensor)
    for step in (1, 2, 64, 512, 4095):
        other = tensor.clone()
        other[::step] *= -1
        assert checksum_of(other) != before


def test_memory_is_read_in_its_order_and_gaps_are_told(checksum_of):
    tensor = torch.randn(2, 8, 16, 16, generator=torch.Generator().manual_seed(0))
    assert checksum_of(tensor.to(memory_format=torch.channels_last)) != checksum_of(tensor)
    assert checksum_of(tensor.permute(3, 1, 0, 2)) == checksum_of(tensor)
    assert checksum_of(tensor[:, ::2]) is None
