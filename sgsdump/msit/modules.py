"""The modules of a torch model: their names from ``root`` on, their device, and the tree that msit writes of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from sgsdump.errors import ConfigError
from sgsdump.msit.dump_config import DumpConfig
from sgsdump.registry import hint

ROOT = "root"


def named_modules(torch: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """Every module under its name, a shared one under its first; scripted ones, which run no hooks, are reported."""
    scripted = []
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            scripted.append(f"{ROOT}.{name}")
        else:
            yield f"{ROOT}.{name}" if name else ROOT, module
    if scripted:
        more = f" and {len(scripted) - 1} more" if len(scripted) > 1 else ""
        warnings.warn(f"{scripted[0]}{more} is scripted: nothing inside is dumped", stacklevel=5)


def check_names(names: Mapping[str, Any], config: DumpConfig) -> None:
    if config.kinds == ("module",) and config.layer_name is not None and not any(map(config.wants_layer, names)):
        raise ConfigError(f"no module is named {config.layer_name!r}{hint(config.layer_name, list(names))}")
    classes = tuple(config.module_list or ())
    if classes and not any(isinstance(module, classes) for module in names.values()):
        there = {type(module).__name__: None for module in names.values()}
        wanted = ", ".join(one.__name__ for one in classes)
        raise ConfigError(f"no module is of the class {wanted}{hint(wanted, there)}")


def tree_of(model: Any, names: Mapping[str, Any], order: Mapping[str, int]) -> dict[str, Any]:
    """The document of ``model_tree.json``: children in the ``order`` in which they first ran, others behind."""

    never = len(names)

    def node(name: str, module: Any) -> tuple[int, dict[str, Any]]:
        inner = sorted((node(f"{name}.{child}", one) for child, one in module.named_children()), key=_place)
        # a list of modules does not run itself
        place = order.get(name, min(map(_place, inner), default=never))
        children = [one for _, one in inner]
        return place, {"name": name, "type": type(module).__name__, "children": children}

    return node(ROOT, model)[1]


def _place(node: tuple[int, dict[str, Any]]) -> int:
    return node[0]


def device_of(model: Any) -> str:
    """The device that the model is on, as in folder names: cpu, npu0."""
    for tensor in (*model.parameters(), *model.buffers()):
        return str(tensor.device).replace(":", "")
    return "cpu"


def is_dumped(device: str, number: int | None) -> bool:
    if number is None or device == "cpu" or device == f"{device.rstrip('0123456789')}{number}":
        return True
    warnings.warn(f"nothing is dumped: the model is on {device}, device_id is {number}", stacklevel=4)
    return False
