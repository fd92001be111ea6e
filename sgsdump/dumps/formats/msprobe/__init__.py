"""msprobe's folders: ``dump.json`` and the values beside it."""
