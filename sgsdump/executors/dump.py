"""``dump``: every layer of a model on one input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.models.network import feeds_of, named_network

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Unpack

    from sgsdump.dumps.dump import Dump, Record
    from sgsdump.executors.runner import Layer
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.model import Model
    from sgsdump.models.network import Beside, Data
    from sgsdump.tensors.types import Quant


@dataclass(frozen=True)
class ModelFacts:
    """By a tensor's name.

    slots    which output of its node it is; 0 when it is not in it.
    quants   the scale that a quantised model has for it.
    dynamic  the names of its scale and zero point, where the model finds these as it runs.
    layout   the order of the axes of 4-D tensors, of all of them.
    """

    slots: Mapping[str, int] = field(default_factory=dict)
    quants: Mapping[str, Quant] = field(default_factory=dict)
    dynamic: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    layout: str = "NCHW"


@dataclass
class Summary:
    """Counts taken while a dump was written: tensors, and those with NaN or Inf."""

    tensors: int = 0
    not_finite: dict[str, str] = field(default_factory=dict)


def dump(model: str | Path, data: Data, **beside: Unpack[Beside]) -> Dump:
    """Every layer's tensor of a model as it computes it, in topological order, in memory; as ``sgsdump dump``, which
    writes it as it runs. ``save_dump`` writes what this returns.

    model   ONNX, Caffe's ``.prototxt`` (with ``weight_file``), TFLite, OpenVINO.
    data    of one run; see ``calibrate``.
    beside  see ``calibrate``.

    Raises SgsdumpError: what cannot be read, fed or run.
    """
    from sgsdump.dumps.dump import Dump
    from sgsdump.executors.onnx_runtime.observed_branches import BranchGuard, with_branches
    from sgsdump.executors.table import open_runner
    from sgsdump.models.model import graph_inputs, open_model
    from sgsdump.progress import bars
    from sgsdump.sidecars import input_config

    network = named_network(model, data, beside)
    opened = open_model(network.model, network.weight_file, in_place=True, native=True, part=network.part)
    config = input_config.read(network.input_config) if network.input_config else None
    feeds = feeds_of(network.source(config), graph_inputs(opened.proto))
    opened = with_branches(opened, lambda: iter(feeds))
    label, feed = one_of(feeds)
    BranchGuard(opened).check(feed, label)
    runner = open_runner(opened)
    slots = {name: slot for node in opened.proto.graph.node for slot, name in enumerate(node.output) if name}
    facts, summary = replace(facts_of(opened), slots=slots), Summary()
    with bars().bar(f"dump {label}", "layer") as advance:
        layers = runner.run(feed, opened.blobs, advance)
        outputs = list(records_of(layers, facts, summary))
    notes = [f"not dumped: {skip.name} ({skip.op_type}): {skip.reason}" for skip in runner.skipped.values()]
    notes += [f"not finite: {name}: {counts}" for name, counts in summary.not_finite.items()]
    return Dump(outputs, notes=notes)


def one_of(feeds: Feeds) -> tuple[str, Mapping[str, np.ndarray]]:
    """The only run. Raises InputError for several."""
    from sgsdump.errors import InputError

    if len(feeds) != 1:
        raise InputError(f"there are {len(feeds)} inputs, and one dump is of one; call it for each")
    return feeds[0]


def facts_of(model: Model) -> ModelFacts:
    """Without slots."""
    from sgsdump.models.quantised_model import dynamic_of, quants_of

    return ModelFacts({}, quants_of(model), dynamic_of(model.proto), model.layout)


def records_of(layers: Iterable[Layer], facts: ModelFacts, summary: Summary) -> Iterator[Record]:
    """The records of a framework model's dump: all tensors outputs, numbered as they come, labelled by their nodes; the
    integers of a quantised model as the floats that they mean."""
    from sgsdump.dumps.dump import Record
    from sgsdump.dumps.formats.sigmastar.record_header import word_of
    from sgsdump.executors.runner import with_found_scales
    from sgsdump.tensors.tensor import Tensor

    for index, layer in enumerate(with_found_scales(layers, facts.dynamic)):
        layout = facts.layout if layer.array.ndim == 4 else None
        quant = facts.quants.get(layer.name)
        tensor = Tensor.of(layer.name, layer.array, layout=layout, quant=quant, op_type=layer.op_type)
        if quant is not None and (quant.dtype is None or word_of(quant.dtype) is None):
            tensor = Tensor.of(layer.name, tensor.real(), layout=layout, op_type=layer.op_type)
        yield Record("out", facts.slots.get(layer.name, 0), index, layer.node or layer.op_type, tensor)
        summary.tensors += 1
        if counts := not_finite(layer.array):
            summary.not_finite[layer.name] = counts


def not_finite(array: np.ndarray) -> str:
    """``3 NaN, 1 Inf of 100 values``; an empty string when all are finite."""
    import numpy as np

    from sgsdump.tensors.dtypes import is_float

    if not is_float(array.dtype):
        return ""
    # The sum is finite whenever nothing is wrong, short of an overflow, and it is several times faster than a count.
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):
            return ""
    nan, inf = np.count_nonzero(np.isnan(array)), np.count_nonzero(np.isinf(array))
    return f"{nan} NaN, {inf} Inf of {array.size} values" if nan or inf else ""
