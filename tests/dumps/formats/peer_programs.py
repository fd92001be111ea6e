"""A small network, and its runs under DebugMode, transformers' model debugger and a writer of torchtitan's log.

``python peer_programs.py FOLDER`` writes what ``tests/golden/peers`` holds. torchtitan itself is not needed: the writer
follows ``docs/formats/peers.md``.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn

FAULTS = ("good", "eps", "weight", "gelu")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(self.act(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(3)])
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x) * scale


def network(fault: str = "good") -> nn.Module:
    """The network, always with the same weights, with one planted fault."""
    torch.manual_seed(0)
    net: Any = Net()
    if fault == "eps":
        net.layers[1].norm.eps = 1e-1
    if fault == "weight":
        with torch.no_grad():
            net.layers[2].fc1.weight[0, 0] += 0.5
    if fault == "gelu":
        net.layers[1].act = nn.GELU(approximate="tanh")
    return net


def data() -> torch.Tensor:
    return torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)) * 0.1


def debug_mode(
    net: nn.Module, x: torch.Tensor, hashes: dict[str, Any] | None = None, backward: bool = False, **options: Any
) -> str:
    """The text of DebugMode; without ``hashes``, no hashes are logged."""
    from torch.utils._debug_mode import DebugMode

    with DebugMode(**options) as mode:
        if hashes is None:
            net(x)
        else:
            with DebugMode.log_tensor_hashes(**hashes):
                y = net(x)
                if backward:
                    y.sum().backward()
    return str(mode.debug_string())


def debug_tree(net: nn.Module, x: torch.Tensor, folder: Path, use_repr: bool) -> Path:
    from transformers.model_debugging_utils import model_addition_debugger_context

    with model_addition_debugger_context(net, debug_path=str(folder), use_repr=use_repr, do_prune_layers=False):
        net.forward(x)
    return folder


def activation_log(net: nn.Module, x: torch.Tensor) -> str:
    """A log in the form of torchtitan's, of operators with float results that are no views; by this project."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names = {module: name for name, module in net.named_modules()}
    inside: list[str] = []
    blocks: list[str] = []
    counts: Counter[str] = Counter()
    makers: dict[int, str] = {}
    alive: list[torch.Tensor] = []

    def norm(tensor: torch.Tensor) -> str:
        return f"{tensor.double().abs().sum().item():.6e}"

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            read = [arg for arg in args if isinstance(arg, torch.Tensor)]
            hashes = [norm(tensor) for tensor in read]
            result = func(*args, **(kwargs or {}))
            results = [r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, torch.Tensor)]
            alive.extend(results)
            name = func._schema.name.partition("::")[2]
            if name in ("t", "view", "detach", "clone") or not results:
                return result
            module = inside[-1] if inside and inside[-1] else "<none>"
            key = f"{module}/op_{counts[module]}_{name}"
            counts[module] += 1
            wide = results[0].double()
            blocks.append(
                f"[{key}]\n  Shape: {results[0].shape}, Dtype: {results[0].dtype}\n"
                f"  L2 norm: {wide.norm().item():.6e}\n  Min: {wide.min().item():.6e}\n"
                f"  Max: {wide.max().item():.6e}\n  Mean: {wide.mean().item():.6e}\n"
                f"  Output hash: {', '.join(map(norm, results))}\n  Input hashes: {', '.join(hashes)}\n"
                f"  Input producers: {';'.join(makers.get(id(tensor), '') for tensor in read)}\n"
                f"  Location: programs/net.py:{20 + len(inside)}\n\n"
            )
            makers.update((id(tensor), key) for tensor in results)
            return result

    hooks = [
        hook
        for module in net.modules()
        for hook in (
            module.register_forward_pre_hook(lambda module, args: inside.append(names[module])),
            module.register_forward_hook(lambda module, args, result: [inside.pop(), None][1]),
        )
    ]
    with torch.no_grad(), Log():
        net(x)
    for hook in hooks:
        hook.remove()
    head = f"Total captured activations: {len(blocks)}\nExcluded ops dispatched: t, view\n{'=' * 80}\n\n"
    return head + "".join(blocks)


def main(folder: Path) -> None:
    everything = {"record_nn_module": True, "record_ids": True, "record_stack_trace": True}
    for fault in FAULTS:
        for name, options in (("full", {**everything, "hashes": {"hash_inputs": True}}), ("plain", {"hashes": {}})):
            file = folder / "debug_mode" / f"{name}_{fault}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(debug_mode(network(fault), data(), backward=True, **options))
        log = folder / "torchtitan" / fault / "rank_0_activations.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(activation_log(network(fault), data()))
        debug_tree(network(fault), data(), folder / "transformers" / f"text_{fault}", use_repr=True)
    for fault in FAULTS[:2]:
        debug_tree(network(fault), data(), folder / "transformers" / f"files_{fault}", use_repr=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
