"""Files and options of the SDK's own commands (``tools/``)."""
