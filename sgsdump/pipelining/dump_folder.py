"""Writing a dump folder: arrays into ``inputs/`` and ``outputs/``, and a ``dump_info.json`` that keeps up with them.

One folder holds one run. When the folder has a dump already, the first thing written sets the old one aside, whole, as
``FOLDER_DATE``: nothing stale is ever compared, and a dump that took an hour is not deleted by a second call. What was
told about a tensor before in the same run is replaced.

The JSON is rewritten whole at most once a second and at the end, so that a run that is killed leaves a valid one of
what is there, and a dump of N tensors does not cost N rewrites of N entries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump import dump_info
from sgsdump.dump_info import DumpInfo, InputEntry, OutputEntry
from sgsdump.errors import OutputError
from sgsdump.layout import NCHW
from sgsdump.output import check_folder, make_folder, replacing, set_aside
from sgsdump.pipelining.given_inputs import Given
from sgsdump.pipelining.not_dumped import NotDumped
from sgsdump.pipelining.topology_index import NodeOutput

SECONDS = 1.0


class DumpFolder:
    """A folder being written; ``meta`` is the JSON's ``meta_info`` without the time.

    Raises OutputError when it cannot be written.
    """

    def __init__(self, root: Path, meta: Mapping[str, Any], told: Callable[[str], None] | None = None):
        self.root = root
        if is_dump(root):
            check_folder(root)
            aside = set_aside(root)
            if told:
                told(f"the earlier dump in {root} is now {aside}")
        self._meta = {"date_time": datetime.now().strftime(dump_info.DATE), **meta}
        self._inputs: dict[str, InputEntry] = {}
        self._outputs: dict[tuple[str, bool], OutputEntry] = {}
        for part in (dump_info.INPUTS, dump_info.OUTPUTS):
            make_folder(root / part)
        self.flush()

    def put_input(self, name: str, given: Given) -> None:
        file = f"{dump_info.INPUTS}/{dump_info.inputs_file(name)}"
        _save(self.root / file, given.array)
        facts = dump_info.facts(given.array)
        self._inputs[name] = InputEntry(name, facts, given.seed, given.low, given.high, given.use_external, file)
        self._flush_if_due()

    def put_output(self, output: NodeOutput, array: np.ndarray, with_index: bool) -> None:
        file = self._file(output, with_index)
        _save(self.root / file, array)
        layout = NCHW if array.ndim == 4 else None
        self._outputs[output.name, with_index] = OutputEntry(
            *(output.name, dump_info.facts(array), output.node, output.op_type, output.inputs),
            *(output.index, file, layout),
        )
        self._flush_if_due()

    def put_lost(self, lost: NotDumped, output: NodeOutput | None, with_index: bool) -> None:
        """Say why a tensor is not there; ``output`` is None for one without an index."""
        index = None if output is None else output.index
        if output is not None:
            (self.root / self._file(output, with_index)).unlink(missing_ok=True)
        self._outputs[lost.name, with_index] = OutputEntry(
            lost.name, None, lost.node, lost.op_type, topo_index=index, error=lost.reason, failed=lost.failed
        )
        self._flush_if_due()

    def flush(self) -> None:
        """Bring dump_info.json up to date."""
        info = DumpInfo(self._meta, tuple(self._inputs.values()), tuple(self._outputs.values()))
        dump_info.write(info, self.root)
        self._written = time.monotonic()

    def _file(self, output: NodeOutput, with_index: bool) -> str:
        index = output.index if with_index else None
        return f"{dump_info.OUTPUTS}/{dump_info.outputs_file(index, output.name)}"

    def _flush_if_due(self) -> None:
        if time.monotonic() - self._written >= SECONDS:
            self.flush()


def is_dump(root: Path) -> bool:
    """Whether a folder holds a dump, or what is left of one."""
    return any((root / part).exists() for part in (dump_info.JSON_NAME, dump_info.INPUTS, dump_info.OUTPUTS))


def _save(path: Path, array: np.ndarray) -> None:
    with replacing(path) as file:
        try:
            np.save(file, array, allow_pickle=False)
        except ValueError as error:
            raise OutputError(f"cannot write {path}: {error}") from None
