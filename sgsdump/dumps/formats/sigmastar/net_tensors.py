"""Which of parse_net's tensors a record of a dump is."""

from __future__ import annotations

from sgsdump.dumps.dump import Record
from sgsdump.sidecars.parse_net import NetTensor, ParseNet


def net_tensor(record: Record, net: ParseNet) -> NetTensor | None:
    """What parse_net says of a record; of a name that the dump cut, what begins so when it is only one."""
    if not record.cut:
        return net.tensors.get(record.name)
    tensors = [tensor for name, tensor in net.tensors.items() if name.startswith(record.name)]
    return tensors[0] if len(tensors) == 1 else None
