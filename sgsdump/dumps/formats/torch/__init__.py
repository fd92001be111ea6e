"""PyTorch files and trees, read without torch."""
