"""What the conformance tests share: how they open an executor and how they judge what it gives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from sgsdump.executors.base import Executor


class Harness:
    """``make`` gives a new executor, not yet initialised; ``open`` the one that the tests use."""

    tolerance = 1e-5
    configs: Mapping[str, Any] | None = None
    any_batch = True

    @abstractmethod
    def make(self) -> Executor: ...

    def open(self) -> AbstractContextManager[Executor]:
        executor = self.make()
        executor.init(self.configs)
        return executor

    def check(self, arrays: list[np.ndarray], names: list[str], wanted: Mapping[str, np.ndarray]) -> None:
        assert len(arrays) == len(names)
        for name, array in zip(names, arrays):
            assert isinstance(array, np.ndarray), name
            assert (array.dtype, array.shape) == (wanted[name].dtype, wanted[name].shape), name
            if wanted[name].dtype.kind != "f":
                np.testing.assert_array_equal(array, wanted[name], err_msg=name)
                continue
            largest = np.abs(wanted[name]).max()
            np.testing.assert_allclose(array, wanted[name], rtol=0, atol=self.tolerance * largest, err_msg=name)


def assert_raises(kind: type[Exception], words: str, act: Callable[[], object]) -> None:
    """``act`` raises an error of this kind, in one line that contains ``words``."""
    try:
        act()
    except kind as error:
        assert words in str(error), f"{words!r} is not in: {error}"
        assert "\n" not in str(error).strip(), f"more than one line: {error}"
        return
    raise AssertionError(f"no {kind.__name__} with {words!r} was raised")
