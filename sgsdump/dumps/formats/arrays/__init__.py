"""Dumps as numpy and safetensors files, and the manifest beside them."""
