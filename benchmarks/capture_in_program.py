"""What dumping from within a torch program costs: the backend of ``torchair``, ``register_hook`` of ``msit``.

    python benchmarks/capture_in_program.py            a ResNet-50-like net, a picture, ten forwards
    python benchmarks/capture_in_program.py --short    a picture of half the size, four forwards

All ways run in one process by turns, each of them first in turn, so that other work on the machine disturbs them alike;
medians, by the clock and by the processor. The compiled ways are ratios to the same program compiled by torch without
sgsdump (backend "eager", which runs the same operators), the others to the program as it is. ``idle`` is with all of it
in place and nothing to be dumped. The first forward, which compiles and writes the weights, does not count. Beside the
bytes a second of the tensors stand those of a plain copy: as many files of the same sizes, written one after the other.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capture_torch import copying
from rows import Row, is_short_with_torch, show

Forward = Callable[[Any], Any]
AIMS = {"idle": 1.01, "statistics": 2.0}


def compiled_ways(net: Any, folder: Path) -> dict[str, Forward]:
    import torch

    from sgsdump.capture import torchair

    def dumping(name: str, **options: Any) -> Forward:
        (folder / name).mkdir()
        config = torchair.CompilerConfig()
        for option, value in {"enable_dump": True, "dump_path": str(folder / name), **options}.items():
            setattr(config.dump_config, option, value)
        return torch.compile(copy.deepcopy(net), backend=torchair.get_npu_backend(compiler_config=config))

    return {
        "plain": torch.compile(copy.deepcopy(net), backend="eager"),
        "idle": dumping("idle", enable_dump=False),
        "statistics": dumping("statistics", dump_data="stats"),
        "tensors": dumping("tensors"),
    }


def hooked_ways(net: Any, folder: Path) -> dict[str, Forward]:
    from sgsdump.capture.msit import DumpConfig, register_hook

    def hooked(name: str, **options: Any) -> Forward:
        model = copy.deepcopy(net)
        register_hook(model, DumpConfig(**{"dump_path": str(folder / name), "token_range": range(1000), **options}))
        return model

    return {
        "plain": copy.deepcopy(net),
        "idle": hooked("idle", token_range=[10**6]),
        "statistics": hooked("statistics", dump_statistics_mode=1),
        "tensors": hooked("tensors"),
    }


def measure(title: str, ways: dict[str, Forward], x: Any, forwards: int, folder: Path) -> list[Row]:
    """Prints the table of the ways; the rows of it, by the medians of the clock."""
    import torch

    seconds: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    rates: list[tuple[float, float]] = []
    kept: set[Path] = set()
    with torch.no_grad():
        for turn in range(forwards + 1):
            names = list(ways)
            for way in names[turn % len(names) :] + names[: turn % len(names)]:
                began = time.perf_counter(), time.process_time()
                ways[way](x)
                taken = time.perf_counter() - began[0], time.process_time() - began[1]
                if not turn:
                    kept |= files_in(folder / way)
                    continue
                sizes = taken_away(files_in(folder / way) - kept)
                seconds[way].append(taken)
                if way == "tensors":
                    rates.append((sum(sizes) / taken[0], sum(sizes) / copying(folder, sizes)))
    medians = {way: [statistics.median(column) for column in zip(*figures)] for way, figures in seconds.items()}
    print(f"{title:<26}{'ms a forward':>14}{'ratio':>8}{'by the processor':>18}")
    for way, (clock, processor) in medians.items():
        ratios = f"{clock / medians['plain'][0]:>8.2f}{processor / medians['plain'][1]:>18.2f}"
        print(f"{way:<26}{clock * 1000:>14.1f}{ratios}")
    dump, copied = (statistics.median(values) / 2**20 for values in zip(*rates))
    print(f"tensors: {dump:.0f} MiB/s while the program runs, a plain copy {copied:.0f} MiB/s")
    return [
        Row(f"{title}: {way}", clock, medians["plain"][0], AIMS.get(way))
        for way, (clock, _) in medians.items()
        if way != "plain"
    ]


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def taken_away(files: set[Path]) -> list[int]:
    """The sizes of a forward's files, without those that are links to earlier ones. The disk would fill with them."""
    sizes = [path.stat().st_size for path in files if path.stat().st_nlink == 1]
    for path in files:
        path.unlink()
    return sizes


def main() -> None:
    short = is_short_with_torch(__doc__ or "")
    if short is None:
        return
    size, forwards = (112, 4) if short else (224, 10)
    import torch
    from resnet_torch import Net

    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(1, 3, size, size)
    rows: list[Row] = []
    for title, ways in (("compiled (torchair)", compiled_ways), ("modules (register_hook)", hooked_ways)):
        with tempfile.TemporaryDirectory() as name:
            rows += measure(title, ways(net, Path(name)), x, forwards, Path(name))
    show(rows)


if __name__ == "__main__":
    main()
