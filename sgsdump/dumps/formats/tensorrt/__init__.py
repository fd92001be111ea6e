"""Readers of dumps of TensorRT."""
