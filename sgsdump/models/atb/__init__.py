"""Conversion of ATB topology files to ONNX graphs for display."""
