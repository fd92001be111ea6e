"""The program that runs some of them: ``python run.py NAME … [--plant FACTOR] [--watch FILE]``.

Each network is called twice as a whole, so that a program is two steps of a dump, named after it. --plant multiplies
one weight of each; --watch saves what hooks of its own, on every module, see each module give, and which weight was
meant.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.simplefilter("ignore")

import torch  # noqa: E402

from programs.table import PROGRAMS  # noqa: E402

TIMES = 2


def let_torchvision_load() -> None:
    """One whose compiled part is of another torch has what libraries import it for, but its operators are missing."""
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in OPERATORS_OF_TORCHVISION:
            library.define(f"{name}() -> Tensor")
        kept.append(library)


OPERATORS_OF_TORCHVISION = (
    *("nms", "qnms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_align"),
    *("_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d", "_deform_conv2d_backward"),
)
kept: list[Any] = []


def whole(name: str, network: Any, way: str) -> Any:
    """A module of this name that runs the network once."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(way == "train"):
            return (self.network.generate if way == "generate" else self.network)(*args, **kwargs)

    module = type(name, (torch.nn.Module,), {"forward": forward})()
    module.network = network
    return module.train(way == "train")


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, field, None) for field in value.__dataclass_fields__]
    return [one for inner in value for one in tensors_in(inner)] if isinstance(value, (list, tuple)) else []


def planted(network: Any) -> str:
    """The module whose weight is to be changed: the middle one of those with a matrix or a kernel of their own."""
    named = dict(network.named_modules())
    owners = Counter(id(weight) for module in named.values() for weight in module._parameters.values())
    found = [
        name
        for name, module in named.items()
        for weight in [module._parameters.get("weight")]
        if weight is not None and weight.dim() > 1 and owners[id(weight)] == 1
        if not isinstance(module, torch.nn.Embedding)
    ]
    return found[len(found) // 2] if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--plant", type=float)
    parser.add_argument("--watch")
    args = parser.parse_args()
    torch.set_num_threads(1)
    let_torchvision_load()
    seen: dict[str, Any] = {}
    for name in args.names:
        torch.manual_seed(0)
        network, given = PROGRAMS[name].made()
        program = whole(name, network, PROGRAMS[name].way)
        target = planted(program)
        if args.plant and target:
            with torch.no_grad():
                program.get_submodule(target).weight.mul_(args.plant)
        if args.watch:
            modules = [path for path, _ in program.named_modules()]
            seen[name] = {"target": target, "modules": modules, "outputs": watch(program)}
        positional = given.pop("", ())
        for _ in range(TIMES):
            torch.manual_seed(1)
            result = program(*positional, **given)
            print(name, [one.double().sum().item() for one in tensors_in(result)][:8])
    if args.watch:
        with open(args.watch, "wb") as file:
            pickle.dump(seen, file)


def watch(program: Any) -> list[tuple[str, list[Any]]]:
    """What every module gives, copied at once: a list that grows while the program runs."""
    outputs: list[tuple[str, list[Any]]] = []

    def hook(path: str) -> Any:
        return lambda module, given, out: outputs.append((path, [copied(one) for one in tensors_in(out)]))

    for path, module in program.named_modules():
        if path:
            module.register_forward_hook(hook(path))
    return outputs


def copied(tensor: torch.Tensor) -> Any:
    """Values as numpy has them; of what it has no type for, as float32."""
    plain = tensor.detach().clone().contiguous()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()


if __name__ == "__main__":
    main()
