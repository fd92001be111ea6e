"""Tensor metadata, element types, layouts and statistics. Depends on numpy only."""
