"""Dumps in numpy and safetensors files, with or without a manifest."""
