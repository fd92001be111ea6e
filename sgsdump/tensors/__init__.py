"""Tensors: metadata, element types, layouts, statistics. numpy only."""
