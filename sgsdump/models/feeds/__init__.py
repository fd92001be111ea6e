"""Feeds of a model, made from images, arrays, preprocess files and data loaders."""
