"""Readers of dumps of ONNX test cases."""
