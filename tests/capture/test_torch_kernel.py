"""Statistics by torch's own threads: the same digits for any number of them, and no threads in a forked process."""

import math
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

BLOCK = 1 << 15


@pytest.fixture
def module(monkeypatch):
    from sgsdump.capture.program import HOOK

    monkeypatch.delenv("SGSDUMP_NO_KERNEL", raising=False)
    for folder in (HOOK / "for_torch", HOOK):
        monkeypatch.syspath_prepend(str(folder))
    import sgsdump_torch_kernel

    if sgsdump_torch_kernel.kernel is None:
        pytest.skip("the kernel is not built")
    return sgsdump_torch_kernel


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
def test_a_forked_process_takes_statistics_without_the_threads(module):
    tensor = torch.arange(4.0 * BLOCK)
    expected = module.statistics(tensor.data_ptr(), tensor.numel(), 0)
    forked = os.fork()
    if not forked:
        same = not module._parallel and module.statistics(tensor.data_ptr(), tensor.numel(), 0) == expected
        os._exit(0 if same else 1)
    assert os.waitpid(forked, 0)[1] == 0


def test_arguments_that_make_no_sense_are_refused(module):
    for threads in (0, -1, 1 << 20):
        with pytest.raises(ValueError, match="no elements"):
            module.kernel.statistics(0, 1, 0, 0, threads)
