"""The JSON Schema (draft 2020-12) of each JSON that a command writes, named after its ``format``: ``worst_values.json``
is that of "sgsdump worst values"."""
