"""A complete executor of your own: a pretend accelerator that keeps its weights in float16.

Copy this file, put the calls of your SDK where ``ReferenceEvaluator`` stands, and register the class (own_executor.md).
It runs as it is:

    python docs/own_executor.py [model.onnx]

prints how far each output of the model is from onnxruntime's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator  # here: import your SDK, or in on_init when it may be absent

from sgsdump.errors import ConfigError
from sgsdump.executors.base import Configs, Executor
from sgsdump.executors.conformance import small_feed, small_model
from sgsdump.executors.table import open_executor
from sgsdump.models.external_data import in_one_piece

PRECISIONS = ("float32", "float16")


class ToyAccelerator(Executor):
    # The name in messages; the entry point's name is what users type.
    name = "toy"
    # What ``init`` takes. Options that are not listed are refused by the base class.
    init_options = {"weights": "how weights are kept: float32, the default, or float16"}  # noqa: RUF012

    def on_init(self, configs: Configs) -> None:
        """Open the device and check what the options say. Raise sgsdump.errors.MissingExtra for an absent package."""
        self.precision = configs.get("weights", "float32")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"executor toy: weights is {' or '.join(PRECISIONS)}, not {self.precision!r}")
        self.program: Any = None

    def on_load(self, model: onnx.ModelProto, configs: Configs, folder: str | None) -> None:
        """Compile. The model is the caller's: change a copy. Its outputs may be without type and shape."""
        self.program = None
        compiled = onnx.ModelProto()
        compiled.CopyFrom(in_one_piece(model, folder))  # external data read in
        if self.precision == "float16":
            for tensor in compiled.graph.initializer:
                if tensor.data_type == onnx.TensorProto.FLOAT:
                    rounded = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
                    tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
        # (The plain evaluator; what it gets wrong is put right in sgsdump/executors/reference.py.)
        # Whatever is raised here or in on_execute becomes one line, "executor toy cannot load the model: ...".
        self.program = ReferenceEvaluator(compiled)

    def on_execute(self, output_names: list[str], feed: Mapping[str, np.ndarray], configs: Configs) -> list[np.ndarray]:
        """Run. The feed has been checked; return new arrays, in the order of output_names."""
        values = self.program.run(output_names, dict(feed))
        return [np.array(value) for value in values]

    def on_release(self) -> None:
        """Close the device; called exactly once for each init, after failures too."""
        self.program = None


def main(arguments: list[str]) -> None:
    model = onnx.load(arguments[0]) if arguments else small_model()
    feed = _random_feed(model) if arguments else small_feed()
    names = [info.name for info in model.graph.output]
    toy = ToyAccelerator()
    toy.init({"weights": "float16"})
    with open_executor("ort") as ort, toy:
        ort.load_model(model)
        toy.load_model(model)
        pairs = zip(names, toy.execute(names, feed), ort.execute(names, feed))
        for name, own, reference in pairs:
            difference = np.abs(own.astype(np.float64) - reference.astype(np.float64)).max()
            print(f"{name}: shape {own.shape}, largest difference {difference:.3g}")


def _random_feed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    from sgsdump.models.model import graph_inputs

    generator = np.random.default_rng(0)
    return {
        spec.name: generator.uniform(0, 1, [size or 1 for size in spec.shape]).astype(spec.dtype)
        for spec in graph_inputs(model)
    }


if __name__ == "__main__":
    main(sys.argv[1:])
