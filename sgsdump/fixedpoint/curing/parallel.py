"""Number of images that a cure runs at the same time, limited by the memory of their tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto

from sgsdump.files.process import cores
from sgsdump.models.graph import infer_types, weight_names
from sgsdump.models.passes.segment import tensor_bytes

# Memory for all tensors of the images that run at the same time. A run needs less, because it frees tensors early, but
# the integers of a fixed model need two to five times as much.
RUN_BYTES = 1 << 30


def threads_for(proto: ModelProto, feed: Mapping[str, np.ndarray]) -> int:
    """Return one thread per core, or fewer if the tensors of all images would exceed RUN_BYTES."""
    types = infer_types(proto, {name: array.shape for name, array in feed.items()})
    weights = weight_names(proto.graph)
    size = sum(size for name, size in tensor_bytes(types).items() if name not in weights)
    return max(1, min(cores(), RUN_BYTES // max(1, size)))
