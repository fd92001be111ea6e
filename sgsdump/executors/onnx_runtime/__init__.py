"""Drivers of onnxruntime sessions: segment by segment, stage by stage, or the whole graph."""
