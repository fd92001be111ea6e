"""The sessions that run a model's segments: each made when it is asked for, and kept or let go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple

import onnxruntime as ort

from sgsdump.executors.onnx_runtime.lent_weights import OwnFile, Values, lend_all
from sgsdump.executors.onnx_runtime.ort_value import type_proto
from sgsdump.executors.onnx_runtime.session_options import unoptimised
from sgsdump.executors.onnx_runtime.shared_arena import use_shared_arena
from sgsdump.executors.onnx_runtime.versions import header
from sgsdump.files.mapped import identity
from sgsdump.models.model import Model
from sgsdump.models.passes.segment import Segment, sub_model


class SegmentSessions:
    """providers  onnxruntime's execution providers, by name.
    threads    of one session; 0 is every core.
    keep       every session for the next time, with its weights; else it goes with its last user.

    Raises ModelError when the model needs a newer onnxruntime.
    """

    def __init__(self, model: Model, providers: Sequence[str], threads: int, keep: bool):
        graph = model.proto.graph
        self._header = header(model.proto)
        self._weights = {t.name: t for t in graph.initializer} | {t.values.name: t for t in graph.sparse_initializer}
        self._folder = model.folder
        self._file = own_file(model)
        self._providers, self._threads, self._keep = list(providers), threads, keep
        self._kept: dict[tuple[str, ...], Ready] = {}
        self._making = Lock()

    def of(self, part: Segment, reads: Reads) -> Ready:
        """A session that runs the segment on such inputs. Raises ModelError, and one of REFUSALS."""
        if not self._keep:
            return self._made(part, reads)
        with self._making:
            kept = self._kept.get(part.makes)
            if not kept or kept.reads != reads:
                kept = self._kept[part.makes] = self._made(part, reads)
            return kept

    def _made(self, part: Segment, reads: Reads) -> Ready:
        options = unoptimised(self._folder)
        use_shared_arena(options)
        options.intra_op_num_threads = self._threads
        # Idle threads would spin, and take the processors from who makes the next session or writes the last tensors.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        stubs, lent = lend_all(options, {name: self._weights[name] for name in part.weights}, self._file)
        data = sub_model(self._header, part, stubs, {name: type_proto(*each) for name, each in reads.items()})
        session = ort.InferenceSession(data, options, providers=self._providers)
        types = {info.name: info.type for info in session.get_outputs()}
        return Ready(reads, tuple(types[name] for name in part.makes), session, lent)


Reads = Mapping[str, tuple[str, list[int] | None]]
"""The type and shape of what a segment reads."""


class Ready(NamedTuple):
    """A session, what it ``reads``, the types of what it ``makes``, and the weights it uses in place."""

    reads: Reads
    makes: tuple[str, ...]
    session: ort.InferenceSession
    lent: Values


def own_file(model: Model) -> OwnFile | None:
    """The model's file, where its own folder is that of the external data: big weights may lie in it."""
    file = model.path.resolve()
    return OwnFile(file, identity(file.stat())) if model.folder == file.parent and file.is_file() else None
