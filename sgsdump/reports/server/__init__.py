"""The page served from this machine, with all tensors in full resolution."""
