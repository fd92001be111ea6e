"""Graph passes that need onnx only."""
