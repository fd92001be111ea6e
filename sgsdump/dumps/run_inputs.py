"""Compact sketches of a run's inputs, to detect whether two dumps were made from the same input.

A sketch holds a checksum of the values, the means of up to 256 equal segments, and 65 quantiles. The comparison ignores
scale and offset, so the bytes of an image match its normalised values. Two inputs differ if the means do not correlate
and the sorted values do not agree. Sorted values agree even if the layouts differ.

``sgsdump dump`` stores the sketches in the graph beside a dump (``graph_file.py``), as JSON under ``sgsdump.inputs``::

    {"image": {"checksum": "9f…", "count": 27648, "means": [0.1, …], "quantiles": [-2.1, …]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from sgsdump.dumps.dump import Dump
from sgsdump.dumps.onnx_network import OnnxNetwork
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.tensors.dtypes import is_complex, is_number

KEY = "sgsdump.inputs"
# Least correlation of the means of equal inputs. Measured: two images of one scene 0.8, one image by two resizers 0.99.
ALIKE = 0.9
_MEANS, _QUANTILES = 256, 65
_NEAR = 0.02  # largest difference of the sorted values of equal inputs, relative to their spread


@dataclass(frozen=True)
class Sketch:
    """Sketch of one input: BLAKE2b of the float32 values, their number, segment means and quantiles."""

    checksum: str
    count: int
    means: tuple[float, ...]
    quantiles: tuple[float, ...]

    def likeness(self, other: Sketch) -> float:
        """Return 1 for equal values, else the correlation of the means; NaN if undefined."""
        if self.checksum == other.checksum:
            return 1.0
        if self.count != other.count:
            return float("nan")
        ends = np.array([self.quantiles, other.quantiles])
        spread = np.ptp(ends, axis=1)
        if not (np.isfinite(spread).all() and spread.all()):
            return float("nan")
        sorted_apart = np.abs(np.subtract(*((ends - ends[:, :1]) / spread[:, None]))).max()
        means = np.array([self.means, other.means])
        if sorted_apart <= _NEAR:
            return 1.0
        centred = means - means.mean(axis=1, keepdims=True)
        norms = np.sqrt(np.square(centred).sum(axis=1)).prod()
        return float((centred[0] * centred[1]).sum() / norms) if norms else float("nan")


def sketch_of(values: np.ndarray) -> Sketch:
    """Return the sketch of an input's values, in the axis order of the dump."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    wide = flat.astype(np.float64)
    edges = np.linspace(0, flat.size, min(_MEANS, flat.size) + 1).astype(int)
    means = np.add.reduceat(wide, edges[:-1]) / np.diff(edges) if flat.size else wide
    ends = np.quantile(wide, np.linspace(0, 1, _QUANTILES)) if flat.size else wide
    import hashlib

    checksum = hashlib.blake2b(flat.tobytes(), digest_size=16).hexdigest()
    return Sketch(checksum, flat.size, tuple(map(float, means)), tuple(map(float, ends)))


def as_json(sketches: Mapping[str, Sketch]) -> dict[str, Any]:
    return {name: asdict(sketch) for name, sketch in sketches.items()}


def from_json(document: object) -> dict[str, Sketch]:
    """Return the sketches from a document that ``as_json`` wrote; skip malformed entries."""
    sketches: dict[str, Sketch] = {}
    for name, facts in document.items() if isinstance(document, Mapping) else ():
        try:
            means, quantiles = (tuple(map(float, facts[key])) for key in ("means", "quantiles"))
            sketch = Sketch(str(facts["checksum"]), int(facts["count"]), means, quantiles)
        except (TypeError, ValueError, LookupError, OverflowError):
            continue
        if len(quantiles) == _QUANTILES and len(means) == min(_MEANS, sketch.count):
            sketches[str(name)] = sketch
    return sketches


def fed(dump: Dump) -> dict[str, Sketch]:
    """Return the sketches of a run's inputs: from the dump's records, else from the graph beside the dump.

    Only inputs before the first output count. A later input without a producer in the dump may be the output of a layer
    that was fused.
    """
    sketches: dict[str, Sketch] = {}
    first = {record.name for record in takewhile(lambda record: record.io == "in" or record.constant, dump.records)}
    for name, tensor in dump.inputs.items():
        if (
            name not in first
            or tensor.statistics is not None
            or is_complex(tensor.dtype)
            or not is_number(tensor.dtype)
        ):
            continue
        try:
            sketches[name] = sketch_of(tensor.stored())
        except FileChanged:
            raise
        except SgsdumpError:
            continue
    network = dump.network()
    return sketches or (from_json(network.fed) if isinstance(network, OnnxNetwork) else {})


def least_alike(sample: Dump, benchmark: Dump) -> tuple[str, float] | None:
    """Return the benchmark's input that differs most between two runs, and its likeness; None if no input differs.

    Inputs are paired by name. If each side has a single input, these two are paired.
    """
    sides = fed(sample), fed(benchmark)
    names = {name: name for name in sides[1] if name in sides[0]}
    if not names and len(sides[0]) == len(sides[1]) == 1:
        names = dict(zip(sides[1], sides[0]))
    found = [(name, sides[0][other].likeness(sides[1][name])) for name, other in names.items()]
    return min((item for item in found if item[1] < ALIKE), key=lambda item: item[1], default=None)
