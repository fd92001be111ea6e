"""Networks to be compiled, and how a test compiles, runs and reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sgsdump import Dump, open_dump
from sgsdump.dumps.runs import Run
from sgsdump.dumps.trees import list_runs

torch = pytest.importorskip("torch", reason="PyTorch (the extra torch) is not installed")

from sgsdump.capture import torchair  # noqa: E402


class ConvNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True), torch.nn.MaxPool2d(2)
        )
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).mean((2, 3)))


class AddSub(torch.nn.Module):
    """The seed's network: an addition, and a subtraction in a with-block."""

    def forward(self, data0: Any, data1: Any) -> Any:
        add_01 = torch.add(data0, data1)
        with torchair.scope.data_dump():
            sub_01 = torch.sub(data0, data1)
        return add_01, sub_01 * 2


class Alias(torch.nn.Module):
    """What ``c`` is gets overwritten through a view of it."""

    def forward(self, x: Any) -> Any:
        c = x + 1
        kept = x * 3
        view = c.view(-1)
        a = torch.exp(x)
        view.mul_(2)
        return torch.cos(c) + a + kept.sum()


def compiled(model: Any, path: Path, **options: Any) -> Any:
    """The model behind the backend, with these options of ``dump_config``."""
    torch._dynamo.reset()
    config = torchair.CompilerConfig()
    for name, value in {"enable_dump": True, "dump_path": str(path), **options}.items():
        if value is not None:
            setattr(config.dump_config, name, value)
    return torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config))


def runs_of(path: Path) -> list[Run]:
    return list_runs(path)


def steps_of(path: Path) -> list[int | None]:
    return [run.step for run in list_runs(path)]


def opened(path: Path, step: int = 0) -> Dump:
    return open_dump(path, step=step)


def operators_in(dump: Dump) -> set[str]:
    return {name.rpartition(":")[0].rpartition(":")[0] for name in dump}


def values(dump: Dump, name: str) -> Any:
    return torch.from_numpy(dump[name].stored().copy())
