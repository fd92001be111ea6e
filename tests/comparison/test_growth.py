"""The work of ``compare`` grows with the number of layers, not with its square. Lines that ran are counted, in all
threads: a loop within one line counts too, and time is none of it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sgsdump import save_dump
from sgsdump.cli import main
from sgsdump.dumps.dump import Record
from sgsdump.tensors.tensor import Tensor

FEW, TIMES = 200, 4


def lines_of(run: Callable[[], int]) -> int:
    """How many lines of Python ran."""
    counter = itertools.count()

    def trace(frame, event, argument):
        if event == "line":
            next(counter)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    return next(counter)


def written(path: Path, values: np.ndarray, name: str = "layer", every: int = 1, chain: bool = False) -> str:
    """A dump of a layer for each row; with ``chain`` it records that each layer reads the one before."""
    tensors = [Tensor.of(f"{name}{i}", row) for i, row in enumerate(values)]
    records = []
    for i in range(0, len(tensors), every):
        if chain:
            records.append(Record("in", 0, i, "Conv", tensors[i - 1] if i else Tensor.of("data", values[0])))
        records.append(Record("out", 0, i, "Conv", tensors[i]))
    save_dump(records, path, "sigmastar_bin", on_loss="ignore")
    return str(path)


CASES = {
    "healthy": ({}, []),
    "every layer listed as bad": ({}, ["--max-rmse", "1e-9", "--only-bad"]),
    "half is missing": ({"every": 2}, ["--allow-missing"]),
    "a chain": ({"chain": True}, ["--max-rmse", "0.1"]),
    "half of a chain is missing": ({"every": 2, "chain": True}, ["--max-rmse", "0.1"]),
    "paired by value": ({"name": "other"}, ["--match-by-value"]),
    "files": ({}, ["--csv", "o.csv", "--json", "o.json", "--junit", "o.xml", "--markdown", "o.md"]),
}


@pytest.mark.parametrize("case", CASES)
def test_four_times_the_layers_are_four_times_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, options = CASES[case]
    rng = np.random.default_rng(0)

    def lines(count: int) -> int:
        values = rng.standard_normal((count, 16)).astype(np.float32)
        noisy = values * (1 + 1e-4 * rng.standard_normal(values.shape).astype(np.float32))
        benchmark = written(Path(f"b{count}.bin"), values, chain=kind.get("chain", False))
        sample = written(Path(f"s{count}.bin"), noisy, **kind)
        return lines_of(lambda: main(["compare", sample, benchmark, *options]))

    lines(10)  # what is imported and cached at first
    few, many = lines(FEW), lines(TIMES * FEW)
    assert many < 1.1 * TIMES * few, f"{many / few:.2f} times as many"
