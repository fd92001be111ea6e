"""One run of a framework model, written as the SDK's scripts write it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.dumps.dump import Record
    from sgsdump.executors.runner import Layer
    from sgsdump.models.feeds.feeds import Feed


@dataclass(frozen=True)
class Form:
    """What a dump looks like.

    text               values printed, in one file of all and one per tensor in NHWC/ and NCHW/ beside it.
    caffe              as caffe_dump_data.py: labelled by tensor names, the first input left out, shape.txt.
    own_outputs_first  in the order of onnx_dump_data.py.
    """

    text: bool = False
    caffe: bool = False
    own_outputs_first: bool = False


@dataclass
class Summary:
    """What went by while a dump was written: tensors, and those with NaN or Inf."""

    tensors: int = 0
    not_finite: dict[str, str] = field(default_factory=dict)


def write_run(
    layers: Iterator[Layer], feed: Feed, target: Path, suffix: str, form: Form, slots: Mapping[str, int]
) -> Summary:
    """Write one run; ``suffix`` distinguishes its files from another picture's."""
    from itertools import chain

    from sgsdump.dumps.formats.sigmastar import binary
    from sgsdump.dumps.formats.sigmastar.layer_files import write_shapes, write_text
    from sgsdump.dumps.io import open_dump
    from sgsdump.executors.runner import Layer

    caffe, summary = form.caffe, Summary()
    fed = [Layer(name, name, "", array) for name, array in feed.items()]
    inputs = list(records(fed[:1] if caffe else fed, Summary(), {}))
    if caffe:
        # Caffe's nodes have no names of their own, and its further inputs are blobs like any other.
        layers = (replace(layer, node=layer.name) for layer in chain(fed[1:], layers))
    stream = records(layers, summary, slots)
    if form.text:
        folders = (target.with_name(f"NHWC{suffix}"), target.with_name(f"NCHW{suffix}"))
        write_text(stream, target, inputs, caffe, folders)
    else:
        binary.write(stream, target, binary.FRAMEWORK)
    if caffe:
        write_shapes([*inputs, *open_dump(target).records], target.with_name(f"shape{suffix}.txt"))
    return summary


def records(layers: Iterable[Layer], summary: Summary, slots: Mapping[str, int]) -> Iterator[Record]:
    """The records of a framework model's dump: all tensors outputs, numbered as they come, labelled by their nodes.

    slots  which output of its node a tensor is; 0 when it is not in it.
    """
    from sgsdump.dumps.dump import Record
    from sgsdump.tensors.tensor import Tensor
    from sgsdump.tensors.types import NCHW

    for index, layer in enumerate(layers):
        layout = NCHW if layer.array.ndim == 4 else None
        tensor = Tensor.of(layer.name, layer.array, layout=layout, op_type=layer.op_type)
        yield Record("out", slots.get(layer.name, 0), index, layer.node or layer.op_type, tensor)
        summary.tensors += 1
        what = not_finite(layer.array)
        if what:
            summary.not_finite[layer.name] = what


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
