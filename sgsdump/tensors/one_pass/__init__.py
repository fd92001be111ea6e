"""Single-pass kernels over float arrays: compiled if installed, otherwise numpy with the same result."""
