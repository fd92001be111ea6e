"""The contract of a runtime: a framework that runs its own model format as a whole and keeps every tensor.

A runtime works in its own process (``worker.py``): a model file is untrusted, and native code of the frameworks may
crash on a damaged file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

Key = tuple[str | int, ...]


class Runtime(ABC):
    """A model file at ``path``, ready to run.

    tensors  keys (``Native.keys``) of all tensors that will be requested.

    The constructor raises MissingExtra if the framework's package is missing, and ModelError or an exception of the
    framework for a file that it cannot load.
    """

    @abstractmethod
    def __init__(self, path: str, tensors: Sequence[Key]): ...

    @abstractmethod
    def run(self, feed: Mapping[Key, np.ndarray]) -> None:
        """Run the model once; ``feed`` holds every input in the model's own types."""

    @abstractmethod
    def value(self, key: Key) -> np.ndarray:
        """Return a tensor of the last run as stored in the model.

        Raises ModelError, or an exception of the framework.
        """
