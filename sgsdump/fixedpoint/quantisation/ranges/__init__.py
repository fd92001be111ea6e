"""Calibration ranges: from images to statistics, fitted ranges and the ranges of side files."""
