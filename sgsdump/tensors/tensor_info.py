"""What is known of a tensor at once, without its values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sgsdump.tensors.device.layout import Origin
from sgsdump.tensors.quant import Quant


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a tensor without touching its values.

    shape is that of what ``stored`` gives, or None when the file does not say; dtype is that of the stored values;
    layout is ``NHWC``, ``NCHW``, another vendor's name for the order the values lie in, or None (unknown, or plain);
    op_type is the producing operator's, or ""; origin is the logical tensor when layout is a device's and it is known.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: np.dtype
    layout: str | None = None
    quant: Quant | None = None
    op_type: str = ""
    origin: Origin | None = None
