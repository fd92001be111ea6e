"""What a dump section of acl.json means for a program on any device, and which of its settings mean nothing there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sgsdump.capture.configs.acl_json import AclDump
from sgsdump.capture.control import DumpControl

EXCEPTION = (
    "dump_scene {} has no effect: an exception of the card cannot be met without the card, and torch_npu has that dump "
    "on already"
)


def control_of(acl: AclDump) -> tuple[DumpControl, tuple[str, ...]]:
    """The control, and a sentence for each setting that is accepted without effect.

    Operators of entries without model_name are dumped of every model, of entries without layer all are.
    """
    control = DumpControl(
        enabled=acl.need_dump,
        mode=acl.mode,  # type: ignore[arg-type]  # checked
        steps=acl.steps,
        content="stats" if acl.data == "stats" else "tensor",
    )
    if acl.scene == "watcher":
        control = replace(
            control,
            scene="watcher",
            mode="output",
            names=_unique(name for entry in acl.entries for name in entry.layer),
            watched=_unique(name for entry in acl.entries for name in entry.watcher_nodes),
        )
    elif acl.debug:
        control = replace(control, scene="overflow", mode="all")
    elif acl.scene:
        control = replace(control, enabled=False)
    elif not acl.single_operators:
        control = replace(control, models=tuple((entry.model_name, entry.layer) for entry in acl.entries))
    return control, tuple(_without_effect(acl))


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _without_effect(acl: AclDump) -> list[str]:
    notes = []
    if acl.scene and acl.scene != "watcher":
        notes.append(EXCEPTION.format(acl.scene))
    if acl.level == "kernel":
        notes.append("dump_level kernel has no effect: below an operator there is no kernel of the card's")
    if acl.kernel_data:
        notes.append("dump_kernel_data has no effect: there is no kernel of the card's that prints")
    return notes
