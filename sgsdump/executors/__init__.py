"""The executors, by the name users give. A package of one's own adds more by an entry point:

[project.entry-points."sgsdump.executors"]
mine = "my_package.my_module:MyExecutor"
"""

from importlib.metadata import entry_points

from sgsdump.executor import ENTRY_POINTS
from sgsdump.family import Family

EXECUTORS = {
    "ort": "sgsdump.executors.ort:OrtExecutor",
    "reference": "sgsdump.executors.reference:ReferenceExecutor",
    "openvino": "sgsdump.executors.openvino:OpenvinoExecutor",
    "tvm": "sgsdump.executors.tvm:TvmExecutor",
    "sdaa": "sgsdump.executors.sdaa:SdaaExecutor",
}
RUNNERS = Family("runner", {"onnxruntime": "sgsdump.executors.onnx_runtime:SegmentRunner"})
WHOLE_GRAPHS = Family("whole-graph executor", {"onnxruntime": "sgsdump.executors.whole_graph:WholeGraph"})
STAGED_GRAPHS = Family("staged executor", {"onnxruntime": "sgsdump.executors.staged_graph:StagedGraph"})


def executor_table() -> Family:
    """Our executors and those that installed packages bring; a plug-in may take the place of a name that is ours."""
    plugged = {point.name: f"{point.module}:{point.attr}" for point in entry_points(group=ENTRY_POINTS)}
    return Family("executor", EXECUTORS | plugged)
