"""Names of tensors as names of files: safe ones, those of outputs, and those of files of values."""
