"""ATB topology files as ONNX graphs to look at."""
