"""Layouts of devices: their blocks, the way to the logical tensor and back."""
