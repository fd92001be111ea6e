"""A dump: the tensors of one run of one model on one input, in file order, and a mapping of its outputs by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sgsdump.errors import one_line
from sgsdump.registry import hint
from sgsdump.tensors.tensor import Tensor


@dataclass(frozen=True)
class Record:
    """One tensor in its place in the file: input or output ``slot`` of operator ``op_index``.

    The same tensor stands once as an output and again as the input of each consumer. ``constant`` marks weights,
    biases and shape parameters. ``cut`` marks a header that the old writer cut at 255 bytes: its op_index is inferred,
    and its op_type, constant and the end of its name may be lost.
    """

    io: Literal["in", "out"]
    slot: int
    op_index: int
    op_type: str
    tensor: Tensor
    constant: bool = False
    cut: bool = False

    @property
    def name(self) -> str:
        return self.tensor.info.name


class Dump(Mapping[str, Tensor]):
    """Records in file order; as a mapping, the output tensors by name.

    When several output records bear one name, ``dump[name]`` is the **first** of them in file order (a later one is
    reachable through ``records``). Names that are never an output stand in ``inputs`` (the network's inputs) or
    ``constants``. ``format`` and ``variant`` say how the file was written: saving it again gives its bytes back.
    ``notes`` is what the reader wants said, a line each: files skipped, bytes left over, tensors the run did not dump.
    """

    def __init__(
        self,
        records: Sequence[Record],
        format: str = "",
        variant: Any = None,
        path: Path | None = None,
        notes: Iterable[str] = (),
    ):
        self.records: tuple[Record, ...] = tuple(records)
        self.format = format
        self.variant = variant
        self.path = path
        self.notes: tuple[str, ...] = tuple(map(one_line, notes))
        self._outputs: dict[str, Tensor] = {}
        for record in self.records:
            if record.io == "out" and not record.constant:
                self._outputs.setdefault(record.name, record.tensor)

    @property
    def inputs(self) -> dict[str, Tensor]:
        """Variable tensors that no operator of the dump puts out: the network's inputs."""
        return self._first(constant=False)

    @property
    def constants(self) -> dict[str, Tensor]:
        """Weights, biases and shape parameters, by name."""
        return self._first(constant=True)

    def _first(self, constant: bool) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for record in self.records:
            if record.constant == constant and record.name not in self._outputs:
                found.setdefault(record.name, record.tensor)
        return found

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._outputs[name]
        except KeyError:
            raise KeyError(f"no output tensor {name!r} in this dump{hint(name, self._outputs)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        where = f" of {self.path}" if self.path else ""
        return f"<Dump{where}: {len(self.records)} records, {len(self)} outputs>"
