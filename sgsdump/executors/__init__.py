"""The executors; onnxruntime is the reference."""

from sgsdump.family import Family

EXECUTORS = Family("executor", {"onnxruntime": "sgsdump.executors.onnx_runtime:SegmentRunner"})
WHOLE_GRAPHS = Family("whole-graph executor", {"onnxruntime": "sgsdump.executors.whole_graph:WholeGraph"})
STAGED_GRAPHS = Family("staged executor", {"onnxruntime": "sgsdump.executors.staged_graph:StagedGraph"})
