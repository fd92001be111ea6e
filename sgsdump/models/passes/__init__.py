"""Graph passes that depend only on onnx."""
