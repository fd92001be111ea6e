"""Dumps: their data model, file formats, conversion, splitting and merging."""
