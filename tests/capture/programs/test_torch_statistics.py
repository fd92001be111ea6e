"""Statistics by torch's own threads have the same digits for any number of them; a checksum, by the kernel or by torch,
changes with each byte of a tensor and where two of its parts are swapped."""

import importlib
import math
import os
import sys

import numpy as np
import pytest
from platforms import unix_only

from sgsdump.capture.programs.program import HOOK

torch = pytest.importorskip("torch", reason="torch (the extra torch) is not installed")

BLOCK = 1 << 15


@pytest.fixture
def module(monkeypatch):
    monkeypatch.delenv("SGSDUMP_NO_KERNEL", raising=False)
    for folder in (HOOK / "for_torch", HOOK):
        monkeypatch.syspath_prepend(str(folder))
    import sgsdump_torch_statistics

    if sgsdump_torch_statistics.kernel is None:
        pytest.skip("the kernel is not built")
    return sgsdump_torch_statistics


def by_threads(module, tensor, threads):
    return module.kernel.statistics(tensor.data_ptr(), tensor.numel(), 0, module._parallel, threads)


@pytest.mark.parametrize("count", [1, BLOCK, BLOCK + 1, 2 * BLOCK, 40 * BLOCK - 7])
def test_any_number_of_threads_gives_the_same_digits(module, count):
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(count))
    values = tensor.numpy().astype(np.float64)
    expected = values.min(), values.max(), math.fsum(values), math.fsum(values * values)
    alone = module.kernel.statistics(tensor.data_ptr(), count, 0)
    assert alone == pytest.approx(expected, rel=1e-11, abs=1e-9)
    for threads in (1, 2, 3, 7):
        assert by_threads(module, tensor, threads) == alone


@pytest.mark.parametrize("place", [0, BLOCK, 5 * BLOCK - 1])
def test_extremes_and_nan_in_any_block_count(module, place):
    tensor = torch.zeros(5 * BLOCK)
    for value in (9.0, -9.0):
        tensor[place] = value
        assert by_threads(module, tensor, 2) == (min(value, 0), max(value, 0), value, 81)
    tensor[place] = math.nan
    assert all(map(math.isnan, by_threads(module, tensor, 2)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@unix_only
def test_a_forked_process_takes_statistics_without_the_threads(module):
    tensor = torch.arange(4.0 * BLOCK)
    expected = module.sums_of_memory(tensor.data_ptr(), tensor.numel(), 0)
    forked = os.fork()
    if not forked:
        same = not module._parallel and module.sums_of_memory(tensor.data_ptr(), tensor.numel(), 0) == expected
        os._exit(0 if same else 1)
    assert os.waitpid(forked, 0)[1] == 0


def test_arguments_that_make_no_sense_are_refused(module):
    for threads in (0, -1, 1 << 20):
        with pytest.raises(ValueError, match="no elements"):
            module.kernel.statistics(0, 1, 0, 0, threads)


@pytest.fixture(params=["", "1"], ids=["kernel", "torch"])
def checksum_of(request, monkeypatch):
    monkeypatch.setenv("SGSDUMP_NO_KERNEL", request.param)
    monkeypatch.syspath_prepend(str(HOOK))
    monkeypatch.syspath_prepend(str(HOOK / "for_torch"))
    module = importlib.import_module("sgsdump_torch_statistics")
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


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_elements_come_in_the_order_of_memory(checksum_of, axes):
    tensor = torch.arange(24).view(2, 3, 4)
    tensors = importlib.import_module("sgsdump_torch_tensors")
    flat = tensors.in_memory_order(tensor.permute(axes))
    assert flat.data_ptr() == tensor.data_ptr() and flat.tolist() == list(range(24))
    assert tensors.in_memory_order(tensor[:, ::2].permute(axes)).tolist() == tensor[:, ::2].flatten().tolist()
    assert tensors.in_memory_order(tensor.as_strided((2, 3), (1, 1))).tolist() == [0, 1, 1, 2, 2, 3]


def test_memory_is_read_in_its_order_and_gaps_are_told(checksum_of):
    tensor = torch.randn(2, 8, 16, 16, generator=torch.Generator().manual_seed(0))
    assert checksum_of(tensor.to(memory_format=torch.channels_last)) != checksum_of(tensor)
    assert checksum_of(tensor.permute(3, 1, 0, 2)) == checksum_of(tensor)
    assert checksum_of(tensor[:, ::2]) is None
