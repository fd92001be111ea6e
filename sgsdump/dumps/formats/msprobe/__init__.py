"""Folders of msprobe: ``dump.json`` and the files with the values."""
