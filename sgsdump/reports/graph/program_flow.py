"""Dataflow of a program's dump, from the identities of the values that its operators read and write."""

from __future__ import annotations

from collections.abc import Hashable, Set

from sgsdump.dumps.dump import Dump


def sources_of(names: Set[str], dump: Dump | None) -> dict[str, tuple[str, ...]]:
    """Return what feeds each tensor; empty if the dump records no identities.

    An input is fed by the output that made its value, an output by the inputs of its operator. The output of a module
    is fed by the operator inside the module that made it.

    Parameters
    ----------
    names : set of str
        Names of the compared tensors in the dump.
    dump : Dump or None
        Dump whose operators are searched.
    """
    network = dump.network() if dump is not None else None
    if dump is None or not network:
        return {}
    makers: dict[Hashable, str] = {}
    inputs: dict[int, list[str]] = {}
    sources: dict[str, tuple[str, ...]] = {}
    for record in dump.records:
        operator = network.get(record.op_index)
        if operator is None or record.name not in names:
            continue
        identity = operator.values.get((record.io, record.slot))
        maker = makers.get(identity, "") if identity is not None else ""
        if record.io == "in":
            inputs.setdefault(record.op_index, []).append(record.name)
            if maker:
                sources[record.name] = (maker,)
        elif operator.is_module and maker:
            sources[record.name] = (maker,)
        else:
            sources[record.name] = tuple(inputs.get(record.op_index, ()))
            if identity is not None:
                makers[identity] = record.name
    return sources if makers and any(name in sources for names in inputs.values() for name in names) else {}
