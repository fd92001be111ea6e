"""The contract of a runtime: a framework that runs a model file of its own as a whole and keeps every tensor.

A runtime works in a process of its own (``worker.py``): the file is anyone's, and the frameworks' native code may end
the process that reads a damaged one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

Key = tuple[str | int, ...]


class Runtime(ABC):
    """A model of ``path`` that is ready to run. Making one raises MissingExtra without the framework's package, and
    ModelError or anything of the framework's own for a file that it does not take.

    tensors  the keys (``Native.keys``) of all that will be asked for.
    """

    @abstractmethod
    def __init__(self, path: str, tensors: Sequence[Key]): ...

    @abstractmethod
    def run(self, feed: Mapping[Key, np.ndarray]) -> None:
        """Run once; ``feed`` holds every input, in the model's own types."""

    @abstractmethod
    def value(self, key: Key) -> np.ndarray:
        """A tensor of the last run as the model stores it. Raises ModelError, or anything of the framework's own."""
