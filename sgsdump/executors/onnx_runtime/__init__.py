"""All that drives onnxruntime sessions: segment by segment, stage by stage, or the whole graph."""
