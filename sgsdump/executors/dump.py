"""The public function ``dump``: run a model on one input and collect the tensor of every layer."""

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
    """Facts about a model's tensors. The keys of the mappings are tensor names.

    slots    Output index within the node; 0 for a tensor that is not listed.
    quants   Scale and zero point of each tensor in a quantised model.
    dynamic  Names of the scale and the zero point tensors that the model computes at run time.
    layout   Axis order of all 4-D tensors.
    """

    slots: Mapping[str, int] = field(default_factory=dict)
    quants: Mapping[str, Quant] = field(default_factory=dict)
    dynamic: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    layout: str = "NCHW"


@dataclass
class Summary:
    """Summary of a dump: the number of written tensors, and the counts of NaN and Inf per tensor."""

    tensors: int = 0
    not_finite: dict[str, str] = field(default_factory=dict)


def dump(model: str | Path, data: Data, **beside: Unpack[Beside]) -> Dump:
    """Run a model on one input and return the tensor of every layer, in topological order.

    The returned dump is held in memory. ``save_dump`` writes the dump to a file. The command ``sgsdump dump`` needs
    less memory than this function, because the command writes each tensor to the file while the model runs.

    Parameters
    ----------
    model : str or Path
        ONNX, Caffe ``.prototxt`` (with ``weight_file``), TFLite or OpenVINO model.
    data : str, Path, array, dict of arrays or iterable
        The input of exactly one run, in any form that ``calibrate`` describes.
    **beside
        ``preprocess``, ``input_config``, ``weight_file``, ``model_inputs``, ``model_outputs`` and ``strict_sdk``, as in
        ``calibrate``.

    Returns
    -------
    Dump
        One record per tensor, in the dtype of the model. Integer tensors of a quantised model keep their scale. Tensors
        of types that no dump format can store are converted to floats. ``notes`` lists tensors that were skipped and
        tensors with NaN or Inf.

    Raises
    ------
    SgsdumpError
        If the model or the data cannot be read, if the data do not match the inputs, if the data are for several runs,
        or if the model cannot run.

    Examples
    --------
    ::

        import sgsdump

        result = sgsdump.dump("model.onnx", "cat.jpg", preprocess="preprocess.py", input_config="input_config.ini")
        for record in result.records:
            print(record.name, record.tensor.shape)
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
    """Return the only run. Raises InputError unless the data contain exactly one set of inputs."""
    from sgsdump.errors import InputError

    if len(feeds) != 1:
        raise InputError(
            f"the data contain {len(feeds)} sets of inputs, but dump takes one set. Call dump once per set."
        )
    return feeds[0]


def facts_of(model: Model) -> ModelFacts:
    """Return the facts about a model's tensors, without the output indices (``slots``)."""
    from sgsdump.models.quantised_model import dynamic_of, quants_of

    return ModelFacts({}, quants_of(model), dynamic_of(model.proto), model.layout)


def records_of(layers: Iterable[Layer], facts: ModelFacts, summary: Summary) -> Iterator[Record]:
    """Yield the records of a model's dump: one record per node output, with its number and the name of its node.

    Integer tensors of a quantised model are converted to floats, unless the dump format can store integers of this
    type with a scale.
    """
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
    """Return a text such as ``3 NaN, 1 Inf of 100 values``, or "" if all values are finite."""
    import numpy as np

    from sgsdump.tensors.dtypes import is_float

    if not is_float(array.dtype):
        return ""
    # A finite sum proves that all values are finite, and is several times faster than counting.
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):
            return ""
    nan, inf = np.count_nonzero(np.isnan(array)), np.count_nonzero(np.isinf(array))
    return f"{nan} NaN, {inf} Inf of {array.size} values" if nan or inf else ""
