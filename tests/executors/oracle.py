"""Every tensor of a genuine model by an executor, held against onnxruntime's."""

from pathlib import Path

import numpy as np

from sgsdump.executors.table import open_executor
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.models.passes.rewrites import mark_outputs

ULTRAFACE = Path("ultraface", "version-RFB-320_without_postprocessing.onnx")
HALF_SAMPLE = Path("sdaa", "model_sample.onnx")


def check_against_ort(name: str, path: Path, tolerance: float) -> tuple[int, set[str]]:
    """How many tensors the model has, and their types. Each is of onnxruntime's type and shape, and within
    ``tolerance`` of its largest value."""
    model = open_model(path).proto
    names = [output for node in model.graph.node for output in node.output if node.op_type != "Constant"]
    model = mark_outputs(model, names)
    feed = {
        spec.name: np.random.default_rng(0).uniform(0, 1, spec.shape).astype(spec.dtype) for spec in graph_inputs(model)
    }
    found = {}
    for each in ("ort", name):
        with open_executor(each) as executor:
            executor.load_model(model)
            found[each] = executor.execute(names, feed)
    for output, array, wanted in zip(names, found[name], found["ort"]):
        assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape), output
        largest = np.abs(wanted.astype(np.float64)).max()
        np.testing.assert_allclose(
            array.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance * largest, err_msg=output
        )
    return len(names), {array.dtype.name for array in found[name]}
