"""Writing a run into its dump folder while it goes on, a line for each tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from sgsdump.executors.runner import Layer
from sgsdump.pipeline.console_lines import input_line, output_line
from sgsdump.pipeline.dump_folder import DumpFolder
from sgsdump.pipeline.inputs.given import Given
from sgsdump.pipeline.running.not_dumped import NotDumped
from sgsdump.pipeline.topology_index import NodeOutput
from sgsdump.progress import SILENT, Progress


@dataclass(frozen=True, eq=False)
class WrittenRun:
    """The arrays that were to be kept, by name, and what is missing in the folder now."""

    arrays: dict[str, np.ndarray]
    not_dumped: list[NotDumped]


def begun(layers: Iterable[Layer | NotDumped]) -> Iterator[Layer | NotDumped]:
    """The same layers, the first made already: what is wrong from the start is raised before an earlier dump is set
    aside."""
    rest = iter(layers)
    first = list(islice(rest, 1))
    return chain(first, rest)


def write_run(
    dump: DumpFolder,
    layers: Iterable[Layer | NotDumped],
    inputs: Mapping[str, Given],
    places: Mapping[str, NodeOutput],
    with_index: bool,
    keep: bool,
    missing: Sequence[NotDumped] = (),
    progress: Progress = SILENT,
) -> WrittenRun:
    """Write the layers as they come, and the inputs unless they are in the folder already.

    places      the topological index of the tensors that have one; ``with_index`` puts it in the files' names.
    keep        whether the arrays are returned.
    missing     what earlier calls of the same run did not dump.

    Raises what making the layers raises and OutputError; the folder is then as before.
    """
    arrays: dict[str, np.ndarray] = {}
    not_dumped = {lost.name: lost for lost in missing}
    with dump.writing():
        if not dump.begun:
            _write_inputs(dump, inputs, progress)
        for layer in layers:
            place = places.get(layer.name)
            not_dumped.pop(layer.name, None)
            if isinstance(layer, NotDumped):
                not_dumped[layer.name] = layer
                dump.put_lost(layer, place, with_index)
                continue
            dump.put_output(layer, place, with_index)
            index = place.index if with_index and place is not None else None
            progress.say(output_line(index, layer.name, layer.array.shape, layer.array.dtype))
            if keep:
                arrays[layer.name] = layer.array
    return WrittenRun(arrays, list(not_dumped.values()))


def _write_inputs(dump: DumpFolder, inputs: Mapping[str, Given], progress: Progress) -> None:
    for name, each in inputs.items():
        dump.put_input(name, each)
        progress.say(input_line(name, each.array.shape, each.array.dtype))
